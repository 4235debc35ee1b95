"""Vectors in a collection of Chroma."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores.base import (
    METRICS,
    Change,
    Fields,
    Store,
    check_folder,
    check_name,
    first_length,
    matrix,
    named_model,
    parse_address,
    rows_batch,
    value_at,
)

_MARK = "st_xlret"  # in the metadata of a mapped collection


class ChromaStore(Store):
    """The vectors of a collection, in a folder or on a server."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, self.secrets = parse_address(address, "collection")
        self.fields, self.called = fields, values["collection"]
        chroma = import_optional("chromadb", extra="chroma", needed_for="vectors in Chroma")
        url = urlsplit(place)
        is_server = url.scheme in ("http", "https")
        if not is_server:
            check_folder(place, self.name)
        with self.errors():
            self.client = (
                chroma.HttpClient(url.hostname, url.port or 8000, ssl=url.scheme == "https")
                if is_server
                else chroma.PersistentClient(place)
            )
            self.collection = self.client.get_collection(self.called, embedding_function=None)
            first = self.collection.get(limit=1, include=["embeddings"])["embeddings"]
            settings = self.collection.configuration_json  # `configuration` would make the embedding function
        self.dimension = first_length(first, self.name)
        self.mark = (self.collection.metadata or {}).get(_MARK)
        self.space = (settings.get("hnsw") or {}).get("space", "l2")
        self.metric = METRICS.get(self.space)
        self.model = named_model((settings.get("embedding_function") or {}).get("config") or {})

    def __len__(self) -> int:
        return int(self.collection.count())

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The entries, by their ids."""
        for rows in self._raw():
            yield self._batch(rows)

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new collection with the same ids, documents and metadata; an entry without a vector is left out."""
        with self.errors():
            marks = {each.name: (each.metadata or {}).get(_MARK) for each in self.client.list_collections()}
            check_name(self.name, f"a collection {into}", is_taken=into in marks, mark=mark, mark_there=marks.get(into))
            mapped = self.client.get_or_create_collection(
                into,
                configuration={"hnsw": {"space": self.space}},
                metadata={**(self.collection.metadata or {}), _MARK: mark},
                embedding_function=None,
            )
            for rows in self._raw():
                present = set(mapped.get(ids=rows["ids"], include=[])["ids"])  # of a run that was stopped
                missing = [row for row, name in enumerate(rows["ids"]) if name not in present]
                vectors = matrix(change(self._batch(rows).take(missing))) if missing else np.empty((0, 1))
                has_vector = ~np.isnan(vectors[:, 0])
                chosen = [row for row, has in zip(missing, has_vector.tolist(), strict=True) if has]
                if chosen:
                    columns = {name: [rows[name][row] for row in chosen] for name in ("ids", "metadatas", "documents")}
                    mapped.upsert(**columns, embeddings=vectors[has_vector])

    def _raw(self) -> Iterator[Any]:
        start, size = 0, min(self.size, self.client.get_max_batch_size())
        include = ["embeddings", "metadatas", "documents"]
        while (rows := self.collection.get(limit=size, offset=start, include=include))["ids"]:
            yield rows
            start += len(rows["ids"])

    def _batch(self, rows: Any) -> pa.RecordBatch:
        texts = rows["documents"]
        if self.fields.text:
            texts = [value_at(each, self.fields.text) for each in rows["metadatas"]]
        codes = [value_at(each, self.fields.language) for each in rows["metadatas"]]
        return rows_batch(rows["ids"], np.asarray(rows["embeddings"], np.float32), codes, texts)
