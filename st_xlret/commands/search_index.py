"""An index of texts, opened to be searched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from st_xlret.calibration import encode
from st_xlret.commands.identification import identifier_for
from st_xlret.commands.index import INDEX_FILE, TEXTS_FILE, VECTORS_FILE, Entries, is_index
from st_xlret.hub.loading import load_model
from st_xlret.search import top_k


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
        if not is_index(path):
            raise ValueError(
                f"{folder} is no index: build one with st-xlret index DOCUMENTS --model MODEL --output DIR"
            )
        self.folder = folder
        self.about: dict[str, Any] = json.loads((path / INDEX_FILE).read_text(encoding="utf-8"))
        self.entries = Entries(path / TEXTS_FILE)
        self.vectors = np.load(path / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
        if len(self.entries) != len(self.vectors):
            raise ValueError(f"{folder}: {len(self.entries)} texts and {len(self.vectors)} vectors; build it again")
        self.model = load_model(model or self.about["model"], device)
        self._identify = identifier_for(self.model)
        if self.model.get_embedding_dimension() not in (None, self.vectors.shape[1]):
            raise ValueError(
                f"{folder} was built with {self.about['model']} ({self.vectors.shape[1]} dimensions), the model given "
                f"has {self.model.get_embedding_dimension()}"
            )

    def search(self, queries: Sequence[str], k: int = 10, *, language: str | None = None) -> list[list[dict[str, Any]]]:
        """The best texts for each query, as {"score", "language", "text"}.

        For a model with a map per language, the language of a query is identified where none is given, if the extra
        `langid` is installed.
        """
        how: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
        languages: str | Sequence[str | None] | None = language
        if language is None and self._identify is not None:
            languages = [self._identify(query) for query in queries]
        asked = encode(self.model, list(queries), languages, role="query", **how)
        scores, rows = top_k(asked, self.vectors, min(k, len(self.entries)))
        return [
            [{"score": round(score, 4), **self.entries[row]} for score, row in zip(*found, strict=True)]
            for found in zip(scores.tolist(), rows.tolist(), strict=True)
        ]
