"""Retrieval over a corpus: texts, search, metrics, one evaluator for all benchmarks."""
