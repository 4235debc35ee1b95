"""Readers of the benchmarks' files."""
