"""Vectors of texts that are kept on the disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sized
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from st_xlret.files import PathLike, atomic_file
from st_xlret.search import merge_top_k, top_k

_DIGEST = 32  # bytes at the end of a shard


class KeptVectors:
    """Vectors of texts in float16 files of a folder, one a shard.

    They are embedded once, by `write`, before which there are no rows, and read back shard by
    shard. A file ends with the hash of its content: one that is damaged is made again.

    Args:
        folder: Folder of the shards of one corpus, model and set of options.
        shard_size: Texts per shard, which is the most that an interrupted run loses.
        distributed: Share the shards among the processes of torchrun, on one disk or several. All
            make the same calls.
    """

    def __init__(
        self, folder: PathLike, *, shard_size: int = 16_384, distributed: bool = False
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.shard_size = shard_size
        self.rows = 0
        self.files: dict[int, Path] = {}
        self.rank = 0
        self.world = 1
        if distributed:
            _join_other_processes()
            if dist.is_initialized():
                self.rank = dist.get_rank()
                self.world = dist.get_world_size()

    def write(self, texts: Sized, embed: Callable[[slice], Any]) -> KeptVectors:
        """Embed the shards of this process that have no whole file yet, and return itself.

        `embed` makes vectors (rows, d) of the slice of a shard.
        """
        self.rows = len(texts)
        count = -(-self.rows // self.shard_size)
        for number in range(self.rank, count, self.world):
            file = self.folder / f"{number:06d}.npy"
            if not _is_whole(file):
                start = number * self.shard_size
                rows = slice(start, min(start + self.shard_size, self.rows))
                _write_shard(file, _as_float16(embed(rows), start))
            self.files[number] = file
        return self

    def __len__(self) -> int:
        return self.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width; this process needs to have a shard, from which the latter is."""
        first = next(iter(self))
        return self.rows, first.shape[1]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Consecutive rows, at least one, read into memory, of shards that this process has."""
        start, stop, _ = rows.indices(self.rows)
        first_shard = start // self.shard_size
        last_shard = (stop - 1) // self.shard_size
        parts = []
        for number in range(first_shard, last_shard + 1):
            shard = np.load(self.files[number], mmap_mode="r")
            before = number * self.shard_size
            begin = max(0, start - before)
            end = stop - before
            parts.append(shard[begin:end])
        return np.concatenate(parts)

    def __iter__(self) -> Iterator[np.ndarray]:
        for file in self.files.values():
            yield np.load(file, mmap_mode="r")

    def top_k(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """As [`top_k`][st_xlret.search.top_k], over the shards of all processes, on the CPU.

        Each of these calls it with the same queries, and has the same result, for any number of
        them.
        """
        scores = torch.empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.int64)
        if self.files:
            count = sum(map(len, self))  # of this process
            own_scores, places = top_k(queries, self, min(k, count))
            scores = own_scores.cpu()
            rows = self._rows_at(places.cpu())
        if self.world > 1:
            parts: list[Any] = [None] * self.world
            dist.all_gather_object(parts, (scores, rows))
            scores = torch.cat([part[0] for part in parts], dim=1)
            rows = torch.cat([part[1] for part in parts], dim=1)
        return merge_top_k(scores, rows, k)

    def _rows_at(self, places: Tensor) -> Tensor:
        """The rows of all texts that stand at places among the rows of this process."""
        numbers = torch.tensor(list(self.files))
        shards = numbers[places // self.shard_size]
        return shards * self.shard_size + places % self.shard_size


def _join_other_processes() -> None:
    """Under torchrun, join the group of its processes, unless the caller has made one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        # What is exchanged is small and on the CPU; a rank may have hours more to embed than
        # another.
        dist.init_process_group("gloo", timeout=timedelta(days=7))


def _is_whole(file: Path) -> bool:
    """Whether a shard was written to its end, by the digest behind it."""
    if not file.is_file():
        return False
    content = file.read_bytes()
    vectors = content[:-_DIGEST]
    digest = content[-_DIGEST:]
    return hashlib.sha256(vectors).digest() == digest


def _as_float16(vectors: Any, first_row: int) -> np.ndarray:
    """Vectors as float16. A `ValueError` names the row of one that is too long for it."""
    tensor = torch.as_tensor(vectors).cpu()
    with np.errstate(over="ignore"):
        halves = np.asarray(tensor).astype(np.float16)
    is_finite = np.isfinite(halves).all(axis=1)
    if not is_finite.all():
        row = first_row + is_finite.argmin()
        raise ValueError(f"the vector of row {row} is not finite in float16")
    return halves


def _write_shard(file: Path, halves: np.ndarray) -> None:
    """Write vectors and their digest, whole or not at all."""
    shard = BytesIO()
    np.save(shard, halves)
    content = shard.getvalue()
    digest = hashlib.sha256(content).digest()
    with atomic_file(file) as part:
        part.write_bytes(content + digest)
