"""Embeddings of texts as the papers take them: layers, poolings, languages."""
