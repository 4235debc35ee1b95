"""Vectors in Chroma."""

from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores.address import parse_address
from st_xlret.stores.base import Change, Store
from st_xlret.stores.batches import batch_vectors, first_vector_length, make_batch
from st_xlret.stores.descriptions import metric_of, model_name_in
from st_xlret.stores.fields import Fields

_MARK = "st_xlret"  # in the metadata of a collection
_COLUMNS = ["embeddings", "metadatas", "documents"]


class ChromaStore(Store):
    """The vectors of a collection, in a folder or on a server."""

    def __init__(self, address: str, fields: Fields) -> None:
        parsed = parse_address(address, "collection")
        chroma = import_optional("chromadb", extra="chroma", needed_for="vectors in Chroma")
        self.name = parsed.shown
        self.name_in_store = parsed.options["collection"]
        self.secrets = parsed.secrets
        self.fields = fields
        with self.sanitize_errors():
            self.client = _client_of(chroma, parsed.place)
            self.collection = self.client.get_collection(
                self.name_in_store, embedding_function=None
            )
            first = self.collection.get(limit=1, include=["embeddings"])
            # `configuration` would make the embedding function.
            settings = self.collection.configuration_json
        self.dimension = first_vector_length(first["embeddings"])
        self.mark = (self.collection.metadata or {}).get(_MARK)
        self.space = (settings.get("hnsw") or {}).get("space", "l2")
        self.metric = metric_of(self.space, self.name)
        function = settings.get("embedding_function") or {}
        self.model = model_name_in(function.get("config") or {})

    def __len__(self) -> int:
        return int(self.collection.count())

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The entries, by their ids."""
        for entries in self._pages(without=()):
            yield self._as_batch(entries)

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new collection with the same ids, documents and metadata.

        An entry without a vector is left out.
        """
        with self.sanitize_errors():
            mapped = self._ensure_collection(into, mark)
            written = mapped.get(include=[])["ids"]
            for entries in self._pages(without=written):  # a stopped run goes on
                vectors = batch_vectors(change(self._as_batch(entries)))
                has_vector = ~np.isnan(vectors[:, 0])
                if has_vector.any():
                    entries["embeddings"] = vectors
                    self._copy(mapped, entries, has_vector)
        return 0

    def _ensure_collection(self, into: str, mark: str) -> Any:
        marks = {}
        for collection in self.client.list_collections():
            marks[collection.name] = (collection.metadata or {}).get(_MARK)
        self.refuse_taken(f"a collection {into}", into in marks, mark, marks.get(into))
        return self.client.get_or_create_collection(
            into,
            configuration={"hnsw": {"space": self.space}},
            metadata={**(self.collection.metadata or {}), _MARK: mark},
            embedding_function=None,
        )

    def _copy(self, mapped: Any, entries: Mapping[str, Any], is_chosen: Any) -> None:
        """Put some entries into the collection of mapped vectors."""
        sent = {name: list(compress(values, is_chosen)) for name, values in entries.items()}
        mapped.upsert(**sent)
        stored = mapped.get(ids=sent["ids"], include=[])["ids"]
        self.check_stored_rows(len(sent["ids"]), len(sent["ids"]), len(stored))

    def _pages(self, without: Any) -> Iterator[dict[str, Any]]:
        """The entries but some, by their ids: pages by offset move when entries come or go."""
        left_out = set(without)
        names = [name for name in self.collection.get(include=[])["ids"] if name not in left_out]
        size = min(self.size, self.client.get_max_batch_size())
        for start in range(0, len(names), size):
            entries = self.collection.get(ids=names[start : start + size], include=_COLUMNS)
            if entries["ids"]:
                yield {name: entries[name] for name in ("ids", *_COLUMNS)}

    def _as_batch(self, entries: Mapping[str, Any]) -> pa.RecordBatch:
        vectors = self.vector_column(entries["embeddings"])
        beside: dict[str, Any] = dict(self.fields.columns_of_payloads(entries["metadatas"]))
        if not self.fields.text:
            beside["text"] = entries["documents"]
        return make_batch(entries["ids"], vectors, beside)


def _client_of(chroma: Any, place: str) -> Any:
    url = urlsplit(place)
    if url.scheme in ("http", "https"):
        return chroma.HttpClient(url.hostname, url.port or 8000, ssl=url.scheme == "https")
    return chroma.PersistentClient(place)
