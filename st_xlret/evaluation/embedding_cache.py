"""Embeddings of corpora on disk: encoded once, by one process or several, resumable, and searched shard by shard."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.encoding import Role, encode, fingerprint, role_prompt
from st_xlret.files import atomic_file
from st_xlret.search import merge_top_k, top_k

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Item: TypeAlias = "str | tuple[str, str]"
"""A text, or a text and its language."""
Encode: TypeAlias = Callable[[Sequence[str], Sequence[str]], "Tensor | np.ndarray"]

_TEXTS_PER_CALL = 1_024
_LONGEST_WAIT = timedelta(days=7)  # a rank may have hours more to encode than another


class StoredEmbeddings:
    """The embeddings of a corpus, float16 in memory-mapped shards, of which one is read at a time.

    It is iterated over by shards and read by slices. Under torchrun each process has the shards that it has encoded,
    and `top_k` searches those of all processes.
    """

    def __init__(self, files: Mapping[int, Path], rows: int, shard_size: int, world: int) -> None:
        self.files = dict(files)
        self.shard_size = shard_size
        self.world = world
        self.shape = (rows, next((_open(file).shape[1] for file in self.files.values()), 0))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        """The embeddings of each shard of this process, (rows, d) float16."""
        return map(_open, self.files.values())

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Consecutive rows, read into memory. Those of another process are a KeyError."""
        start, stop, _ = rows.indices(len(self))
        parts = [np.empty((0, self.shape[1]), dtype=np.float16)]
        for number in range(start // self.shard_size, -(-stop // self.shard_size)):
            first = number * self.shard_size
            parts.append(_open(self.files[number])[max(0, start - first) : stop - first])
        return np.concatenate(parts)

    def top_k(self, queries: Tensor | np.ndarray, k: int) -> tuple[Tensor, Tensor]:
        """As [`top_k`][st_xlret.search.top_k], over the shards of all processes; the same for any number of them.

        Args:
            queries: Shape (Q, d), the same on all processes.
            k: Number of rows per query, from 1 to the size of the corpus.
        """
        if not 1 <= k <= len(self):
            raise ValueError(f"k must be from 1 to the {len(self)} rows of the corpus, got {k}.")
        numbers = torch.tensor(list(self.files), dtype=torch.int64)
        own_rows = sum(min(self.shard_size, len(self) - number * self.shard_size) for number in self.files)
        scores, rows = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        if self.files:
            scores, found = (part.cpu() for part in top_k(queries, self, min(k, own_rows)))
            rows = numbers[found // self.shard_size] * self.shard_size + found % self.shard_size
        if self.world == 1:
            return scores, rows
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, (scores, rows))
        scores, rows = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
        return merge_top_k(scores, rows, k)


class EmbeddingCache:
    """Encodes each corpus once and keeps the embeddings as float16 shards; an interrupted run can be continued.

    The name of a shard is a hash of what determines its content: the model (weights, configuration, tokenizer), the
    options and the texts. Texts are streamed; one shard of them is in memory at a time.

    Args:
        folder: Folder of the shards.
        shard_size: Texts per shard, which is the most that an interrupted run loses.
        distributed: Share the work among the processes of torchrun. Each encodes and searches its own shards, on one
            disk or several. All processes must make the same calls.
        show_progress_bar: Whether to show the number of encoded texts, their rate and the time left.

    Raises:
        ValueError: If `shard_size` is below 1.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        shard_size: int = 16_384,
        distributed: bool = False,
        show_progress_bar: bool = True,
    ) -> None:
        if shard_size < 1:
            raise ValueError(f"shard_size must be at least 1, got {shard_size}.")
        self.folder = Path(folder).expanduser()
        self.shard_size = shard_size
        self.show_progress_bar = show_progress_bar
        self.rank, self.world = 0, 1
        if distributed and int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            dist.init_process_group("gloo", timeout=_LONGEST_WAIT)  # what is exchanged is small and on the CPU
        if distributed and dist.is_initialized():
            self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def encode(
        self, model: SentenceTransformer, texts: Iterable[Item], *, role: Role | None = "document", **options: Any
    ) -> StoredEmbeddings:
        """Embed texts by [`encode`][st_xlret.encode], or load what an earlier run has kept.

        Args:
            model: Any Sentence Transformer. A model with a map per language is told the languages.
            texts: Texts, or pairs (text, language).
            role: Which prompt is put before the texts; None as in `model.encode`.
            **options: Options of `model.encode`, such as `normalize_embeddings=True` or `prompt="passage: "`.

        Raises:
            ValueError: If the model returns NaN or infinite values, or there are no texts.
        """

        def embed(batch: Sequence[str], languages: Sequence[str]) -> np.ndarray:
            return encode(model, batch, languages, role=role, show_progress_bar=False, **options)  # type: ignore[no-any-return]

        lasting = {name: value for name, value in options.items() if name != "batch_size"}
        identity = {"model": fingerprint(model), "role": role, "prompt": role_prompt(model, role), **lasting}
        if torch.is_autocast_enabled(device := model.device.type):
            identity["autocast"] = str(torch.get_autocast_dtype(device))
        return self.embed(texts, embed, identity=identity)

    def embed(self, texts: Iterable[Item], encode: Encode, *, identity: Mapping[str, Any]) -> StoredEmbeddings:
        """Embed texts by any function.

        Args:
            texts: As for `encode`.
            encode: Function `encode(texts, languages)` that returns (n, d) in the order of the texts; languages may be
                empty.
            identity: All that determines the embeddings besides the texts, in JSON's types, such as a `fingerprint`.

        Raises:
            ValueError: As for `encode`.
        """
        name = json.dumps(identity, sort_keys=True)
        files: dict[int, Path] = {}
        rows = 0
        pairs = ((item, "") if isinstance(item, str) else item for item in texts)
        total = len(texts) if isinstance(texts, Sized) else None
        is_off = not self.show_progress_bar or self.rank > 0
        with tqdm(total=total, desc="Encoding", unit=" texts", smoothing=0.05, disable=is_off) as bar:
            while shard := list(islice(pairs, self.shard_size)):
                if (number := rows // self.shard_size) % self.world == self.rank:
                    file = self.folder / f"{_hash(name, *(part for pair in shard for part in pair))}.npy"
                    if not _is_whole(file, len(shard)):
                        self._write(file, shard, encode, rows, bar)
                    files[number] = file
                rows += len(shard)
                bar.update(rows - bar.n)
        if not rows:
            raise ValueError("there are no texts to embed.")
        return StoredEmbeddings(files, rows, self.shard_size, self.world)

    def _write(self, file: Path, shard: list[tuple[str, str]], encode: Encode, first_row: int, bar: Any) -> None:
        order = sorted(range(len(shard)), key=lambda row: -len(shard[row][0]))  # texts of a batch are of like length
        halves: np.ndarray | None = None
        for start in range(0, len(order), _TEXTS_PER_CALL):
            rows = order[start : start + _TEXTS_PER_CALL]
            found: Any = encode([shard[row][0] for row in rows], [shard[row][1] for row in rows])
            values = torch.as_tensor(found).detach().float().cpu().numpy()
            halves = np.empty((len(shard), values.shape[1]), np.float16) if halves is None else halves
            with np.errstate(over="ignore"):
                halves[rows] = values
            if not np.isfinite(halves[rows]).all():
                at = int(np.flatnonzero(~np.isfinite(halves[rows]).all(axis=1))[0])
                reason = "NaN or infinite values: it has diverged, or the text is broken"
                if np.isfinite(values[at]).all():
                    reason = "values beyond 65504, which float16 cannot hold: normalise the embeddings"
                raise ValueError(f"the model gives row {first_row + rows[at]} ({shard[rows[at]][0][:80]!r}) {reason}.")
            bar.update(len(rows))
        assert halves is not None
        with atomic_file(file) as temporary, open(temporary, "wb") as target:
            np.save(target, halves, allow_pickle=False)


def _hash(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def _open(file: Path) -> np.ndarray:
    return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def _is_whole(file: Path, rows: int) -> bool:
    try:
        return len(_open(file)) == rows
    except (OSError, ValueError, EOFError):
        return False
