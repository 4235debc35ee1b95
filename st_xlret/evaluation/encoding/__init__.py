"""Embeddings of texts as the papers define them: layers, poolings, languages."""
