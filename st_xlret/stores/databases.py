"""Vectors in databases: Qdrant, Chroma, and PostgreSQL with pgvector."""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores import base
from st_xlret.stores.base import Change, Fields, Store

_MARK = "st_xlret"  # in the metadata of a collection: its mark; in Qdrant, those of its mapped vectors by their names
_NUMBERS, _ANSWER = 250_000, 60  # in a request to Qdrant; seconds for its answer
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_KEYS = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = %s AND indisprimary"""
_INDEXES = """
SELECT opcname FROM pg_depend JOIN pg_index ON indexrelid = objid JOIN pg_opclass ON pg_opclass.oid = indclass[0]
JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
WHERE classid = 'pg_class'::regclass AND refobjid = %s AND attname = %s"""  # also of an expression, such as a cast
_HEIRS = "SELECT 1 FROM pg_inherits JOIN pg_class ON oid = inhparent WHERE inhparent = %s AND relkind = 'r' LIMIT 1"
_COMMENT = "st-xlret apply: "  # before it, in the comment on a column of mapped vectors
# Of libpq, unless the address has its own: a server that does not answer, and one that is gone, for 60 s.
_LIMITS = {"connect_timeout": "10", "tcp_user_timeout": "60000"}
_LIMITS |= {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
_NAME = 63  # bytes of a name that PostgreSQL keeps
_SECONDS, _TRIES = 2, 5  # for the lock of a table, which makes every later query wait, or of a row


class QdrantStore(Store):
    """The vectors of a collection, or those of one name."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, secrets = base.parse_address(
            address, "collection", optional=("vector", "api_key")
        )
        qdrant = import_optional("qdrant_client", extra="qdrant", needed_for="vectors in Qdrant")
        self.fields, self.models, self.collection = fields, qdrant.models, values["collection"]
        key = values.get("api_key") or os.environ.get("QDRANT_API_KEY")
        self.secrets = (*secrets, key) if key else secrets
        is_server = place.startswith(("http://", "https://"))
        where = {"url": place, "api_key": key, "timeout": _ANSWER} if is_server else {"path": place}
        with self.sanitize_errors():
            self.client = qdrant.QdrantClient(**where)
            self.info = self.client.get_collection(self.collection)
        config = self.info.config
        dense = (
            config.params.vectors
            if isinstance(config.params.vectors, dict)
            else {"": config.params.vectors}
        )
        dense = {name: each for name, each in dense.items() if each and not each.multivector_config}
        self.vector = values.get("vector", next(iter(dense)) if len(dense) == 1 else "")
        base.find_field(
            dense, self.vector, (), f"{self.name}, of whose vectors &vector=... names one,"
        )
        self.parameters, metadata = dense[self.vector], config.metadata or {}
        self.name_in_store, self.mark = (
            self.vector or self.collection,
            (metadata.get(_MARK) or {}).get(self.vector),
        )
        self.model = base.model_name_in({"model": metadata.get("model")})
        self.dimension, self.metric = (
            self.parameters.size,
            base.metric_of(self.parameters.distance.value, self.name),
        )
        self.numbers = (
            np.float16 if self.parameters.datatype == qdrant.models.Datatype.FLOAT16 else np.float32
        )

    def __len__(self) -> int:
        return int(self.client.count(self.collection).count)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The points, by their ids."""
        paths = [
            path
            for name in (base.USUAL_FIELDS if texts else ["language"])
            for path in self.fields.paths(name)
        ]
        return map(
            self._records_to_arrow, self._scroll_records([path.partition(".")[0] for path in paths])
        )

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new named vector of the same points (Qdrant 1.18), or a new collection where the vectors have no name.

        A collection whose vectors have no name stays one: with a second vector, programs would have to name the first.
        """
        models, gone = self.models, 0
        if self.parameters.datatype == models.Datatype.UINT8:
            raise ValueError(
                f"{self.name} holds numbers from 0 to 255, and mapped ones would be 0: map queries alone"
            )
        place, has_vector = into, list[Any]()
        if self.vector:
            place, has_vector = self.collection, [models.HasVectorCondition(has_vector=into)]
        with self.sanitize_errors():
            (self._ensure_named_vector if self.vector else self._ensure_collection)(into, mark)
            for records in self._scroll_records(
                True, models.Filter(must_not=has_vector)
            ):  # a stopped run goes on
                if not self.vector:
                    present = self.client.retrieve(
                        into, [record.id for record in records], with_payload=False
                    )
                    records = [
                        record
                        for record in records
                        if record.id not in {each.id for each in present}
                    ]
                pairs = zip(
                    records,
                    base.batch_vectors(change(self._records_to_arrow(records))),
                    strict=True,
                )
                sent = [
                    (record, vector.tolist()) for record, vector in pairs if not np.isnan(vector[0])
                ]
                if not sent:
                    continue
                if self.vector:
                    points = [
                        models.PointVectors(id=record.id, vector={into: vector})
                        for record, vector in sent
                    ]
                    try:
                        self.client.update_vectors(self.collection, points)
                    except (
                        Exception
                    ) as error:  # of a point that was deleted meanwhile; the others are written
                        if (
                            not isinstance(error, KeyError)
                            and getattr(error, "status_code", 0) != 404
                        ):
                            raise
                else:
                    self.client.upsert(
                        into, [self._point_with_vector(record, vector) for record, vector in sent]
                    )
                of_ids = models.HasIdCondition(has_id=[record.id for record, _ in sent])
                stored = self.client.count(place, models.Filter(must=[of_ids, *has_vector])).count
                there = (
                    self.client.count(place, models.Filter(must=[of_ids])).count
                    if self.vector
                    else len(sent)
                )
                gone += self.check_stored_rows(len(sent), there, stored)
        return gone

    def close(self) -> None:
        """Let other programs use a folder of the local mode."""
        self.client.close()

    def _ensure_named_vector(self, into: str, mark: str) -> None:
        client, models, of = self.client, self.models, self.parameters
        present = client.get_collection(
            self.collection
        ).config  # others may have added vectors since it was opened
        marks = (present.metadata or {}).get(_MARK) or {}
        is_taken = into in present.params.vectors or into in (present.params.sparse_vectors or {})
        self.refuse_taken(f"a vector {into}", is_taken, mark, marks.get(into))
        if not is_taken:
            # The mark first: a run that is stopped between the two would be refused as somebody else's.
            client.update_collection(self.collection, metadata={_MARK: {**marks, into: mark}})
            config = models.DenseVectorConfig(
                size=of.size, distance=of.distance, datatype=of.datatype
            )
            client.create_vector_name(
                self.collection, into, models.DenseVectorNameConfig(dense=config)
            )
            settings = {
                name: getattr(of, name, None) for name in models.VectorParamsDiff.model_fields
            }
            client.update_collection(
                self.collection, vectors_config={into: models.VectorParamsDiff(**settings)}
            )

    def _ensure_collection(self, into: str, mark: str) -> None:
        client, models, config = self.client, self.models, self.info.config
        is_taken = client.collection_exists(into)
        marks = (client.get_collection(into).config.metadata or {}).get(_MARK) if is_taken else None
        self.refuse_taken(f"a collection {into}", is_taken, mark, (marks or {}).get(""))
        if not is_taken:
            copied = (
                "shard_number",
                "replication_factor",
                "write_consistency_factor",
                "on_disk_payload",
            )
            settings: Any = {name: getattr(config.params, name) for name in copied}
            settings["hnsw_config"] = models.HnswConfigDiff(**config.hnsw_config.model_dump())
            settings["optimizers_config"] = models.OptimizersConfigDiff(
                **config.optimizer_config.model_dump()
            )
            settings["quantization_config"] = config.quantization_config
            settings["metadata"] = {**(config.metadata or {}), _MARK: {"": mark}}
            client.create_collection(
                into, config.params.vectors, config.params.sparse_vectors, **settings
            )
            for field, index in self.info.payload_schema.items():
                client.create_payload_index(into, field, index.params or index.data_type)

    def _point_with_vector(self, record: Any, vector: list[float]) -> Any:
        vectors = {**record.vector, "": vector} if isinstance(record.vector, dict) else vector
        return self.models.PointStruct(id=record.id, vector=vectors, payload=record.payload)

    def _scroll_records(self, payload: Any, only: Any = None) -> Iterator[list[Any]]:
        limit, place = max(1, min(self.size, _NUMBERS // self.dimension)), None
        vectors = [self.vector] if self.vector else True
        while True:
            records, place = self.client.scroll(
                self.collection,
                only,
                limit=limit,
                offset=place,
                with_payload=payload,
                with_vectors=vectors,
            )
            if records:
                yield records
            if place is None:
                return

    def _records_to_arrow(self, records: list[Any]) -> pa.RecordBatch:
        vectors = [
            each.vector.get(self.vector) if isinstance(each.vector, dict) else each.vector
            for each in records
        ]
        beside = self.fields.columns_of_payloads([record.payload for record in records])
        return base.make_batch(
            [record.id for record in records], self.nullable_vector_column(vectors), beside
        )


class ChromaStore(Store):
    """The vectors of a collection, in a folder or on a server."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, self.secrets = base.parse_address(address, "collection")
        self.fields, self.name_in_store = fields, values["collection"]
        chroma = import_optional("chromadb", extra="chroma", needed_for="vectors in Chroma")
        url = urlsplit(place)
        with self.sanitize_errors():
            if url.scheme in ("http", "https"):
                self.client = chroma.HttpClient(
                    url.hostname, url.port or 8000, ssl=url.scheme == "https"
                )
            else:
                self.client = chroma.PersistentClient(place)
            self.collection = self.client.get_collection(
                self.name_in_store, embedding_function=None
            )
            first = self.collection.get(limit=1, include=["embeddings"])["embeddings"]
            settings = (
                self.collection.configuration_json
            )  # `configuration` would make the embedding function
        self.dimension = base.first_vector_length(first)
        self.mark = (self.collection.metadata or {}).get(_MARK)
        self.space = (settings.get("hnsw") or {}).get("space", "l2")
        self.metric = base.metric_of(self.space, self.name)
        self.model = base.model_name_in(
            (settings.get("embedding_function") or {}).get("config") or {}
        )

    def __len__(self) -> int:
        return int(self.collection.count())

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The entries, by their ids."""
        return map(self._entries_to_arrow, self._entry_pages())

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new collection with the same ids, documents and metadata; an entry without a vector is left out."""
        with self.sanitize_errors():
            marks = {
                each.name: (each.metadata or {}).get(_MARK)
                for each in self.client.list_collections()
            }
            self.refuse_taken(f"a collection {into}", into in marks, mark, marks.get(into))
            about: Any = {
                "configuration": {"hnsw": {"space": self.space}},
                "embedding_function": None,
            }
            about["metadata"] = {**(self.collection.metadata or {}), _MARK: mark}
            mapped = self.client.get_or_create_collection(into, **about)
            for entries in self._entry_pages(
                without=mapped.get(include=[])["ids"]
            ):  # a stopped run goes on
                vectors = base.batch_vectors(change(self._entries_to_arrow(entries)))
                has_vector = ~np.isnan(vectors[:, 0])
                if has_vector.any():
                    sent = {
                        name: list(compress(values, has_vector)) for name, values in entries.items()
                    }
                    mapped.upsert(**sent | {"embeddings": vectors[has_vector]})
                    stored = mapped.get(ids=sent["ids"], include=[])["ids"]
                    self.check_stored_rows(len(sent["ids"]), len(sent["ids"]), len(stored))
        return 0

    def _entry_pages(self, without: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
        size, columns = (
            min(self.size, self.client.get_max_batch_size()),
            ["embeddings", "metadatas", "documents"],
        )
        left_out = set(without)  # pages by offset would move when entries come or go
        names = [name for name in self.collection.get(include=[])["ids"] if name not in left_out]
        for start in range(0, len(names), size):
            if (entries := self.collection.get(ids=names[start : start + size], include=columns))[
                "ids"
            ]:
                yield {name: entries[name] for name in ("ids", *columns)}

    def _entries_to_arrow(self, entries: dict[str, Any]) -> pa.RecordBatch:
        vectors = self.nullable_vector_column(entries["embeddings"])
        texts = {} if self.fields.text else {"text": entries["documents"]}
        return base.make_batch(
            entries["ids"], vectors, self.fields.columns_of_payloads(entries["metadatas"]) | texts
        )


class PostgresStore(Store):
    """A column of a table that has a primary key of one column."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, self.secrets = base.parse_address(
            address, "table", "column", optional=None
        )
        psycopg = import_optional("psycopg", extra="pgvector", needed_for="vectors in PostgreSQL")
        pgvector = import_optional(
            "pgvector.psycopg", extra="pgvector", needed_for="vectors in PostgreSQL"
        )
        self.fields, self.psycopg, self.sql, self.name_in_store = (
            fields,
            psycopg,
            psycopg.sql,
            values.pop("column"),
        )
        self.table = self.sql.Identifier(*values.pop("table").split("."))
        with self.sanitize_errors():
            self.connection = psycopg.connect(
                f"postgresql:{place}", autocommit=True, **{**_LIMITS, **values}
            )
            pgvector.register_vector(self.connection)
            ((oid,),) = self._fetch_rows(
                "SELECT %s::regclass::oid", self.table.as_string(self.connection)
            )
            self.columns = {
                name: (kind, comment or "")
                for name, kind, comment in self._fetch_rows(_COLUMNS, oid)
            }
            keys = [name for (name,) in self._fetch_rows(_KEYS, oid)]
            classes = [
                name.split("_") for (name,) in self._fetch_rows(_INDEXES, oid, self.name_in_store)
            ]
            has_heirs = bool(self._fetch_rows(_HEIRS, oid))
            ((has_policies,),) = self._fetch_rows("SELECT row_security_active(%s::oid)", oid)
        if has_policies:
            warnings.warn(
                f"{self.name}: what row policies hide from this user is not read, nor counted",
                stacklevel=3,
            )
        lists = [
            name
            for name, (kind, _) in self.columns.items()
            if kind.partition("(")[0] in ("vector", "halfvec")
        ]
        base.find_field(
            lists,
            self.name_in_store,
            (),
            f"{self.name}, among its columns of type vector and halfvec,",
        )
        if len(keys) != 1 or has_heirs:
            needed = (
                "no tables that inherit from it" if has_heirs else "a primary key of one column"
            )
            raise ValueError(
                f"{self.name}: the table needs {needed}: by its key a row is found again"
            )
        self.key, self.key_type = keys[0], self.columns[keys[0]][0]
        kind, comment = self.columns[self.name_in_store]
        self.type_name, _, size = kind.rstrip(")").partition("(")
        self.numbers = np.float16 if self.type_name == "halfvec" else np.float32
        self.mark = comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else None
        metrics = [
            name[1] for name in classes if name[0] in ("vector", "halfvec") and len(name) == 3
        ]
        self.metric = base.metric_of(
            min(metrics, key=lambda name: name not in base.METRICS, default=None), self.name
        )
        self.present = self.columns
        usual_fields = base.USUAL_FIELDS.items()
        self.beside = {
            name: self._field_expression(getattr(fields, name, None), usual)
            for name, usual in usual_fields
        }
        with self.sanitize_errors():
            some = self._fetch_rows(
                self._format_sql("SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1")
            )
            self.dimension = (
                int(size) if size else base.first_vector_length(row[0].to_list() for row in some)
            )

    def __len__(self) -> int:
        return int(self._fetch_rows(self._format_sql("SELECT count(*) FROM {table}"))[0][0])

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their keys, by their keys."""
        return self._select_batches(texts, "TRUE")

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new column of the same table and type; a row without a vector has null in it."""
        into = into.encode()[:_NAME].decode(
            errors="ignore"
        )  # as PostgreSQL cuts names, wherever they stand
        is_taken, comment = into in self.columns, f"{_COMMENT}{mark}"
        self.refuse_taken(
            f"a column {into}", is_taken, comment, self.columns[into][1] if is_taken else None
        )
        new, text, kind = (
            self.sql.Identifier(into),
            self.sql.Literal(comment),
            f"{self.type_name}({self.dimension})",
        )
        with self.sanitize_errors():
            if not is_taken:
                templates = (
                    f"ALTER TABLE {{table}} ADD {{new}} {kind}",
                    "COMMENT ON COLUMN {table}.{new} IS {text}",
                )
                commands = [self._format_sql(command, new=new, text=text) for command in templates]
                self._run_briefly(
                    lambda cursor: [cursor.execute(command, ()) for command in commands]
                )
            batches = self._select_batches(
                self.fields.text is not None, "{new} IS NULL", new=new
            )  # a rerun goes on
            return sum(self._update_column(new, change(batch)) for batch in batches)

    def _run_briefly(self, action: Callable[[Any], Any]) -> Any:
        """Run an action in a transaction that waits for nobody long, and so makes nobody else wait; a few tries."""
        for _ in range(_TRIES):
            held = suppress(self.psycopg.errors.LockNotAvailable)
            with held, self.connection.transaction(), self.connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_SECONDS}s'")
                return action(cursor)
            time.sleep(_SECONDS)  # in which others get the table
        raise OSError(
            "another session holds the table, or rows of it: run it again later, it goes on from here"
        )

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _select_batches(
        self, texts: bool, condition: str, **names: Any
    ) -> Iterator[pa.RecordBatch]:
        names |= self.beside
        # Keys are read as text and cast back, whatever type they have; a bare {key} in ORDER BY would be that text.
        beside = ["language", *(name for name in self.beside if texts and name != "language")]
        columns = ", ".join(f"{{{name}}}::text" for name in beside)
        select = f"SELECT {{key}}::text, {{column}}, {columns} FROM {{table}}"
        order, after = f"ORDER BY {{table}}.{{key}} LIMIT {self.size}", ""
        while rows := self._fetch_rows(
            self._format_sql(f"{select} WHERE {condition} {after} {order}", **names)
        ):
            keys, vectors, *others = zip(*rows, strict=True)
            column = self.nullable_vector_column(
                [None if vector is None else vector.to_numpy() for vector in vectors]
            )
            yield base.make_batch(keys, column, dict(zip(beside, others, strict=True)))
            names["last"], after = (
                self.sql.Literal(keys[-1]),
                f"AND {{key}} > {{last}}::{self.key_type}",
            )

    def _update_column(self, new: Any, batch: pa.RecordBatch) -> int:
        """One transaction: a batch is there as a whole, or not at all. Gives the number of rows that are gone."""
        kinds = import_optional("pgvector", extra="pgvector", needed_for="vectors in PostgreSQL")
        kind = {"vector": kinds.Vector, "halfvec": kinds.HalfVector}[self.type_name]

        def update(cursor: Any) -> int:
            cursor.execute(
                f"CREATE TEMP TABLE mapped_rows (key text, mapped {self.type_name}) ON COMMIT DROP"
            )
            with cursor.copy("COPY mapped_rows FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["text", self.type_name])
                for key, vector in zip(
                    batch.column("id").to_pylist(), base.batch_vectors(batch), strict=True
                ):
                    if not np.isnan(vector[0]):
                        copy.write_row((key, kind(vector)))
            same = f"{{table}}.{{key}} = mapped_rows.key::{self.key_type}"
            update = (
                f"UPDATE {{table}} SET {{new}} = mapped_rows.mapped FROM mapped_rows WHERE {same}"
            )
            cursor.execute(self._format_sql(update, new=new), ())
            counts = "SELECT count(*), count({table}.{key}), count({table}.{new})"
            joined = self._format_sql(
                f"{counts} FROM mapped_rows LEFT JOIN {{table}} ON {same}", new=new
            )
            return self.check_stored_rows(*cursor.execute(joined, ()).fetchone())

        return int(self._run_briefly(update))

    def _fetch_rows(self, query: Any, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor(binary=True) as cursor:
            return cursor.execute(query, values).fetchall()

    def _format_sql(self, query: str, **more: Any) -> Any:
        """A query with names in it, in which % is doubled, as in every query that takes values."""
        name = self.sql.Identifier
        parts = {
            "table": self.table,
            "column": name(self.name_in_store),
            "key": name(self.key),
            **more,
        }
        quoted = {
            what: part.as_string(self.connection).replace("%", "%%") for what, part in parts.items()
        }
        return self.sql.SQL(query).format(
            **{what: self.sql.SQL(part) for what, part in quoted.items()}
        )

    def _field_expression(self, field: str | None, usual: Sequence[str]) -> Any:
        """A column, or a value in a column of JSON such as `metadata.language`, or NULL."""
        column, _, path = (field or "").partition(".")
        if path and field not in self.columns:
            base.find_field(self.columns, column, usual, self.name)
            parts = self.sql.SQL(", ").join(map(self.sql.Literal, path.split(".")))
            value = self.sql.SQL("jsonb_extract_path({}::jsonb, {})").format(
                self.sql.Identifier(column), parts
            )
            as_text = "CASE jsonb_typeof({0}) WHEN 'number' THEN trim_scale({0}::numeric)::text ELSE {0} #>> '{{}}' END"
            return self.sql.SQL(as_text).format(value)  # 3 and 3.0 are one number
        present = base.find_field(self.columns, field, usual, self.name)
        return self.sql.Identifier(present) if present else self.sql.SQL("NULL")
