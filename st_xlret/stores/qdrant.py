"""Vectors in a collection of Qdrant: a folder of its local mode, or a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores import base
from st_xlret.stores.base import Change, Fields, Store

_MARKS = "st_xlret"  # in the metadata of a collection: name of a mapped vector -> by which map, and from which vector
_NUMBERS = 250_000  # in a request
_SECONDS = 60  # for an answer


class QdrantStore(Store):
    """The vectors of a collection, or those of one name."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, secrets = base.parse_address(address, "collection", optional=("vector", "api_key"))
        qdrant = import_optional("qdrant_client", extra="qdrant", needed_for="vectors in Qdrant")
        self.fields, self.models, self.collection = fields, qdrant.models, values["collection"]
        key = values.get("api_key") or os.environ.get("QDRANT_API_KEY")
        self.secrets = (*secrets, key) if key else secrets
        is_server = place.startswith(("http://", "https://"))
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
        self.model = base.named_model({"model": metadata.get("model")})
        self.dimension, self.metric = self.parameters.size, base.metric_of(self.parameters.distance.value, self.name)

    def __len__(self) -> int:
        return int(self.client.count(self.collection).count)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The points, by their ids."""
        paths = [path for name in (base.USUAL_FIELDS if texts else ["language"]) for path in self.fields.of(name)]
        return map(self._batch, self._raw([path.partition(".")[0] for path in paths]))

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new named vector of the same points (Qdrant 1.18), or a new collection where the vectors have no name.

        A collection whose vectors have no name stays one: with a second vector, programs would have to name the first.
        """
        models, only, gone = self.models, None, 0
        if self.parameters.datatype == models.Datatype.UINT8:
            raise ValueError(
                f"{self.name} holds whole numbers from 0 to 255, as which mapped vectors are zeros: map queries alone"
            )
        with self.errors():
            if self.vector:
                self._make_vector(into, mark)
                only = models.Filter(must_not=[models.HasVectorCondition(has_vector=into)])  # a stopped run goes on
            else:
                self._make_collection(into, mark)
            for records in self._raw(True, only):
                if not self.vector:
                    present = self.client.retrieve(into, [record.id for record in records], with_payload=False)
                    ids = {record.id for record in present}  # of a run that was stopped
                    records = [record for record in records if record.id not in ids]
                vectors = base.matrix(change(self._batch(records))).tolist()
                pairs = [
                    (record, vector) for record, vector in zip(records, vectors, strict=True) if vector[0] == vector[0]
                ]
                if pairs and self.vector:
                    points = [models.PointVectors(id=record.id, vector={into: vector}) for record, vector in pairs]
                    self.client.update_vectors(self.collection, points)
                elif pairs:
                    self.client.upsert(into, [self._point(record, vector) for record, vector in pairs])
                if pairs:
                    sent = models.HasIdCondition(has_id=[record.id for record, _ in pairs])
                    has_vector = [models.HasVectorCondition(has_vector=into)] * bool(self.vector)
                    place = self.collection if self.vector else into
                    stored = self.client.count(place, models.Filter(must=[sent, *has_vector])).count
                    present = self.client.count(place, models.Filter(must=[sent])).count if self.vector else len(pairs)
                    gone += self.count_gone(len(pairs), present, stored)
        return gone

    def close(self) -> None:
        """Let other programs use a folder of the local mode."""
        self.client.close()

    def _make_vector(self, into: str, mark: str) -> None:
        client, models, of = self.client, self.models, self.parameters
        is_taken = into in self.info.config.params.vectors or into in (self.info.config.params.sparse_vectors or {})
        self.refuse_taken(f"a vector {into}", is_taken, mark, self.marks.get(into))
        if not is_taken:
            # The mark first: a run that is stopped between the two would be refused as somebody else's.
            client.update_collection(self.collection, metadata={_MARKS: {**self.marks, into: mark}})
            config = models.DenseVectorConfig(size=of.size, distance=of.distance, datatype=of.datatype)
            client.create_vector_name(self.collection, into, models.DenseVectorNameConfig(dense=config))
            how = {name: getattr(of, name, None) for name in models.VectorParamsDiff.model_fields}
            client.update_collection(self.collection, vectors_config={into: models.VectorParamsDiff(**how)})

    def _make_collection(self, into: str, mark: str) -> None:
        client, models, config = self.client, self.models, self.info.config
        is_taken = client.collection_exists(into)
        marks = (client.get_collection(into).config.metadata or {}).get(_MARKS) if is_taken else None
        self.refuse_taken(f"a collection {into}", is_taken, mark, (marks or {}).get(""))
        if not is_taken:
            copied = ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
            client.create_collection(
                into,
                config.params.vectors,
                config.params.sparse_vectors,
                **{name: getattr(config.params, name) for name in copied},
                hnsw_config=models.HnswConfigDiff(**config.hnsw_config.model_dump()),
                optimizers_config=models.OptimizersConfigDiff(**config.optimizer_config.model_dump()),
                quantization_config=config.quantization_config,
                metadata={**(config.metadata or {}), _MARKS: {"": mark}},
            )
            for field, index in self.info.payload_schema.items():
                client.create_payload_index(into, field, index.params or index.data_type)

    def _point(self, record: Any, vector: list[float]) -> Any:
        """A point with another vector, beside the sparse ones that it has."""
        vectors = {**record.vector, "": vector} if isinstance(record.vector, dict) else vector
        return self.models.PointStruct(id=record.id, vector=vectors, payload=record.payload)

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
        beside = self.fields.in_payloads([record.payload for record in records])
        return base.rows_batch([record.id for record in records], vectors, beside)
