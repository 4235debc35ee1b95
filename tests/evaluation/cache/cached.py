"""What the tests of the embedding cache share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from st_xlret.evaluation.cache import CachedEmbeddings, EmbeddingCache

TEXTS = [f"{'word ' * (row % 7)}{row}" for row in range(23)]
DIMENSION = 5


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Embeddings that each text decides by itself."""
    rows = [np.random.default_rng(sum(text.encode())).standard_normal(DIMENSION) for text in texts]
    return np.array(rows, dtype=np.float32)


class Encoder:
    """Counts its calls and texts; stops, as a killed run does, after so many texts."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.texts: list[str] = []
        self.calls: list[list[str]] = []
        self.stop_after = stop_after

    def __call__(self, texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        if self.stop_after is not None and len(self.texts) >= self.stop_after:
            raise KeyboardInterrupt
        self.texts.extend(texts)
        self.calls.append(list(texts))
        return vectors(texts)

    @property
    def encoded(self) -> list[str]:
        """Without the text that is encoded to learn the dimension."""
        return self.texts[1:]


class Stream:
    """(id, text), again and again; notes how far reading is ahead of encoding."""

    def __init__(self, texts: Sequence[str], encoder: Encoder | None = None) -> None:
        self.texts = texts
        self.encoder = encoder
        self.read_ahead: list[int] = []

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for row, text in enumerate(self.texts):
            if self.encoder is not None and self.encoder.texts:
                self.read_ahead.append(row - len(self.encoder.encoded))
            yield f"id-{row}", text


def embed(cache: EmbeddingCache, texts=TEXTS, encoder=None, **identity) -> CachedEmbeddings:
    return cache.embed(texts, encoder or Encoder(), identity={"model": "a", **identity})


def shard_files(cache: EmbeddingCache) -> list[Path]:
    return sorted(file for file in cache.folder.glob("*/*.npy") if not file.name.startswith("."))
