"""Vectors whose products are exact, and a search of them from the definition."""

import numpy as np
import pytest

from st_xlret.search import exact


def naive_top_k(queries: np.ndarray, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows, in double precision and by a stable sort."""
    scores = queries.astype(np.float64) @ corpus.astype(np.float64).T
    nearest = best_first(scores)[:, :k]
    return np.take_along_axis(scores, nearest, axis=1), nearest


def best_first(scores: np.ndarray) -> np.ndarray:
    """The columns of each row, of equal scores the lower one first."""
    return np.argsort(-scores, axis=1, kind="stable")


def small_integers(rows: int, dimension: int, seed: int) -> np.ndarray:
    """Whole numbers: sums in float32 are exact, and five values make ties by the dozen."""
    generator = np.random.default_rng(seed)
    return generator.integers(-2, 3, size=(rows, dimension)).astype(np.float32)


def set_blocks(monkeypatch: pytest.MonkeyPatch, rows: int, queries: int = 512) -> None:
    """Search so many rows, and so many queries, at once."""
    monkeypatch.setattr(exact, "_rows_at_once", lambda *_: rows)
    monkeypatch.setattr(exact, "_QUERIES_AT_ONCE", queries)
    monkeypatch.setattr(exact, "_BLOCK", rows)
