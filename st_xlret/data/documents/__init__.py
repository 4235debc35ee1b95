"""Monolingual documents: reading, splitting into sentences, packing into units."""
