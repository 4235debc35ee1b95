"""Vectors in Chroma."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import compress
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores.address import parse_address
from st_xlret.stores.base import FIRST_ROWS, Change, Store
from st_xlret.stores.batches import (
    Matrix,
    batch_vectors,
    first_vector_length,
    make_batch,
    vector_column,
    vector_matrix,
)
from st_xlret.stores.descriptions import metric_of, model_name_in
from st_xlret.stores.fields import Fields
from st_xlret.stores.reruns import RerunCounts, due_rows

_ORIGIN = "st_xlret"  # in the metadata of a collection
_BESIDE = ("documents", "metadatas", "uris")
_COLUMNS = ["embeddings", *_BESIDE]
_INDEXES = ("hnsw", "spann")
_ANSWER = 60  # seconds for an answer of a server


class ChromaStore(Store):
    """The vectors of a collection, in a folder or on a server."""

    def __init__(self, address: str, fields: Fields) -> None:
        parsed = parse_address(address, "collection")
        chroma = import_optional("chromadb", extra="chroma", needed_for="vectors in Chroma")
        self.name = parsed.shown
        self.name_in_store = parsed.options["collection"]
        self.secrets = parsed.secrets
        self.fields = fields
        self.is_server = parsed.is_url
        with self.sanitize_errors():
            self.client = self._connect(chroma, parsed.place)
            self.collection = self._ask(
                self.client.get_collection, self.name_in_store, embedding_function=None
            )
            first = self._ask(self.collection.get, limit=1, include=["embeddings"])
            # `configuration` would make the embedding function.
            settings = self.collection.configuration_json
        self.dimension = first_vector_length(first["embeddings"])
        self.origin = (self.collection.metadata or {}).get(_ORIGIN)
        self.index = {kind: settings[kind] for kind in _INDEXES if settings.get(kind)}
        spaces = [settings.get("space", "l2") for settings in self.index.values()]
        self.metric = metric_of(next(iter(spaces), "l2"), self.name)
        function = settings.get("embedding_function") or {}
        self.model = model_name_in(function.get("config") or {})

    def __len__(self) -> int:
        return int(self._ask(self.collection.count))

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The entries, by their ids."""
        for entries in self._pages(self._ids_in(self.collection)):
            yield self._as_batch(entries)

    def first_rows(self) -> list[Mapping[str, Any]]:
        """The metadata of the first entries."""
        first = self._ask(self.collection.get, limit=FIRST_ROWS, include=["metadatas"])
        return [metadata or {} for metadata in first["metadatas"]]

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new collection with the same ids, documents, metadata and URIs.

        An entry without a vector is left out.
        """
        counts = RerunCounts()
        with self.sanitize_errors():
            mapped = self._ensure_collection(into, origin)
            ids = self._ids_in(self.collection)
            others = len(set(self._ids_in(mapped)) - set(ids))
            for entries in self._pages(ids):
                vectors = batch_vectors(change(self._as_batch(entries)))
                others += self._write_entries(mapped, entries, vectors, counts)
        self.warn_of_others(into, others)
        return counts

    def _ensure_collection(self, into: str, origin: str) -> Any:
        """The new collection, made or found with this origin."""
        origins = {}
        for collection in self._ask(self.client.list_collections):
            origins[collection.name] = (collection.metadata or {}).get(_ORIGIN)
        if into in origins and origins[into] != origin:
            raise self.name_taken(f"a collection {into}")
        return self._ask(
            self.client.get_or_create_collection,
            into,
            configuration=self.index,
            metadata={**(self.collection.metadata or {}), _ORIGIN: origin},
            embedding_function=None,
        )

    def _write_entries(
        self, mapped: Any, entries: dict[str, Any], vectors: Matrix, counts: RerunCounts
    ) -> int:
        """Write copies of some entries, where others are there or none.

        Gives how many copies there are of entries whose vector can no longer be mapped. What others
        have added to the metadata of a copy stays.
        """
        ids = entries["ids"]
        there = self._copies_there(mapped, ids)
        stored = [there[name]["embeddings"] if name in there else None for name in ids]
        due = due_rows(vectors, vector_matrix(stored, self.dimension), self.numbers)
        is_other = np.zeros(len(ids), bool)
        for row in np.flatnonzero(due.is_kept):
            entry = {name: entries[name][row] for name in _BESIDE}
            is_other[row] = _has_changed(entry, there[ids[row]])
        due = due.with_others(is_other)
        counts.add(due)
        is_sent = due.is_new | due.is_changed
        if is_sent.any():
            copies = {name: list(compress(entries[name], is_sent)) for name in ("ids", *_BESIDE)}
            self._write_copies(mapped, copies, vectors[is_sent])
        return int(due.is_stale.sum())

    def _copies_there(self, mapped: Any, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The copies of some entries, by their ids."""
        copies = self._ask(mapped.get, ids=ids, include=_COLUMNS)
        there = {}
        for row, name in enumerate(copies["ids"]):
            there[name] = {column: copies[column][row] for column in _COLUMNS}
        return there

    def _write_copies(self, mapped: Any, copies: dict[str, Any], vectors: Matrix) -> None:
        """Write copies of entries, with these vectors; an `OSError` if not all are there then."""
        ids = copies["ids"]
        metadata = [each or None for each in copies["metadatas"]]  # {} is refused
        self._ask(
            mapped.upsert,
            ids=ids,
            embeddings=vectors,
            documents=copies["documents"],
            uris=copies["uris"],
            metadatas=metadata,
        )
        stored = self._ask(mapped.get, ids=ids, include=[])["ids"]
        self.check_all_stored(len(ids), len(stored))

    def _ids_in(self, collection: Any) -> list[str]:
        """The ids of all entries, which are held in memory, without what belongs to them."""
        ids: list[str] = self._ask(collection.get, include=[])["ids"]
        return ids

    def _pages(self, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The entries by their ids: pages by offset move when entries come or go."""
        size = min(self.size, self._ask(self.client.get_max_batch_size))
        for start in range(0, len(ids), size):
            page = list(ids[start : start + size])
            entries: dict[str, Any] = self._ask(self.collection.get, ids=page, include=_COLUMNS)
            if entries["ids"]:
                yield entries

    def _as_batch(self, entries: Mapping[str, Any]) -> pa.RecordBatch:
        """Entries as `batches` gives them; their texts are documents, unless a field is named."""
        vectors = vector_column(self.checked_matrix(entries["ids"], entries["embeddings"]))
        beside: dict[str, Any] = dict(self.fields.columns_of_payloads(entries["metadatas"]))
        if not self.fields.text:
            beside["text"] = entries["documents"]
        return make_batch(entries["ids"], vectors, beside)

    def _connect(self, chroma: Any, place: str) -> Any:
        """The client of a folder or of a server, which is asked at once."""
        if not self.is_server:
            return chroma.PersistentClient(place)
        return self._ask(chroma.HttpClient, place, ssl=place.startswith("https://"))

    def _ask(self, function: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """Call the client, whose own requests wait for ever for a server that does not answer.

        All calls that reach a server go through here.
        """
        if not self.is_server:
            return function(*values, **named)
        return _answer_within(_ANSWER, partial(function, *values, **named))


def _has_changed(entry: Mapping[str, Any], copy: Mapping[str, Any]) -> bool:
    """Whether an entry has a text, an URI or metadata that its copy does not have."""
    for name in ("documents", "uris"):
        if entry[name] is not None and entry[name] != copy[name]:
            return True
    merged = {**(copy["metadatas"] or {}), **(entry["metadatas"] or {})}
    return merged != (copy["metadatas"] or {})


def _answer_within(seconds: float, ask: Callable[[], Any]) -> Any:
    """What `ask` gives or raises; a `TimeoutError` if that takes longer.

    It runs in a thread that keeps nobody from ending the program.
    """
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    if not wait([answer], seconds).done:
        raise TimeoutError(f"the server has not answered for {seconds:g} s")
    return answer.result()
