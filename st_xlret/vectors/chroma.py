"""Vectors in a collection of Chroma."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np

from st_xlret.optional import import_optional
from st_xlret.vectors.address import parse_address
from st_xlret.vectors.base import (
    Fields,
    Metric,
    VectorRows,
    VectorSource,
    VectorTarget,
    fields_among,
    named_model,
    taken,
    value_at,
)

_METRICS: dict[str, Metric] = {"cosine": "cosine", "ip": "dot", "l2": "euclidean"}
_SECONDS = 60  # for an answer


class ChromaVectors(VectorSource):
    """The vectors of a collection, in a folder or on a server."""

    def __init__(self, source: str, fields: Fields) -> None:
        address = parse_address(source, "collection")
        self.name, self.fields, self.secrets = address.shown, fields, address.secrets
        chroma = import_optional("chromadb", extra="chroma", needed_for="vectors in Chroma")
        url = urlsplit(address.place)
        if url.scheme not in ("http", "https") and not os.path.isdir(address.place):
            raise FileNotFoundError(f"{self.name}: there is no such folder of Chroma")
        with self.errors():
            if url.scheme in ("http", "https"):
                host, port = url.hostname, url.port or 8000
                with suppress(HTTPError):  # a refusal is an answer, which Chroma's client would wait for without end
                    urlopen(f"{url.scheme}://{host}:{port}/api/v2/heartbeat", timeout=_SECONDS).close()
                self.client = chroma.HttpClient(host, port, ssl=url.scheme == "https")
            else:
                self.client = chroma.PersistentClient(address.place)
            self.collection = self.client.get_collection(address.values["collection"], embedding_function=None)
            first = self.collection.get(limit=1, include=["embeddings"])["embeddings"]
        if not len(first):
            raise ValueError(f"{self.name}: the collection is empty")
        self.dimension = len(first[0])
        self.called, self.mark = self.collection.name, (self.collection.metadata or {}).get("st_xlret")
        settings = self.collection.configuration_json  # `configuration` would make the embedding function
        self.space = (settings.get("hnsw") or {}).get("space", "l2")
        self.metric = _METRICS.get(self.space)
        self.model = named_model((settings.get("embedding_function") or {}).get("config") or {})

    def __len__(self) -> int:
        with self.errors():
            return int(self.collection.count())

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The entries, by their ids."""
        start, size = 0, min(size, self.client.get_max_batch_size())
        include = ["embeddings", "metadatas", "documents"]
        while (found := self.collection.get(limit=size, offset=start, include=include))["ids"]:
            codes = [value_at(about, self.fields.language) for about in found["metadatas"]]
            sources = [value_at(about, self.fields.document, ()) for about in found["metadatas"]]
            texts = found["documents"]
            if self.fields.text:
                texts = [value_at(about, self.fields.text) for about in found["metadatas"]]
            records = list(zip(found["metadatas"], found["documents"], strict=True))
            vectors = np.asarray(found["embeddings"], np.float32)
            yield VectorRows(found["ids"], vectors, codes, texts, sources, records)
            start += len(codes)

    def payload_fields(self) -> list[str]:
        """The fields of the first 256 entries."""
        with self.errors():
            return fields_among(self.collection.get(limit=256, include=["metadatas"])["metadatas"])

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new collection with the same ids, documents and metadata; an entry without a vector is left out."""
        return _Collection(self, name, mark)


class _Collection(VectorTarget):
    continues = True
    everything = True

    def __init__(self, source: ChromaVectors, name: str, mark: str) -> None:
        self.source, self.called, self.mark = source, name, mark
        self.name = f"the collection {name}"
        self.switch, self.back = (f'collection = client.get_collection("{called}")' for called in (name, source.called))
        with source.errors():
            known = next((each for each in source.client.list_collections() if each.name == name), None)
        if known is not None:
            if (known.metadata or {}).get("st_xlret") != mark:
                raise taken(source.name, f"a collection {name}")
            self.already = known.count()

    def __enter__(self) -> VectorTarget:
        about = {**(self.source.collection.metadata or {}), "st_xlret": self.mark}
        with self.source.errors():
            self.collection = self.source.client.get_or_create_collection(
                self.called,
                configuration={"hnsw": {"space": self.source.space}},
                metadata=about,
                embedding_function=None,
            )
        return self

    def there(self, ids: list[Any]) -> set[Any]:
        return set(self.collection.get(ids=ids, include=[])["ids"])

    def write(self, rows: VectorRows) -> None:
        rows = rows.of(~np.isnan(rows.vectors[:, 0]))
        if rows.ids:
            metadatas, documents = zip(*rows.records, strict=True)
            self.collection.upsert(
                list(rows.ids), embeddings=rows.vectors, metadatas=list(metadatas), documents=list(documents)
            )
