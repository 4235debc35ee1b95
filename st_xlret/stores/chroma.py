"""Vectors in a collection of Chroma."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores import base
from st_xlret.stores.base import Change, Fields, Store

_MARK = "st_xlret"  # in the metadata of a mapped collection


class ChromaStore(Store):
    """The vectors of a collection, in a folder or on a server."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, self.secrets = base.parse_address(address, "collection")
        self.fields, self.called = fields, values["collection"]
        chroma = import_optional("chromadb", extra="chroma", needed_for="vectors in Chroma")
        url = urlsplit(place)
        with self.errors():
            if url.scheme in ("http", "https"):
                self.client = chroma.HttpClient(url.hostname, url.port or 8000, ssl=url.scheme == "https")
            else:
                self.client = chroma.PersistentClient(place)
            self.collection = self.client.get_collection(self.called, embedding_function=None)
            first = self.collection.get(limit=1, include=["embeddings"])["embeddings"]
            settings = self.collection.configuration_json  # `configuration` would make the embedding function
        self.dimension = base.first_length(first, self.name)
        self.mark = (self.collection.metadata or {}).get(_MARK)
        self.space = (settings.get("hnsw") or {}).get("space", "l2")
        self.metric = base.metric_of(self.space, self.name)
        self.model = base.named_model((settings.get("embedding_function") or {}).get("config") or {})

    def __len__(self) -> int:
        return int(self.collection.count())

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The entries, by their ids."""
        return map(self._batch, self._raw())

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new collection with the same ids, documents and metadata; an entry without a vector is left out."""
        gone = 0
        with self.errors():
            marks = {each.name: (each.metadata or {}).get(_MARK) for each in self.client.list_collections()}
            self.refuse_taken(f"a collection {into}", into in marks, mark, marks.get(into))
            mapped = self.client.get_or_create_collection(
                into,
                configuration={"hnsw": {"space": self.space}},
                metadata={**(self.collection.metadata or {}), _MARK: mark},
                embedding_function=None,
            )
            for entries in self._raw():
                present = set(mapped.get(ids=entries["ids"], include=[])["ids"])  # of a run that was stopped
                missing = _chosen(entries, [name not in present for name in entries["ids"]])
                vectors = base.matrix(change(self._batch(missing)))
                has_vector = ~np.isnan(vectors[:, 0])
                if has_vector.any():
                    sent = _chosen(missing, has_vector) | {"embeddings": vectors[has_vector]}
                    mapped.upsert(**sent)
                    stored = len(mapped.get(ids=sent["ids"], include=[])["ids"])
                    gone += self.count_gone(len(sent["ids"]), len(sent["ids"]), stored)
        return gone

    def _raw(self) -> Iterator[dict[str, Any]]:
        size, columns = min(self.size, self.client.get_max_batch_size()), ["embeddings", "metadatas", "documents"]
        names = self.collection.get(include=[])["ids"]  # pages by offset would move when entries come or go
        for start in range(0, len(names), size):
            if (entries := self.collection.get(ids=names[start : start + size], include=columns))["ids"]:
                yield {name: entries[name] for name in ("ids", *columns)}

    def _batch(self, entries: dict[str, Any]) -> pa.RecordBatch:
        vectors = np.asarray(entries["embeddings"], np.float32).reshape(-1, self.dimension)
        texts = {} if self.fields.text else {"text": entries["documents"]}
        return base.rows_batch(entries["ids"], vectors, self.fields.in_payloads(entries["metadatas"]) | texts)


def _chosen(entries: dict[str, Any], is_chosen: Iterable[Any]) -> dict[str, Any]:
    return {name: list(compress(values, is_chosen)) for name, values in entries.items()}
