"""Parallel sentences: reading every format, and choosing which pairs to keep."""
