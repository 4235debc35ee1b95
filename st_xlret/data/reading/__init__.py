"""Streaming text files and records, and caching what was read."""
