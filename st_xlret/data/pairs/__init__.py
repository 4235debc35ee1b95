"""Parallel sentences in every format, which of them to keep, and what to hold out."""
