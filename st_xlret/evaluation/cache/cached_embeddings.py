"""The embeddings of a corpus on disk, read shard by shard and searched exactly; and the ranks that share them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from st_xlret.evaluation.cache.shards import open_shard
from st_xlret.search import merge_top_k_across_ranks, top_k

_CPU_BLOCK = 4_096  # the scores of these rows stay in the cache of the processor


_LONGEST_WAIT = timedelta(days=7)  # a rank may have hours more to encode than another


class Ranks(NamedTuple):
    """The place of this process among those that share the work.

    Attributes:
        rank: Number of this process, from 0.
        world: Number of processes.
    """

    rank: int = 0
    world: int = 1

    @property
    def on_this_machine(self) -> int:
        """Number of processes that write to the disk of this machine."""
        return min(self.world, int(os.environ.get("LOCAL_WORLD_SIZE", self.world)))


def join_ranks() -> Ranks:
    """Join the processes that torchrun has started. Outside of torchrun there is one.

    What the processes exchange is small and on the CPU, so gloo is used on all machines.

    Example:
        >>> join_ranks()
        Ranks(rank=0, world=1)
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("gloo", timeout=_LONGEST_WAIT)
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()


class CachedEmbeddings:
    """The embeddings of a corpus, float16, in memory-mapped shards of which one is read at a time.

    Under torchrun each process has the shards that it has encoded; `top_k` searches the shards of all processes.

    Args:
        shards: First row and file of each shard of this process, in the order of the rows.
        rows: Number of rows of the whole corpus.
        shard_size: Number of rows of each shard but the last.
        ranks: The processes that share the corpus.

    Attributes:
        shape: Rows of the whole corpus, and dimension.
    """

    ndim = 2

    def __init__(self, shards: Sequence[tuple[int, Path]], rows: int, shard_size: int, ranks: Ranks) -> None:
        self.shards = list(shards)
        self.shard_size = shard_size
        self.ranks = ranks
        dimension = open_shard(self.shards[0][1]).shape[1] if self.shards else 0
        self.shape = (rows, dimension)

    def __len__(self) -> int:
        return self.shape[0]

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and embeddings, (rows, d) float16, of each shard of this process."""
        for first_row, file in self.shards:
            yield first_row, open_shard(file)

    def __iter__(self) -> Iterator[np.ndarray]:
        """The embeddings of each shard of this process, (rows, d) float16."""
        for _, chunk in self.chunks():
            yield chunk

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Consecutive rows, read into memory.

        Raises:
            ValueError: If another process has them.
        """
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"only consecutive rows can be read: step must be 1, got {step}.")
        first_rows = [first_row for first_row, _ in self.shards]
        parts = []
        at = start
        while at < stop:
            number = bisect_right(first_rows, at) - 1
            chunk = open_shard(self.shards[number][1]) if number >= 0 else np.empty((0, 0))
            part = chunk[at - first_rows[number] : stop - first_rows[number]] if number >= 0 else chunk
            if not len(part):
                raise ValueError(f"row {at} is in a shard of another of the {self.ranks.world} processes.")
            parts.append(part)
            at += len(part)
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), dtype=np.float16)

    def top_k(self, queries: Tensor | np.ndarray, k: int) -> tuple[Tensor, Tensor]:
        """Find the k rows with the highest dot product for every query, over the shards of all processes.

        Blocks of scores never span two shards, so the result is bit for bit the same for any number of processes.

        Args:
            queries: (Q, d), the same on all processes.
            k: Number of rows per query, from 1 to the size of the corpus.

        Returns:
            `(scores, rows)`, (Q, k) float32 and int64, best first. Of equal scores, the lower row comes first.

        Raises:
            ValueError: As `st_xlret.search.top_k`.
        """
        if not 1 <= k <= len(self):
            raise ValueError(f"k must be from 1 to the {len(self)} rows of the corpus, got {k}.")
        on_cpu = not isinstance(queries, Tensor) or queries.device.type == "cpu"
        fits = on_cpu and self.shard_size % _CPU_BLOCK == 0
        starts = np.array([first_row for first_row, _ in self.shards])
        sizes = np.minimum(self.shard_size, len(self) - starts)
        scores, rows = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        if self.shards:
            local_k = min(k, int(sizes.sum()))
            scores, found = top_k(queries, self, local_k, chunk_size=_CPU_BLOCK if fits else self.shard_size)
            # The shards of other processes are between those of this one.
            shift = torch.from_numpy(starts - np.concatenate([[0], sizes.cumsum()[:-1]])).to(found.device)
            rows = found + shift[found // self.shard_size]
        if self.ranks.world == 1:
            return scores, rows
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return merge_top_k_across_ranks(scores.to(device), rows.to(device), k)
