"""Distinct texts on the disk, so that tens of millions of them take little memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Value

from st_xlret.data.reading.arrow_cache import ArrowCache

_FEATURES = Features({"text": Value("string"), "hash": Value("int64")})
_READ_AT_A_TIME = 1_000


class TextTable:
    """The distinct texts of a source in a memory-mapped table, in the order of their first occurrence.

    Eight bytes for each text are in memory, and while the table is made a few times as much.

    Args:
        dataset: Columns `text` and `hash`.
        language: Language of the texts, if it is known.
    """

    def __init__(self, dataset: Dataset, language: str = "") -> None:
        self.language = language
        self.texts = dataset.select_columns(["text"])
        _, first = np.unique(dataset.data.column("hash").to_numpy(), return_index=True)
        self.rows = np.sort(first)

    @classmethod
    def of(cls, texts: Iterable[str], folder: Path, key: str | None = None, language: str = "") -> TextTable:
        """Write texts as they come, or use what is there under a key.

        Args:
            texts: The texts. They are only read if there is no table under the key.
            folder: Where the table is kept.
            key: Identifies what the texts are from; see `key_of`. None: the texts are read in any case.
            language: Language of the texts.
        """
        cache = ArrowCache("texts", _FEATURES, folder)
        with cache.lock(key):
            found = cache.load(key)
            dataset = found[0] if found else cache.store(key, ((text, _hash(text)) for text in texts), dict)
        return cls(dataset, language)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """(number, text, language) of every text, as `EmbeddingCache` takes them."""
        for start in range(0, len(self), _READ_AT_A_TIME):
            found = self[range(start, min(start + _READ_AT_A_TIME, len(self)))]
            yield from ((str(start + i), text, self.language) for i, text in enumerate(found))

    def __getitem__(self, numbers: Sequence[int]) -> list[str]:
        """Some of the texts."""
        return list(self.texts[self.rows[np.asarray(numbers)]]["text"])


def key_of(source: str, *options: str | None) -> str | None:
    """What identifies the texts of a file as it is now; None for a folder or a data set, whose changes are not seen."""
    path = Path(source).expanduser()
    if not path.is_file():
        return None
    state = path.stat()
    identity = [os.fspath(path.resolve()), state.st_size, state.st_mtime_ns, *options]
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:32]


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
