"""An index of texts on the disk: its files, and searching them."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from st_xlret.data.language_identification import LanguageIdentifier
from st_xlret.encoding import encode, language_routes
from st_xlret.evaluation.embedding_cache import fingerprint
from st_xlret.hub.loading import load_model
from st_xlret.search import top_k

FORMAT = 2
INDEX_FILE, TEXTS_FILE, VECTORS_FILE = "index.json", "texts.jsonl", "vectors.npy"


class Entries:
    """The texts of an index with their languages, read from the file when they are asked for.

    Args:
        file: JSON lines {"language", "text"}.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.starts = array("q")
        with open(file, "rb") as lines:
            place = 0
            for line in lines:
                self.starts.append(place)
                place += len(line)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One text with its language."""
        with open(self.file, "rb") as lines:
            lines.seek(self.starts[row])
            entry: dict[str, Any] = json.loads(lines.readline())
            return entry

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(text, language) of every text, as `EmbeddingCache` takes them."""
        with open(self.file, encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                yield entry["text"], entry["language"]


class SearchIndex:
    """An index and its model. Vectors and texts stay on the disk.

    Args:
        folder: What `st-xlret index` has written.
        model: The encoder, if it is elsewhere now.
        device: Where it runs.

    Raises:
        ValueError: If the folder is no index, or the model is another one than it was built with.
    """

    def __init__(self, folder: str, model: str | None = None, device: str | None = None) -> None:
        path = Path(folder)
        if not (path / INDEX_FILE).is_file():
            raise ValueError(f"{folder} is no index: there is no {INDEX_FILE}")
        self.folder = folder
        self.about = _read_about(path / INDEX_FILE)
        self.entries = Entries(path / TEXTS_FILE)
        self.vectors = np.load(path / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
        if len(self.entries) != len(self.vectors):
            raise ValueError(f"{folder}: {len(self.entries)} texts and {len(self.vectors)} vectors; build it again")
        name = model or self.about["model"]
        self.model = load_model(name, device)
        if fingerprint(self.model) != self.about["fingerprint"]:
            raise ValueError(
                f"{folder} was built with another model than {name} is now (built with {self.about['model']}): its "
                "vectors do not fit. Build the index again, or name the model that it was built with"
            )
        self._identify = identifier_for(self.model)

    def search(self, queries: Sequence[str], k: int = 10, *, language: str | None = None) -> list[list[dict[str, Any]]]:
        """The best texts for each query, as {"score", "language", "text"}.

        For a model with a map per language, the language of a query is identified where none is given, if the extra
        `langid` is installed.
        """
        languages: str | Sequence[str | None] | None = language
        if language is None and self._identify is not None:
            languages = [self._identify(query) for query in queries]
        asked = encode(self.model, list(queries), languages, role="query", normalize_embeddings=True)
        scores, rows = top_k(asked, self.vectors, min(k, len(self.entries)))
        return [
            [{"score": round(score, 4), **self.entries[row]} for score, row in zip(*found, strict=True)]
            for found in zip(scores.tolist(), rows.tolist(), strict=True)
        ]


def check_replaceable(folder: Path, overwrite: bool) -> None:
    """Refuse to replace a folder that is not an index and nothing else.

    Raises:
        FileExistsError: If there is something at `folder`, unless it is an index and `overwrite` is given.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    if INDEX_FILE not in names or not names <= {INDEX_FILE, TEXTS_FILE, VECTORS_FILE}:
        raise FileExistsError(f"{folder} exists and is not an index alone: it is not replaced; name another folder")
    if not overwrite:
        raise FileExistsError(f"{folder} exists: use --overwrite to replace the index, or name another folder")


def identifier_for(model: Any) -> Callable[[str], str] | None:
    """A function from a text to its language, among those that a model has maps of its own for.

    Args:
        model: Any Sentence Transformer.

    Returns:
        The function. None if the model needs no language, has one that the identifier does not know, or the extra
            `langid` is not installed: texts are then taken to be in the default language of the model, with a warning.
    """
    languages = language_routes(model)
    if not languages:
        return None
    try:
        identifier = LanguageIdentifier(languages)
    except (ImportError, ValueError):
        return None
    return None if identifier.unknown else identifier.identify


def _read_about(file: Path) -> dict[str, Any]:
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error}): build the index again") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT or not {"model", "fingerprint"} <= about.keys():
        raise ValueError(f"{file} is not of an index that this version reads (format {FORMAT}): build the index again")
    return about
