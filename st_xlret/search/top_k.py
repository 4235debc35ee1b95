"""Exact top-k search by dot product that never holds a whole score matrix."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Embeddings: TypeAlias = "np.ndarray | Tensor"

_INDEX_BITS = 32
_LARGEST_CORPUS = 2**_INDEX_BITS - 1


def _as_float32(block: Embeddings, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(np.array(block)) if isinstance(block, np.ndarray) else block
    return tensor.to(device=device, dtype=torch.float32)


def _require_finite(block: Tensor, first_row: int, name: str) -> None:
    finite = torch.isfinite(block).all(dim=1)
    if not bool(finite.all()):
        row = first_row + int((~finite).nonzero()[0, 0])
        raise ValueError(
            f"{name} row {row} holds NaN or infinite values (in float32): a search over it means nothing. "
            "Look at the text or the model that produced this row, or drop it."
        )


def _sort_keys(scores: Tensor, indices: Tensor) -> Tensor:
    """Packs score and index into one int64: larger means a higher score or, among equals, a lower index."""
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # adding zero turns -0.0 into 0.0
    ordered = torch.where(bits < 0, -(bits + 2**31), bits)  # negative floats count their bits downwards
    return ordered * 2**_INDEX_BITS + (_LARGEST_CORPUS - indices)


def _unpack_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    ordered = keys >> _INDEX_BITS
    indices = _LARGEST_CORPUS - (keys & _LARGEST_CORPUS)
    bits = torch.where(ordered < 0, -ordered - 2**31, ordered)
    return bits.to(torch.int32).view(torch.float32), indices


def _top_of_block(scores: Tensor, k: int, first_row: int) -> Tensor:
    """Sort keys of the k best columns of every row, in no particular order."""
    if k >= scores.shape[1]:
        columns = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        return _sort_keys(scores, columns + first_row)
    # torch.topk picks any of several equal scores: a stable sort decides where the k-th equals the next.
    values, columns = torch.topk(scores, k + 1, dim=1)
    tied = values[:, k - 1] == values[:, k]
    values, columns = values[:, :k], columns[:, :k]
    if bool(tied.any()):
        rows = tied.nonzero()[:, 0]
        columns = columns.clone()
        columns[rows] = torch.sort(scores[rows], dim=1, descending=True, stable=True).indices[:, :k]
    return _sort_keys(values, columns + first_row)


def _check_arguments(queries: Embeddings, corpus: Embeddings, k: int, chunks: tuple[int, int]) -> None:
    for name, array in (("queries", queries), ("corpus", corpus)):
        if array.ndim != 2:
            raise ValueError(f"{name} must have shape (rows, dimension), got {tuple(array.shape)}.")
    if queries.shape[1] != corpus.shape[1]:
        raise ValueError(
            f"queries have dimension {queries.shape[1]} and the corpus has dimension {corpus.shape[1]}: "
            "encode both with the same model."
        )
    if k < 1:
        raise ValueError(f"k must be at least 1, got k={k}.")
    if k > corpus.shape[0]:
        raise ValueError(
            f"k={k} is larger than the corpus of {corpus.shape[0]} rows: ask for k=min(k, len(corpus)) at most."
        )
    if corpus.shape[0] > _LARGEST_CORPUS:
        raise ValueError(f"the corpus has {corpus.shape[0]} rows; at most {_LARGEST_CORPUS} can be indexed.")
    if min(chunks) < 1:
        raise ValueError(f"chunk_size and query_chunk_size must be at least 1, got {chunks[0]} and {chunks[1]}.")


def top_k(
    queries: Embeddings,
    corpus: Embeddings,
    k: int,
    *,
    chunk_size: int = 16_384,
    query_chunk_size: int = 1_024,
    device: str | torch.device | None = None,
) -> tuple[Tensor, Tensor]:
    """The k corpus rows with the highest dot product for every query: exact, streamed, deterministic.

    The corpus is read once, in chunks, each scored against every chunk of queries in float32, and merged into
    a running top-k. The largest intermediate is one score block of ``query_chunk_size x chunk_size`` floats,
    so that a memory-mapped corpus of any size can be searched. Normalise the rows first to search by cosine.

    Args:
        queries: Shape (Q, d), NumPy or torch, any floating dtype.
        corpus: Shape (C, d), NumPy (memory-mapped arrays too) or torch.
        k: Neighbours per query, from 1 to C.
        chunk_size: Corpus rows scored at a time.
        query_chunk_size: Queries scored at a time.
        device: Where the scores are computed. Default: the device of ``queries`` where that is a tensor on an
            accelerator, else that of ``corpus``, else the CPU.

    Returns:
        ``(scores, indices)``, shapes (Q, k), float32 and int64 tensors on ``device``; best first, equal
        scores ordered by the lower corpus index.

    Raises:
        ValueError: If shapes disagree, ``k`` is not in 1..C, a chunk size is not positive, or a row holds NaN
            or infinite values (the message names the first such row).

    Example:
        >>> import numpy as np
        >>> from st_xlret.search import top_k
        >>> corpus = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
        >>> scores, indices = top_k(np.array([[2.0, 1.0]], dtype=np.float32), corpus, k=2)
        >>> scores.tolist(), indices.tolist()
        ([[2.0, 2.0]], [[0, 2]])
    """
    _check_arguments(queries, corpus, k, (chunk_size, query_chunk_size))
    target = torch.device(device) if device is not None else _default_device(queries, corpus)
    number_of_queries, corpus_size = queries.shape[0], corpus.shape[0]

    best: list[Tensor | None] = [None] * len(range(0, number_of_queries, query_chunk_size))
    with torch.no_grad():
        for corpus_start in range(0, corpus_size, chunk_size):
            block = _as_float32(corpus[corpus_start : corpus_start + chunk_size], target)
            _require_finite(block, corpus_start, "corpus")
            for slot, query_start in enumerate(range(0, number_of_queries, query_chunk_size)):
                rows = _as_float32(queries[query_start : query_start + query_chunk_size], target)
                if corpus_start == 0:
                    _require_finite(rows, query_start, "queries")
                keys = _top_of_block(rows @ block.T, k, corpus_start)
                running = best[slot]
                if running is not None:
                    keys = torch.cat([running, keys], dim=1)
                best[slot] = torch.topk(keys, min(k, keys.shape[1]), dim=1, sorted=True).values

    merged = [keys for keys in best if keys is not None]
    if not merged:
        empty = torch.empty(0, k, device=target)
        return empty, empty.to(torch.int64)
    return _unpack_keys(torch.cat(merged))


def _default_device(queries: Embeddings, corpus: Embeddings) -> torch.device:
    devices = [array.device for array in (queries, corpus) if isinstance(array, Tensor)]
    accelerators = [device for device in devices if device.type != "cpu"]
    return (accelerators or devices or [torch.device("cpu")])[0]
