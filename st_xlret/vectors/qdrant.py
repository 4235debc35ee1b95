"""Vectors in a collection of Qdrant."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from st_xlret.optional import import_optional
from st_xlret.vectors.address import parse_address
from st_xlret.vectors.base import (
    LANGUAGE_FIELDS,
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

_METRICS: dict[str, Metric] = {"Cosine": "cosine", "Dot": "dot", "Euclid": "euclidean"}
METADATA = "st_xlret"
_NUMBERS = 250_000  # in a request
_SECONDS = 60  # for an answer


class QdrantVectors(VectorSource):
    """The vectors of a collection, or those of one name: in a folder of Qdrant's local mode, or on a server."""

    def __init__(self, source: str, fields: Fields) -> None:
        address = parse_address(source, "collection", optional=("vector", "api_key"))
        self.name, self.fields, self.secrets = address.shown, fields, address.secrets
        qdrant = import_optional("qdrant_client", extra="qdrant", needed_for="vectors in Qdrant")
        self.models = qdrant.models
        key = address.values.get("api_key") or os.environ.get("QDRANT_API_KEY")
        self.secrets += (key,) if key else ()
        is_url = address.place.startswith(("http://", "https://"))
        if not is_url and not os.path.isdir(address.place):
            raise FileNotFoundError(f"{self.name}: there is no such folder of Qdrant's local mode")
        where = {"url": address.place, "api_key": key, "timeout": _SECONDS} if is_url else {"path": address.place}
        self.collection = address.values["collection"]
        with self.errors():
            self.client = qdrant.QdrantClient(**where)
            self.info = self.client.get_collection(self.collection)
        config = self.info.config
        named = config.params.vectors if isinstance(config.params.vectors, dict) else {"": config.params.vectors}
        self.vector = address.values.get("vector", next(iter(named)) if len(named) == 1 else "")
        if not any(named.values()):
            raise ValueError(f"{self.name}: the collection has no dense vectors")
        if self.vector not in named:
            known = ", ".join(name or "(without a name)" for name in named)
            raise ValueError(f"{self.name}: name one of the collection's vectors, with &vector=...: {known}")
        self.parameters, self.known = named[self.vector], set(named)
        metadata = config.metadata or {}
        self.model = named_model({"model": metadata.get("model")})
        self.marks: dict[str, str] = metadata.get(METADATA) or {}
        self.called, self.mark = self.vector or self.collection, self.marks.get(self.vector)
        if self.parameters.multivector_config:
            raise ValueError(f"{self.name}: a point has several vectors; one for each point is needed")
        self.dimension, self.metric = self.parameters.size, _METRICS.get(self.parameters.distance.value)

    def __len__(self) -> int:
        with self.errors():
            return int(self.client.count(self.collection).count)

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The points, by their ids."""
        named = [self.fields.language] if self.fields.language else list(LANGUAGE_FIELDS)
        wanted = [name.partition(".")[0] for name in (*named, self.fields.document) if name]
        place = None
        while True:
            records, place = self.client.scroll(
                self.collection,
                limit=max(1, min(size, _NUMBERS // self.dimension)),
                offset=place,
                with_payload=True if everything else wanted,
                with_vectors=[self.vector] if self.vector else True,
            )
            if records:
                payloads = [record.payload for record in records]
                nothing: list[str | None] = [None] * len(records)
                yield VectorRows(
                    [record.id for record in records],
                    self._vectors([record.vector for record in records]),
                    [value_at(payload, self.fields.language) for payload in payloads],
                    [value_at(each, self.fields.text, ("text",)) for each in payloads] if everything else nothing,
                    [value_at(payload, self.fields.document, ()) for payload in payloads],
                    records,
                )
            if place is None:
                return

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new named vector of the same points (Qdrant 1.18), or a new collection where the vectors have no name.

        A collection whose vectors have no name stays one: with a second vector, programs would have to name the first.
        """
        return _NamedVector(self, name, mark) if self.vector else _Collection(self, name, mark)

    def payload_fields(self) -> list[str]:
        """The fields of the first 256 points."""
        with self.errors():
            return fields_among(record.payload for record in self.client.scroll(self.collection, limit=256)[0])

    def close(self) -> None:
        """Let other programs use a folder of the local mode."""
        self.client.close()

    def _vectors(self, found: Sequence[Any]) -> NDArray[np.float32]:
        vectors = np.full((len(found), self.dimension), np.nan, np.float32)
        for row, vector in enumerate(found):
            own = vector.get(self.vector) if isinstance(vector, dict) else vector
            if own is not None:
                vectors[row] = own
        return vectors


class _QdrantTarget(VectorTarget):
    continues = True

    def __init__(self, source: QdrantVectors, called: str, mark: str) -> None:
        self.source, self.called, self.mark = source, called, mark
        self.client, self.collection, self.models = source.client, source.collection, source.models


class _NamedVector(_QdrantTarget):
    def __init__(self, source: QdrantVectors, called: str, mark: str) -> None:
        super().__init__(source, called, mark)
        self.name = f"the named vector {called} of {source.collection}"
        self.switch, self.back = (
            f'client.query_points("{source.collection}", query=query, using="{name}")'
            for name in (called, source.vector)
        )
        if called in source.known:
            if source.marks.get(called) != mark:
                raise taken(source.name, f"a vector {called}")
            self.already = self.client.count(self.collection, count_filter=self._having()).count

    def __enter__(self) -> VectorTarget:
        if self.called not in self.source.known:
            of = self.source.parameters
            config = self.models.DenseVectorConfig(size=of.size, distance=of.distance, datatype=of.datatype)
            with self.source.errors():
                marks = {**self.source.marks, self.called: self.mark}
                self.client.update_collection(self.collection, metadata={METADATA: marks})
                self.client.create_vector_name(
                    self.collection, self.called, self.models.DenseVectorNameConfig(dense=config)
                )
                how = {name: getattr(of, name, None) for name in self.models.VectorParamsDiff.model_fields}
                self.client.update_collection(
                    self.collection, vectors_config={self.called: self.models.VectorParamsDiff(**how)}
                )
        return self

    def write(self, rows: VectorRows) -> None:
        rows = rows.of(~np.isnan(rows.vectors[:, 0]))
        vectors = dict(zip(rows.ids, rows.vectors.tolist(), strict=True))
        there = {record.id for record in self.client.retrieve(self.collection, list(vectors), with_payload=False)}
        points = [
            self.models.PointVectors(id=name, vector={self.called: vector})
            for name, vector in vectors.items()
            if name in there  # not deleted meanwhile
        ]
        if points:
            self.client.update_vectors(self.collection, points)

    def there(self, ids: list[Any]) -> set[Any]:
        only = self._having(self.models.HasIdCondition(has_id=ids))
        found, _ = self.client.scroll(self.collection, only, limit=len(ids), with_payload=False)
        return {record.id for record in found}

    def _having(self, *more: Any) -> Any:
        return self.models.Filter(must=[self.models.HasVectorCondition(has_vector=self.called), *more])


class _Collection(_QdrantTarget):
    everything = True

    def __init__(self, source: QdrantVectors, called: str, mark: str) -> None:
        super().__init__(source, called, mark)
        if source.info.config.params.sharding_method == "custom":
            raise ValueError(
                f"{source.name}: a new collection would lose the keys of this one's shards: give its vectors a name"
            )
        self.name = f"the collection {called}"
        self.switch, self.back = (f'client.query_points("{name}", query=query)' for name in (called, source.collection))
        with source.errors():
            self.is_new = not self.client.collection_exists(called)
            if not self.is_new:
                if (self.client.get_collection(called).config.metadata or {}).get(METADATA) != {"": mark}:
                    raise taken(source.name, f"a collection {called}")
                self.already = self.client.count(called).count

    def __enter__(self) -> VectorTarget:
        if self.is_new:
            with self.source.errors():
                config = self.source.info.config
                kept = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
                self.client.create_collection(
                    self.called,
                    config.params.vectors,
                    config.params.sparse_vectors,
                    **{name: getattr(config.params, name) for name in kept},
                    hnsw_config=self.models.HnswConfigDiff(**config.hnsw_config.model_dump()),
                    optimizers_config=self.models.OptimizersConfigDiff(**config.optimizer_config.model_dump()),
                    quantization_config=config.quantization_config,
                    metadata={**(config.metadata or {}), METADATA: {"": self.mark}},
                )
                for field, index in self.source.info.payload_schema.items():
                    self.client.create_payload_index(self.called, field, index.params or index.data_type)
        return self

    def write(self, rows: VectorRows) -> None:
        rows = rows.of(~np.isnan(rows.vectors[:, 0]))
        points = []
        for record, vector in zip(rows.records, rows.vectors.tolist(), strict=True):
            all_vectors = {**record.vector, "": vector} if isinstance(record.vector, dict) else vector  # sparse ones
            points.append(self.models.PointStruct(id=record.id, vector=all_vectors, payload=record.payload))
        if points:
            self.client.upsert(self.called, points)

    def there(self, ids: list[Any]) -> set[Any]:
        return {record.id for record in self.client.retrieve(self.called, ids, with_payload=False)}
