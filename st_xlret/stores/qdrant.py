"""Vectors in Qdrant."""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from st_xlret.field_names import find_fields
from st_xlret.optional import import_optional
from st_xlret.stores.address import parse_address
from st_xlret.stores.base import FIRST_ROWS, Change, Store
from st_xlret.stores.batches import (
    Matrix,
    batch_vectors,
    make_batch,
    vector_column,
    vector_matrix,
)
from st_xlret.stores.descriptions import metric_of, model_name_in
from st_xlret.stores.fields import OF_SAMPLES, USUAL_FIELDS, Fields, named_field
from st_xlret.stores.reruns import RerunCounts, due_rows

_ORIGINS = "st_xlret"  # in the metadata of a collection: the origins of its mapped vectors by name
_NUMBERS = 250_000  # in a request
_ANSWER = 60  # seconds for an answer
_COPIED_PARAMETERS = (
    "shard_number",
    "replication_factor",
    "write_consistency_factor",
    "on_disk_payload",
)


class QdrantStore(Store):
    """The vectors of a collection, or those of one name."""

    def __init__(self, address: str, fields: Fields) -> None:
        parsed = parse_address(address, "collection", optional=("vector", "api_key"))
        qdrant = import_optional("qdrant_client", extra="qdrant", needed_for="vectors in Qdrant")
        self.name = parsed.shown
        self.fields = fields
        self.models = qdrant.models
        self.collection = parsed.options["collection"]
        key = parsed.options.get("api_key") or os.environ.get("QDRANT_API_KEY")
        self.secrets = (*parsed.secrets, key) if key else parsed.secrets
        with self.sanitize_errors():
            if parsed.is_url:
                self.client = qdrant.QdrantClient(url=parsed.place, api_key=key, timeout=_ANSWER)
            else:
                self.client = qdrant.QdrantClient(path=parsed.place)
            self.info = self.client.get_collection(self.collection)
        config = self.info.config
        dense = _dense_vectors(config.params.vectors)
        self.vector = _name_of_vector(dense, parsed.options.get("vector"), self.name)
        self.parameters = dense[self.vector]
        self.name_in_store = self.vector or self.collection
        metadata = config.metadata or {}
        self.origin = (metadata.get(_ORIGINS) or {}).get(self.vector)
        self.model = model_name_in({"model": metadata.get("model")})
        self.dimension = self.parameters.size
        self.metric = metric_of(self.parameters.distance.value, self.name)
        if self.parameters.datatype == self.models.Datatype.FLOAT16:
            self.numbers = np.float16

    def __len__(self) -> int:
        return int(self.client.count(self.collection).count)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The points, by their ids."""
        for records in self._scroll(self._payload_names(texts), [self.vector]):
            yield self._as_batch(records)

    def _payload_names(self, texts: bool) -> list[str]:
        """The fields of the payload that are read, as they are spelled here."""
        wanted = set()
        for what in USUAL_FIELDS if texts else OF_SAMPLES:
            wanted |= {path.partition(".")[0] for path in self.fields.paths(what)}
        present: set[str] = set()
        for payload in self.first_rows():
            present |= set(payload)
        return sorted(wanted | set(find_fields(present, wanted)))

    def first_rows(self) -> list[Mapping[str, Any]]:
        """The payloads of the first points."""
        records, _ = self.client.scroll(self.collection, limit=FIRST_ROWS)
        return [record.payload or {} for record in records]

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new named vector of the same points (Qdrant 1.18), or a new collection.

        The latter where the vectors have no name. Such a collection stays one: with a second
        vector, programs would have to name the first.
        """
        if self.parameters.datatype == self.models.Datatype.UINT8:
            raise ValueError(
                f"{self.name} holds numbers from 0 to 255, and mapped ones would be 0: "
                "map queries alone"
            )
        target: _Target = _NewCollection(self, into)
        if self.vector:
            target = _NewVector(self, into)
        counts = RerunCounts()
        mapped_points = 0
        with self.sanitize_errors():
            target.make(origin)
            for records in self._scroll(True, [self.vector, into]):
                mapped = batch_vectors(change(self._as_batch(records)))
                mapped_points += int((~np.isnan(mapped[:, 0])).sum())
                self._write_records(target, records, mapped, counts)
            target.warn_of_others(mapped_points)
        return counts

    def _write_records(
        self,
        target: "_Target",
        records: Sequence[Any],
        mapped: Matrix,
        counts: RerunCounts,
    ) -> None:
        """Write the mapped vectors of some records, where others are there or none; count them."""
        compared = mapped
        if self.metric == "cosine":  # Qdrant keeps them so
            compared = mapped / np.linalg.norm(mapped, axis=1, keepdims=True)
        there = vector_matrix(target.stored_vectors(records), self.dimension)
        due = due_rows(compared, there, self.numbers).with_others(target.changed_payloads(records))
        target.remove_vectors([records[row].id for row in np.flatnonzero(due.is_stale).tolist()])
        places = np.flatnonzero(due.is_new | due.is_changed).tolist()
        is_gone = np.zeros(len(records), bool)
        if places:
            sent = [records[row] for row in places]
            target.send_vectors(sent, mapped[places].tolist())
            present, stored = target.find_stored([record.id for record in sent])
            self.check_all_stored(len(present), stored)
            is_gone[places] = [record.id not in present for record in sent]
        counts.add(due, is_gone)

    def close(self) -> None:
        """Let other programs use a folder of the local mode."""
        self.client.close()

    def _scroll(self, payload: Any, vectors: list[str]) -> Iterator[list[Any]]:
        """All records, page after page, by their ids."""
        limit = max(1, min(self.size, _NUMBERS // self.dimension))
        place = None
        while True:
            records, place = self.client.scroll(
                self.collection,
                limit=limit,
                offset=place,
                with_payload=payload,
                with_vectors=vectors if self.vector else True,
            )
            if records:
                yield records
            if place is None:
                return

    def _as_batch(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Records, read with the vector that is mapped and their payload, as `batches` has them."""
        ids = [record.id for record in records]
        vectors = [_vector_of(record, self.vector) for record in records]
        beside = self.fields.columns_of_payloads([record.payload for record in records])
        return make_batch(ids, vector_column(self.checked_matrix(ids, vectors)), beside)


def _vector_of(record: Any, name: str) -> Any:
    """The vector of a name that a record was read with, or its only one; None without it."""
    if isinstance(record.vector, dict):
        return record.vector.get(name)
    return record.vector


def _name_of_vector(dense: Collection[str], named: str | None, store: str) -> str:
    """The name of the vectors that are meant, by default of the only ones; "" for no name."""
    name = named
    if name is None:
        name = next(iter(dense)) if len(dense) == 1 else ""
    return named_field(dense, name, f"{store}, of whose vectors &vector=... names one,")


def _dense_vectors(parameters: Any) -> dict[str, Any]:
    """The vectors of a collection that are one for each point, by their names; "" for no name."""
    named = parameters if isinstance(parameters, dict) else {"": parameters}
    dense = {}
    for name, each in named.items():
        if each and not each.multivector_config:
            dense[name] = each
    return dense


class _Target(ABC):
    """Where mapped vectors go: `make` it first, `warn_of_others` last."""

    def __init__(self, store: QdrantStore, into: str) -> None:
        self.store = store
        self.client = store.client
        self.models = store.models
        self.into = into

    @abstractmethod
    def make(self, origin: str) -> None:
        """Make it, like what is mapped, if it is not there with this origin.

        A `FileExistsError` is of one that is there with another.
        """

    @abstractmethod
    def stored_vectors(self, records: Sequence[Any]) -> list[Any]:
        """The mapped vector that is there for each of some records, or None.

        The records were read with the vector `into`, if they have it.
        """

    @abstractmethod
    def changed_payloads(self, records: Sequence[Any]) -> NDArray[np.bool_]:
        """Whether each record, (n,), has a payload to be sent although its vector stays."""

    @abstractmethod
    def remove_vectors(self, ids: list[Any]) -> None:
        """Remove mapped vectors of points whose own can no longer be mapped, if any goes."""

    @abstractmethod
    def send_vectors(self, records: list[Any], vectors: list[list[float]]) -> None:
        """Write the mapped vectors of some records in the place of others or none."""

    @abstractmethod
    def find_stored(self, ids: list[Any]) -> tuple[set[Any], int]:
        """Which of the points that were sent are there still, and how many have the vector."""

    @abstractmethod
    def warn_of_others(self, count: int) -> None:
        """Warn if there are more points than `count`, those with a mapped vector."""

    def _count_points(self, collection: str, *conditions: Any) -> int:
        """How many points of a collection meet all conditions."""
        only = self.models.Filter(must=list(conditions))
        return int(self.client.count(collection, only).count)


class _NewVector(_Target):
    """A named vector of the same points."""

    def make(self, origin: str) -> None:
        """Make the vector, like the one that is mapped, if it is not there with this origin."""
        client = self.client
        collection = self.store.collection
        # Others may have added vectors since the store was opened.
        config = client.get_collection(collection).config
        origins = (config.metadata or {}).get(_ORIGINS) or {}
        sparse = config.params.sparse_vectors or {}
        if self.into in config.params.vectors or self.into in sparse:
            if origins.get(self.into) != origin:
                raise self.store.name_taken(f"a vector {self.into}")
            return
        # First: a run that is stopped between the two would be refused as somebody else's.
        client.update_collection(collection, metadata={_ORIGINS: {**origins, self.into: origin}})
        of = self.store.parameters
        dense = self.models.DenseVectorConfig(
            size=of.size, distance=of.distance, datatype=of.datatype
        )
        vector = self.models.DenseVectorNameConfig(dense=dense)
        client.create_vector_name(collection, self.into, vector)
        difference = self.models.VectorParamsDiff
        settings = {name: getattr(of, name, None) for name in difference.model_fields}
        client.update_collection(collection, vectors_config={self.into: difference(**settings)})

    def stored_vectors(self, records: Sequence[Any]) -> list[Any]:
        """Those that stand in the records, None for none."""
        return [_vector_of(record, self.into) for record in records]

    def changed_payloads(self, records: Sequence[Any]) -> NDArray[np.bool_]:
        """False for all: the vector stands beside the payload itself."""
        return np.zeros(len(records), bool)

    def remove_vectors(self, ids: list[Any]) -> None:
        """Remove the vector from these points."""
        if ids:
            self.client.delete_vectors(self.store.collection, [self.into], ids)

    def warn_of_others(self, count: int) -> None:
        """Warn of nothing: the points are those of the store."""

    def send_vectors(self, records: list[Any], vectors: list[list[float]]) -> None:
        """Add the vector to its points."""
        points = []
        for record, vector in zip(records, vectors, strict=True):
            points.append(self.models.PointVectors(id=record.id, vector={self.into: vector}))
        try:
            self.client.update_vectors(self.store.collection, points)
        except Exception as error:
            # Of a point that was deleted meanwhile; the others are written.
            if not isinstance(error, KeyError) and getattr(error, "status_code", 0) != 404:
                raise

    def find_stored(self, ids: list[Any]) -> tuple[set[Any], int]:
        """Which are there still, and how many have the vector."""
        collection = self.store.collection
        present = self.client.retrieve(collection, ids, with_payload=False)
        of_ids = self.models.HasIdCondition(has_id=ids)
        has_vector = self.models.HasVectorCondition(has_vector=self.into)
        stored = self._count_points(collection, of_ids, has_vector)
        return {record.id for record in present}, stored


class _NewCollection(_Target):
    """A collection with the settings, payload and sparse vectors of the one that is mapped."""

    def make(self, origin: str) -> None:
        """Make the collection, if it is not there with this origin."""
        client = self.client
        if client.collection_exists(self.into):
            metadata = client.get_collection(self.into).config.metadata or {}
            if (metadata.get(_ORIGINS) or {}).get("") != origin:
                raise self.store.name_taken(f"a collection {self.into}")
            return
        config = self.store.info.config
        parameters = {name: getattr(config.params, name) for name in _COPIED_PARAMETERS}
        client.create_collection(
            self.into,
            config.params.vectors,
            config.params.sparse_vectors,
            hnsw_config=self.models.HnswConfigDiff(**config.hnsw_config.model_dump()),
            optimizers_config=self.models.OptimizersConfigDiff(
                **config.optimizer_config.model_dump()
            ),
            quantization_config=config.quantization_config,
            metadata={**(config.metadata or {}), _ORIGINS: {"": origin}},
            **parameters,
        )
        for field, index in self.store.info.payload_schema.items():
            client.create_payload_index(self.into, field, index.params or index.data_type)

    def stored_vectors(self, records: Sequence[Any]) -> list[Any]:
        """The vectors of the copies, None for none."""
        ids = [record.id for record in records]
        copies = self.client.retrieve(self.into, ids, with_payload=False, with_vectors=True)
        vector_of = {copy.id: _vector_of(copy, "") for copy in copies}
        return [vector_of.get(name) for name in ids]

    def changed_payloads(self, records: Sequence[Any]) -> NDArray[np.bool_]:
        """Whether the payload of each has what its copy does not have."""
        changed = []
        for record, there in zip(records, self._payloads_there(records), strict=True):
            changed.append({**there, **(record.payload or {})} != there)
        return np.array(changed, bool)

    def _payloads_there(self, records: Sequence[Any]) -> list[dict[str, Any]]:
        """The payloads of the copies, empty for none."""
        copies = self.client.retrieve(self.into, [record.id for record in records])
        payload_of = {copy.id: copy.payload or {} for copy in copies}
        return [payload_of.get(record.id, {}) for record in records]

    def remove_vectors(self, ids: list[Any]) -> None:
        """Remove nothing: a copy loses no point. Those that should go are counted at the end."""

    def warn_of_others(self, count: int) -> None:
        """Warn if there are other points than copies."""
        self.store.warn_of_others(self.into, self._count_points(self.into) - count)

    def send_vectors(self, records: list[Any], vectors: list[list[float]]) -> None:
        """Copy the points, with the mapped vectors in the place of theirs.

        What others have added to the payload of a copy stays.
        """
        payloads = self._payloads_there(records)
        points = []
        for record, vector, there in zip(records, vectors, payloads, strict=True):
            payload = {**there, **(record.payload or {})}
            copied: list[float] | dict[str, Any] = vector
            if isinstance(record.vector, dict):  # with sparse ones
                copied = {**record.vector, "": vector}
            points.append(self.models.PointStruct(id=record.id, vector=copied, payload=payload))
        self.client.upsert(self.into, points)

    def find_stored(self, ids: list[Any]) -> tuple[set[Any], int]:
        """All, and those that were copied: what is deleted meanwhile stays in the copy."""
        of_ids = self.models.HasIdCondition(has_id=ids)
        return set(ids), self._count_points(self.into, of_ids)
