"""Batch samplers and collators."""
