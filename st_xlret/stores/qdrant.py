"""Vectors in a collection of Qdrant: a folder of its local mode, or a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores.base import (
    LANGUAGE_FIELDS,
    METRICS,
    Change,
    Fields,
    Store,
    check_folder,
    check_name,
    matrix,
    named_model,
    parse_address,
    rows_batch,
    value_at,
)

_MARKS = "st_xlret"  # in the metadata of a collection: name of a mapped vector -> by which map, and from which vector
_NUMBERS = 250_000  # in a request
_SECONDS = 60  # for an answer


class QdrantStore(Store):
    """The vectors of a collection, or those of one name."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, secrets = parse_address(address, "collection", optional=("vector", "api_key"))
        qdrant = import_optional("qdrant_client", extra="qdrant", needed_for="vectors in Qdrant")
        self.fields, self.models, self.collection = fields, qdrant.models, values["collection"]
        key = values.get("api_key") or os.environ.get("QDRANT_API_KEY")
        self.secrets = (*secrets, key) if key else secrets
        is_server = place.startswith(("http://", "https://"))
        if not is_server:
            check_folder(place, self.name)
        where = {"url": place, "api_key": key, "timeout": _SECONDS} if is_server else {"path": place}
        with self.errors():
            self.client = qdrant.QdrantClient(**where)
            self.info = self.client.get_collection(self.collection)
        config = self.info.config
        dense = config.params.vectors if isinstance(config.params.vectors, dict) else {"": config.params.vectors}
        dense = {name: each for name, each in dense.items() if each and not each.multivector_config}
        self.vector = values.get("vector", next(iter(dense)) if len(dense) == 1 else "")
        if self.vector not in dense:
            names = ", ".join(name or "(without a name)" for name in dense) or "none"
            raise ValueError(f"{self.name}: name one of its vectors, of which a point has one, by &vector=...: {names}")
        self.parameters, metadata = dense[self.vector], config.metadata or {}
        self.marks: dict[str, str] = metadata.get(_MARKS) or {}
        self.called, self.mark = self.vector or self.collection, self.marks.get(self.vector)
        self.model = named_model({"model": metadata.get("model")})
        self.dimension, self.metric = self.parameters.size, METRICS.get(self.parameters.distance.value.lower())

    def __len__(self) -> int:
        return int(self.client.count(self.collection).count)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The points, by their ids."""
        wanted = [self.fields.language] if self.fields.language else list(LANGUAGE_FIELDS)
        wanted += [self.fields.text or "text"] * texts
        for records in self._raw([name.partition(".")[0] for name in wanted]):
            yield self._batch(records)

    def write(self, into: str, mark: str, change: Change) -> None:
        """A new named vector of the same points (Qdrant 1.18), or a new collection where the vectors have no name.

        A collection whose vectors have no name stays one: with a second vector, programs would have to name the first.
        """
        with self.errors():
            write = self._write_named_vector if self.vector else self._write_collection
            write(into, mark, change)

    def close(self) -> None:
        """Let other programs use a folder of the local mode."""
        self.client.close()

    def _write_named_vector(self, into: str, mark: str, change: Change) -> None:
        client, models, collection = self.client, self.models, self.collection
        vectors = self.info.config.params.vectors
        is_taken = into in vectors or into in (self.info.config.params.sparse_vectors or {})
        check_name(self.name, f"a vector {into}", is_taken=is_taken, mark=mark, mark_there=self.marks.get(into))
        if not is_taken:
            # The mark first: a run that is stopped between the two would be refused as somebody else's.
            client.update_collection(collection, metadata={_MARKS: {**self.marks, into: mark}})
            of = self.parameters
            config = models.DenseVectorConfig(size=of.size, distance=of.distance, datatype=of.datatype)
            client.create_vector_name(collection, into, models.DenseVectorNameConfig(dense=config))
            how = {name: getattr(of, name, None) for name in models.VectorParamsDiff.model_fields}
            client.update_collection(collection, vectors_config={into: models.VectorParamsDiff(**how)})
        missing = models.Filter(must_not=[models.HasVectorCondition(has_vector=into)])  # a stopped run goes on
        for records in self._raw(True, missing):
            vectors = matrix(change(self._batch(records))).tolist()
            points = [
                models.PointVectors(id=record.id, vector={into: vector})
                for record, vector in zip(records, vectors, strict=True)
                if vector[0] == vector[0]  # not NaN
            ]
            if points:
                client.update_vectors(collection, points)

    def _write_collection(self, into: str, mark: str, change: Change) -> None:
        client, models, config = self.client, self.models, self.info.config
        is_taken = client.collection_exists(into)
        metadata = (client.get_collection(into).config.metadata or {}) if is_taken else {}
        mark_there = (metadata.get(_MARKS) or {}).get("")
        check_name(self.name, f"a collection {into}", is_taken=is_taken, mark=mark, mark_there=mark_there)
        if not is_taken:
            kept = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
            client.create_collection(
                into,
                config.params.vectors,
                config.params.sparse_vectors,
                **{name: getattr(config.params, name) for name in kept},
                hnsw_config=models.HnswConfigDiff(**config.hnsw_config.model_dump()),
                optimizers_config=models.OptimizersConfigDiff(**config.optimizer_config.model_dump()),
                quantization_config=config.quantization_config,
                metadata={**(config.metadata or {}), _MARKS: {"": mark}},
            )
            for field, index in self.info.payload_schema.items():
                client.create_payload_index(into, field, index.params or index.data_type)
        for records in self._raw(True):
            present = {record.id for record in client.retrieve(into, [each.id for each in records], with_payload=False)}
            missing = [record for record in records if record.id not in present]  # of a run that was stopped
            vectors = matrix(change(self._batch(missing))).tolist() if missing else []
            points = [
                models.PointStruct(id=record.id, vector=_beside_sparse(record.vector, vector), payload=record.payload)
                for record, vector in zip(missing, vectors, strict=True)
                if vector[0] == vector[0]  # not NaN
            ]
            if points:
                client.upsert(into, points)

    def _raw(self, payload: Any, only: Any = None) -> Iterator[list[Any]]:
        limit, place = max(1, min(self.size, _NUMBERS // self.dimension)), None
        vectors = [self.vector] if self.vector else True
        while True:
            records, place = self.client.scroll(
                self.collection, only, limit=limit, offset=place, with_payload=payload, with_vectors=vectors
            )
            if records:
                yield records
            if place is None:
                return

    def _batch(self, records: list[Any]) -> pa.RecordBatch:
        vectors = np.full((len(records), self.dimension), np.nan, np.float32)
        for row, record in enumerate(records):
            vector = record.vector.get(self.vector) if isinstance(record.vector, dict) else record.vector
            if vector is not None:
                vectors[row] = vector
        payloads = [record.payload for record in records]
        return rows_batch(
            [record.id for record in records],
            vectors,
            [value_at(payload, self.fields.language) for payload in payloads],
            [value_at(payload, self.fields.text, ("text",)) for payload in payloads],
        )


def _beside_sparse(stored: Any, vector: list[float]) -> Any:
    """The vector of a point, beside the sparse ones that it has."""
    return {**stored, "": vector} if isinstance(stored, dict) else vector
