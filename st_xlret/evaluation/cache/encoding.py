"""Encoding the shards of a corpus that are not on disk yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.evaluation.cache.cached_embeddings import CachedEmbeddings, Ranks
from st_xlret.evaluation.cache.shards import HEADER_BYTES, Item, Shard, ShardFolder, cut_into_shards
from st_xlret.evaluation.retrieval.ranking import BrokenEmbeddingError

Encode: TypeAlias = Callable[[Sequence[str], Sequence[str]], "Tensor | np.ndarray"]


@dataclass
class _Wanted:
    """A shard of this process, and its file once there is one."""

    first_row: int
    rows: int
    key: str
    file: Path | None


class Encoding:
    """The work of one call of `EmbeddingCache.embed`: finding the shards that are there, encoding the others.

    Args:
        shards: Where they are kept.
        encode: `encode(texts, languages)` returns (n, d).
        shard_size: Texts a shard.
        texts_per_call: Texts handed to `encode` at a time.
        ranks: The processes that share the work.
        show_progress_bar: Whether to show bars over the texts.
    """

    def __init__(
        self,
        shards: ShardFolder,
        encode: Encode,
        *,
        shard_size: int,
        texts_per_call: int,
        ranks: Ranks,
        show_progress_bar: bool,
    ) -> None:
        self.shards = shards
        self.encode = encode
        self.shard_size = shard_size
        self.texts_per_call = texts_per_call
        self.ranks = ranks
        self.show_progress_bar = show_progress_bar
        self.dimension: int | None = None

    def in_two_passes(self, texts: Iterable[Item]) -> CachedEmbeddings:
        """First looks what is missing and whether it fits on the disk; then encodes it."""
        wanted: dict[int, _Wanted] = {}
        rows = 0
        with self._bar("Reading texts", len(texts) if isinstance(texts, Sized) else None) as bar:
            for shard in cut_into_shards(texts, self.shard_size):
                rows += len(shard.texts)
                bar.update(len(shard.texts))
                if self._is_mine(shard):
                    wanted[shard.index] = self._look_up(shard)
        missing = {index for index, shard in wanted.items() if shard.file is None}
        if missing:
            own_rows = sum(shard.rows for shard in wanted.values())
            missing_rows = sum(wanted[index].rows for index in missing)
            with self._bar("Encoding texts", own_rows, done=own_rows - missing_rows) as bar:
                for shard in cut_into_shards(texts, self.shard_size):
                    if shard.index not in missing:
                        continue
                    if shard.key != wanted[shard.index].key:
                        raise ValueError(
                            f"the texts from row {shard.first_row} on are others than a moment ago: give the same "
                            "texts each time they are iterated over."
                        )
                    self._require_space(shard, missing_rows, len(missing))
                    wanted[shard.index].file = self._encode_shard(shard, bar)
                    missing.discard(shard.index)
                    missing_rows -= len(shard.texts)
            if missing:
                row = wanted[min(missing)].first_row
                raise ValueError(f"the texts from row {row} on are gone: they can be iterated over only once.")
        return self._result(wanted, rows)

    def in_one_pass(self, texts: Iterable[Item]) -> CachedEmbeddings:
        """For texts that come only once: each missing shard is encoded when it passes."""
        wanted: dict[int, _Wanted] = {}
        rows = 0
        with self._bar("Encoding texts", None) as bar:
            for shard in cut_into_shards(texts, self.shard_size):
                rows += len(shard.texts)
                if not self._is_mine(shard):
                    continue
                wanted[shard.index] = found = self._look_up(shard)
                if found.file is None:
                    self._require_space(shard, found.rows, 1)
                    found.file = self._encode_shard(shard, bar)
                else:
                    bar.update(found.rows)
        return self._result(wanted, rows)

    def _result(self, wanted: Mapping[int, _Wanted], rows: int) -> CachedEmbeddings:
        if not rows:
            raise ValueError("there are no texts to embed.")
        files = [(shard.first_row, shard.file) for shard in wanted.values() if shard.file is not None]
        return CachedEmbeddings(files, rows, self.shard_size, self.ranks)

    def _is_mine(self, shard: Shard) -> bool:
        return shard.index % self.ranks.world == self.ranks.rank

    def _look_up(self, shard: Shard) -> _Wanted:
        key, rows = shard.key, len(shard.texts)
        return _Wanted(shard.first_row, rows, key, self.shards.find(key, rows))

    def _require_space(self, shard: Shard, rows: int, shards: int) -> None:
        """Checks the disk for all that is missing: before the first shard, and again before each."""
        if self.dimension is None:
            self.dimension = self._embeddings_of(shard, [0]).shape[1]
        needed = (rows * self.dimension * 2 + shards * HEADER_BYTES) * self.ranks.on_this_machine
        self.shards.require_space(needed, f"the embeddings of {rows} texts, {self.dimension} float16 values each,")

    def _encode_shard(self, shard: Shard, bar: tqdm[Any]) -> Path:
        """Longest texts first, so that those of a batch are of like length."""
        order = sorted(range(len(shard.texts)), key=lambda row: -len(shard.texts[row]))
        embeddings = np.empty((len(order), self.dimension or 0), dtype=np.float16)
        for start in range(0, len(order), self.texts_per_call):
            rows = order[start : start + self.texts_per_call]
            embeddings[rows] = self._embeddings_of(shard, rows)
            bar.update(len(rows))
        return self.shards.write(shard.key, embeddings)

    def _embeddings_of(self, shard: Shard, rows: Sequence[int]) -> np.ndarray:
        """Float16 embeddings of some texts of a shard, checked."""
        try:
            found = self.encode([shard.texts[row] for row in rows], [shard.languages[row] for row in rows])
        except BrokenEmbeddingError as error:
            row = rows[error.row]
            raise ValueError(f"text {shard.ids[row]!r} (row {shard.first_row + row}): {error}") from error
        if isinstance(found, Tensor):
            found = found.detach().float().cpu().numpy()
        values = np.asarray(found, dtype=np.float32)
        if values.ndim != 2 or len(values) != len(rows):
            raise ValueError(
                f"{len(rows)} texts were encoded into an array of shape {values.shape}: expected a row each."
            )
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        broken = np.flatnonzero(~np.isfinite(halves).all(axis=1))
        if len(broken):
            row = rows[int(broken[0])]
            is_nan = not np.isfinite(values[broken[0]]).all()
            reason = (
                "NaN or infinite values: it has diverged, or the text is broken"
                if is_nan
                else "values beyond 65504, which float16 cannot hold: normalise the embeddings"
            )
            raise ValueError(
                f"the model gives text {shard.ids[row]!r} (row {shard.first_row + row}) {reason}. "
                "The shards written so far stay valid."
            )
        return halves

    def _bar(self, what: str, total: int | None, *, done: int = 0) -> tqdm[Any]:
        ranks = f" (process 1 of {self.ranks.world})" if self.ranks.world > 1 else ""
        is_off = not self.show_progress_bar or self.ranks.rank > 0
        return tqdm(total=total, initial=done, desc=what + ranks, unit=" texts", smoothing=0.05, disable=is_off)
