"""Vectors in a column of PostgreSQL, of pgvector's types `vector` and `halfvec`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from st_xlret.optional import import_optional
from st_xlret.stores import base
from st_xlret.stores.base import Change, Fields, Store

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_KEYS = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = %s AND indisprimary"""
_INDEXES = """
SELECT opcname FROM pg_index JOIN pg_opclass ON pg_opclass.oid = indclass[0]
JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] WHERE indrelid = %s AND attname = %s"""
_HEIRS = "SELECT 1 FROM pg_inherits JOIN pg_class ON oid = inhparent WHERE inhparent = %s AND relkind = 'r' LIMIT 1"
_MARK = "st-xlret apply: "  # before it, in the comment on a column of mapped vectors
# Of libpq, unless the address has its own: a server that does not answer, and one that is gone, for 60 s.
_LIMITS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "60000",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_NAME = 63  # bytes of a name that PostgreSQL keeps


_SECONDS, _TRIES = 2, 5  # for the lock of a table, which makes every later query wait


class PostgresStore(Store):
    """A column of a table that has a primary key of one column."""

    def __init__(self, address: str, fields: Fields) -> None:
        place, values, self.name, self.secrets = base.parse_address(address, "table", "column", optional=None)
        psycopg = import_optional("psycopg", extra="pgvector", needed_for="vectors in PostgreSQL")
        pgvector = import_optional("pgvector.psycopg", extra="pgvector", needed_for="vectors in PostgreSQL")
        self.fields, self.sql, self.called = fields, psycopg.sql, values.pop("column")
        self.psycopg = psycopg
        self.table = self.sql.Identifier(*values.pop("table").split("."))
        with self.errors():
            self.connection = psycopg.connect(f"postgresql:{place}", autocommit=True, **{**_LIMITS, **values})
            pgvector.register_vector(self.connection)
            ((oid,),) = self._rows("SELECT %s::regclass::oid", self.table.as_string(self.connection))
            self.columns = {name: (kind, comment or "") for name, kind, comment in self._rows(_COLUMNS, oid)}
            keys = [name for (name,) in self._rows(_KEYS, oid)]
            classes = [name.split("_")[1] for (name,) in self._rows(_INDEXES, oid, self.called)]
            has_heirs = bool(self._rows(_HEIRS, oid))
        lists = [name for name, (kind, _) in self.columns.items() if kind.partition("(")[0] in ("vector", "halfvec")]
        base.field_among(lists, self.called, (), f"{self.name}, among its columns of type vector and halfvec,")
        if len(keys) != 1 or has_heirs:
            needed = "no tables that inherit from it" if has_heirs else "a primary key of one column"
            raise ValueError(f"{self.name}: the table needs {needed}: by its key a row is found again")
        self.key, self.key_type = keys[0], self.columns[keys[0]][0]
        kind, comment = self.columns[self.called]
        self.kind, _, size = kind.rstrip(")").partition("(")
        self.mark = comment.removeprefix(_MARK) if comment.startswith(_MARK) else None
        self.metric = base.metric_of(min(classes, key=lambda name: name not in base.METRICS, default=None), self.name)
        self.present = self.columns
        self.beside = {
            name: self._field(getattr(fields, name, None), usual) for name, usual in base.USUAL_FIELDS.items()
        }
        with self.errors():
            some = self._sql(
                "SELECT vector_to_float4({column}, 0, false) FROM {table} WHERE {column} IS NOT NULL LIMIT 1"
            )
            self.dimension = int(size) if size else base.first_length((row[0] for row in self._rows(some)), self.name)

    def __len__(self) -> int:
        return int(self._rows(self._sql("SELECT count(*) FROM {table}"))[0][0])

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their keys, by their keys."""
        return self._raw(texts, "TRUE")

    def write(self, into: str, mark: str, change: Change) -> int:
        """A new column of the same table and type; a row without a vector has null in it."""
        into = into.encode()[:_NAME].decode(errors="ignore")  # as PostgreSQL cuts names, wherever they stand
        is_taken, comment = into in self.columns, f"{_MARK}{mark}"
        self.refuse_taken(f"a column {into}", is_taken, comment, self.columns[into][1] if is_taken else None)
        new = self.sql.Identifier(into)
        with self.errors():
            if not is_taken:
                self._add_column(new, self.sql.Literal(comment))
            batches = self._raw(self.fields.text is not None, "{new} IS NULL", new=new)  # a stopped run goes on
            return sum(self._update(new, change(batch)) for batch in batches)

    def _add_column(self, new: Any, comment: Any) -> None:
        """Add a column, without making others wait for the table beside a transaction that is idle."""
        add, about = (
            f"ALTER TABLE {{table}} ADD {{new}} {self.kind}({self.dimension})",
            "COMMENT ON COLUMN {table}.{new} IS {text}",
        )
        for tries_left in reversed(range(_TRIES)):
            try:
                with self.connection.transaction():
                    self.connection.execute(f"SET LOCAL lock_timeout = '{_SECONDS}s'")
                    self.connection.execute(self._sql(add, new=new), ())
                    self.connection.execute(self._sql(about, new=new, text=comment), ())
                return
            except self.psycopg.errors.LockNotAvailable as error:
                if not tries_left:
                    raise OSError("another session holds the table; nothing was changed, try again later") from error
                time.sleep(_SECONDS)  # in which others get the table

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _raw(self, texts: bool, condition: str, **names: Any) -> Iterator[pa.RecordBatch]:
        names |= self.beside
        # Keys are read as text and cast back, whatever type they have; a bare {key} in ORDER BY would be that text.
        beside = ["language", *(name for name in self.beside if texts and name != "language")]
        columns = ", ".join(f"{{{name}}}::text" for name in beside)
        select = f"SELECT {{key}}::text, {{column}}, {columns} FROM {{table}}"
        order, after = f"ORDER BY {{table}}.{{key}} LIMIT {self.size}", ""
        while rows := self._rows(self._sql(f"{select} WHERE {condition} {after} {order}", **names)):
            keys, vectors, *others = zip(*rows, strict=True)
            numbers = np.full((len(rows), self.dimension), np.nan, np.float32)
            for row, vector in enumerate(vectors):
                if vector is not None:
                    numbers[row] = vector.to_numpy()
            yield base.rows_batch(keys, numbers, dict(zip(beside, others, strict=True)))
            names["last"], after = self.sql.Literal(keys[-1]), f"AND {{key}} > {{last}}::{self.key_type}"

    def _update(self, new: Any, batch: pa.RecordBatch) -> int:
        """One transaction: a batch is there as a whole, or not at all. Gives the number of rows that are gone."""
        kinds = import_optional("pgvector", extra="pgvector", needed_for="vectors in PostgreSQL")
        kind = {"vector": kinds.Vector, "halfvec": kinds.HalfVector}[self.kind]
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE mapped_rows (key text, mapped {self.kind}) ON COMMIT DROP")
            with cursor.copy("COPY mapped_rows FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["text", self.kind])
                for key, vector in zip(batch.column("id").to_pylist(), base.matrix(batch), strict=True):
                    if not np.isnan(vector[0]):
                        copy.write_row((key, kind(vector)))
            same = f"{{table}}.{{key}} = mapped_rows.key::{self.key_type}"
            update = f"UPDATE {{table}} SET {{new}} = mapped_rows.mapped FROM mapped_rows WHERE {same}"
            cursor.execute(self._sql(update, new=new), ())
            counts = (
                "SELECT count(*), count({table}.{key}), count({table}.{new}) FROM mapped_rows LEFT JOIN {table} ON "
            )
            return self.count_gone(*cursor.execute(self._sql(counts + same, new=new), ()).fetchone())

    def _rows(self, query: Any, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor(binary=True) as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(query, values).fetchall()
            return rows

    def _sql(self, query: str, **more: Any) -> Any:
        """A query with names in it, in which % is doubled, as in every query that takes values."""
        name = self.sql.Identifier
        parts = {"table": self.table, "column": name(self.called), "key": name(self.key), **more}
        quoted = {what: part.as_string(self.connection).replace("%", "%%") for what, part in parts.items()}
        return self.sql.SQL(query).format(**{what: self.sql.SQL(part) for what, part in quoted.items()})

    def _field(self, field: str | None, usual: Sequence[str]) -> Any:
        """A column, or a value in a column of JSON such as `metadata.language`, or NULL."""
        column, _, path = (field or "").partition(".")
        if path and field not in self.columns:
            base.field_among(self.columns, column, usual, self.name)
            parts = self.sql.SQL(", ").join(map(self.sql.Literal, path.split(".")))
            return self.sql.SQL("jsonb_extract_path_text({}::jsonb, {})").format(self.sql.Identifier(column), parts)
        present = base.field_among(self.columns, field, usual, self.name)
        return self.sql.Identifier(present) if present else self.sql.SQL("NULL")
