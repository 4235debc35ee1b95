"""Embeddings of corpora on disk, which are encoded once, can be resumed, and are searched shard by shard."""

from __future__ import annotations

from st_xlret.evaluation.cache.cached_embeddings import CachedEmbeddings, Ranks, join_ranks
from st_xlret.evaluation.cache.embedding_cache import EmbeddingCache
from st_xlret.evaluation.cache.fingerprint import fingerprint

__all__ = ["CachedEmbeddings", "EmbeddingCache", "Ranks", "fingerprint", "join_ranks"]
