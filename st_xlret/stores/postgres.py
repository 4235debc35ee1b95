"""Vectors in PostgreSQL with pgvector."""

import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

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
)
from st_xlret.stores.descriptions import METRICS, Metric, metric_of
from st_xlret.stores.fields import OF_SAMPLES, USUAL_FIELDS, Fields, find_field, named_field
from st_xlret.stores.reruns import RerunCounts, due_rows

_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEYS = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = %s AND indisprimary
"""
# Also of an expression, such as a cast.
_OPERATOR_CLASSES = """
SELECT opcname FROM pg_depend JOIN pg_index ON indexrelid = objid
JOIN pg_opclass ON pg_opclass.oid = indclass[0]
JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
WHERE classid = 'pg_class'::regclass AND refobjid = %s AND attname = %s
"""
_HEIRS = """
SELECT 1 FROM pg_inherits JOIN pg_class ON oid = inhparent
WHERE inhparent = %s AND relkind = 'r' LIMIT 1
"""
_FIRST_VECTOR = "SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1"
# Keys are read as text and cast back, whatever type they have; a bare {key} in ORDER BY would be
# that text.
_ROWS = """
SELECT {{key}}::text, {columns} FROM {{table}}
WHERE {condition} ORDER BY {{table}}.{{key}} LIMIT {size}
"""
_OTHER_LENGTH = """
SELECT {key}::text, vector_dims({column}) FROM {table}
WHERE {column} IS NOT NULL AND vector_dims({column}) <> %s LIMIT 1
"""
_FIRST_ROWS = f"""
SELECT to_jsonb(first) FROM (SELECT * FROM {{table}} LIMIT {FIRST_ROWS}) AS first
"""
# Of the table and its partitions: enabled triggers of an update of the column, and rules.
_TRIGGERS = """
WITH relations AS (
    SELECT %(table)s::oid AS oid UNION SELECT relid FROM pg_partition_tree(%(table)s::oid)
), fired AS (
    SELECT CASE current_setting('session_replication_role')
        WHEN 'replica' THEN '{A,R}'::"char"[] ELSE '{A,O}'::"char"[] END AS modes
)
SELECT tgrelid::regclass::text, 'TRIGGER', tgname FROM pg_trigger, fired
WHERE tgrelid IN (SELECT oid FROM relations) AND NOT tgisinternal AND tgenabled = ANY(modes)
    AND tgtype & 16 <> 0 AND (tgattr::text = '' OR EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = tgrelid AND attname = %(column)s AND attnum = ANY(tgattr)))
UNION
SELECT ev_class::regclass::text, 'RULE', rulename FROM pg_rewrite, fired
WHERE ev_class IN (SELECT oid FROM relations) AND ev_type = '2' AND ev_enabled = ANY(modes)
ORDER BY 1, 2, 3
"""
_ADD_COLUMN = "ALTER TABLE {{table}} ADD {{new}} {kind}"
_ADD_COMMENT = "COMMENT ON COLUMN {table}.{new} IS {text}"
_STAGE = "CREATE TEMP TABLE mapped_rows (key text, mapped {kind}) ON COMMIT DROP"
_STAGE_ROWS = "COPY mapped_rows FROM STDIN (FORMAT BINARY)"
_UPDATE = """
UPDATE {{table}} SET {{new}} = mapped_rows.mapped
FROM mapped_rows WHERE {{table}}.{{key}} = mapped_rows.key::{key_type}
"""
_NOT_UPDATED = """
SELECT mapped_rows.key, {{table}}.{{key}} IS NULL
FROM mapped_rows LEFT JOIN {{table}} ON {{table}}.{{key}} = mapped_rows.key::{key_type}
WHERE {{table}}.{{key}} IS NULL OR {{table}}.{{new}} IS DISTINCT FROM mapped_rows.mapped
"""
# 3 and 3.0 are one number.
_JSON_AS_TEXT = """
CASE jsonb_typeof({0}) WHEN 'number' THEN trim_scale({0}::numeric)::text ELSE {0} #>> '{{}}' END
"""

_COMMENT = "st-xlret apply: "  # before the origin, in the comment on a column of mapped vectors
# Settings of libpq, unless the address has its own: a server that does not answer, and one that is
# gone, for 60 s.
_LIMITS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "60000",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_LONGEST_NAME = 63  # bytes of a name that PostgreSQL keeps
# For the lock of a table, which makes every later query wait, or of a row.
_SECONDS = 2
_TRIES = 5
_NEEDED_FOR = "vectors in PostgreSQL"


class _Column(NamedTuple):
    """The type of a column, such as `vector(384)`, and the comment on it."""

    kind: str
    comment: str


class _Catalog(NamedTuple):
    """What PostgreSQL says of a table.

    Attributes:
        oid: Its number.
        columns: By their names.
        keys: The columns of its primary key.
        column: The column of vectors, as it is spelled there.
        operator_classes: Of its indexes.
        has_heirs: Whether other tables inherit from it.
        has_policies: Whether policies hide rows.
    """

    oid: int
    columns: dict[str, _Column]
    keys: list[str]
    column: str
    operator_classes: list[str]
    has_heirs: bool
    has_policies: bool


class PostgresStore(Store):
    """A column of a table that has a primary key of one column."""

    def __init__(self, address: str, fields: Fields) -> None:
        parsed = parse_address(address, "table", "column", optional=None)
        self.psycopg = import_optional("psycopg", extra="pgvector", needed_for=_NEEDED_FOR)
        pgvector = import_optional("pgvector.psycopg", extra="pgvector", needed_for=_NEEDED_FOR)
        self.sql = self.psycopg.sql
        self.name = parsed.shown
        self.secrets = parsed.secrets
        self.fields = fields
        self.table = self.sql.Identifier(*parsed.options["table"].split("."))
        settings = {**_LIMITS, **parsed.options}
        del settings["table"], settings["column"]
        with self.sanitize_errors():
            self.connection = self.psycopg.connect(
                f"postgresql:{parsed.place}", autocommit=True, **settings
            )
            pgvector.register_vector(self.connection)
            self.catalog = self._read_catalog(parsed.options["column"])
        self._check_catalog()
        self.name_in_store = self.catalog.column
        self.present = self.catalog.columns
        self.key = self.catalog.keys[0]
        self.metric = self._metric_of_indexes()
        self.beside = {}
        for what, usual in USUAL_FIELDS.items():
            self.beside[what] = self._field_expression(fields.named_for(what), usual)
        column = self.catalog.columns[self.name_in_store]
        if column.comment.startswith(_COMMENT):
            self.origin = column.comment.removeprefix(_COMMENT)
        self.type_name = column.kind.partition("(")[0]
        if self.type_name == "halfvec":
            self.numbers = np.float16
        self.dimension = self._vector_length(column.kind)

    def _read_catalog(self, named: str) -> "_Catalog":
        """What PostgreSQL says of the table; a `ValueError` if the column named has no vectors.

        `_format` cannot be used before: it needs the column and the key that are found here.
        """
        table = self.table.as_string(self.connection)
        ((oid,),) = self._fetch("SELECT %s::regclass::oid", [table])
        columns = {}
        for name, kind, comment in self._fetch(_COLUMNS, [oid]):
            columns[name] = _Column(kind, comment or "")
        ((has_policies,),) = self._fetch("SELECT row_security_active(%s::oid)", [oid])
        vectors = []
        for name, column in columns.items():
            if column.kind.partition("(")[0] in ("vector", "halfvec"):
                vectors.append(name)
        where = f"{self.name}, among its columns of type vector and halfvec,"
        found = named_field(vectors, named, where)
        classes = self._fetch(_OPERATOR_CLASSES, [oid, found])
        return _Catalog(
            oid=oid,
            columns=columns,
            keys=[name for (name,) in self._fetch(_KEYS, [oid])],
            column=found,
            operator_classes=[name for (name,) in classes],
            has_heirs=bool(self._fetch(_HEIRS, [oid])),
            has_policies=has_policies,
        )

    def _check_catalog(self) -> None:
        """Refuse a table whose rows cannot be found again, and warn of one that hides some."""
        if self.catalog.has_policies:
            warnings.warn(
                f"{self.name}: what row policies hide from this user is not read, nor counted",
                stacklevel=4,
            )
        needed = None
        if self.catalog.has_heirs:
            needed = "no tables that inherit from it"
        elif len(self.catalog.keys) != 1:
            needed = "a primary key of one column"
        if needed:
            raise ValueError(
                f"{self.name}: the table needs {needed}: by its key a row is found again"
            )

    def _metric_of_indexes(self) -> Metric | None:
        """The metric of the column's indexes, by their operator classes; None without indexes.

        Of several, one that maps keep is taken; if none is, that is a `ValueError`.
        """
        metrics = []
        for name in self.catalog.operator_classes:
            metrics += re.findall(r"^(?:vector|halfvec)_([^_]+)_[^_]+$", name)  # vector_cosine_ops
        kept = [name for name in metrics if name in METRICS]
        return metric_of(next(iter(kept or metrics), None), self.name)

    def _vector_length(self, kind: str) -> int:
        """Numbers in a vector, by the type of the column, else by the first vector."""
        size = kind.rstrip(")").partition("(")[2]
        if size:
            return int(size)
        with self.sanitize_errors():
            rows = self._fetch(self._format(_FIRST_VECTOR))
        return first_vector_length(vector.to_list() for (vector,) in rows)

    @property
    def _key_type(self) -> str:
        """The type of the key, as SQL casts to it; keys are read as text."""
        return self.catalog.columns[self.key].kind

    def __len__(self) -> int:
        ((count,),) = self._fetch(self._format("SELECT count(*) FROM {table}"))
        return int(count)

    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows in the order of their keys, by their keys."""
        for batch, _ in self._batches_with_mapped(texts):
            yield batch

    def first_rows(self) -> list[Mapping[str, Any]]:
        """The columns of the first rows."""
        return [row for (row,) in self._fetch(self._format(_FIRST_ROWS))]

    def write(self, into: str, origin: str, change: Change) -> RerunCounts:
        """A new column of the same table and type; a row without a vector has null in it."""
        into = _kept_name(into)
        comment = f"{_COMMENT}{origin}"
        there = self.catalog.columns.get(into)
        if there is not None and there.comment != comment:
            raise self.name_taken(f"a column {into}")
        new = self.sql.Identifier(into)
        counts = RerunCounts()
        with self.sanitize_errors():
            self._refuse_triggers(into)
            self._refuse_other_lengths()
            if there is None:
                self._add_column(new, comment)
            for batch, mapped in self._batches_with_mapped(self.fields.text is not None, new):
                self._write_rows(new, change(batch), mapped, counts)
        return counts

    def _refuse_triggers(self, into: str) -> None:
        """Refuse a table of which an update does more than what it says."""
        names = []
        ways_out = []
        for table, kind, name in self._fetch(
            _TRIGGERS, {"table": self.catalog.oid, "column": into}
        ):
            quoted = self.sql.Identifier(name).as_string(self.connection)
            names.append(name)
            ways_out.append(f"ALTER TABLE {table} DISABLE {kind} {quoted}")
        if names:
            raise ValueError(
                f"{self.name}: writing mapped vectors updates every row, which fires "
                f"{', '.join(names)}: disable meanwhile ({'; '.join(ways_out)}), "
                "or map queries alone"
            )

    def _refuse_other_lengths(self) -> None:
        """Refuse a column whose vectors differ in length, before anything is written."""
        for key, length in self._fetch(self._format(_OTHER_LENGTH), [self.dimension]):
            raise self.wrong_length(key, length)

    def _write_rows(
        self, new: Any, batch: pa.RecordBatch, there: Matrix, counts: RerunCounts
    ) -> None:
        """Write mapped vectors where others are there or none, null where there should be none.

        The rows are counted.
        """
        due = due_rows(batch_vectors(batch), there, self.numbers)
        is_written = due.is_new | due.is_changed | due.is_stale
        gone = set()
        if is_written.any():
            gone = self._update_column(new, batch.filter(pa.array(is_written)))
        is_gone = [key in gone for key in batch.column("id").to_pylist()]
        counts.add(due, np.array(is_gone))

    def _add_column(self, new: Any, comment: str) -> None:
        """Add the column with its comment, both or none."""
        add = self._format(_ADD_COLUMN.format(kind=f"{self.type_name}({self.dimension})"), new=new)
        add_comment = self._format(_ADD_COMMENT, new=new, text=self.sql.Literal(comment))

        def run(cursor: Any) -> None:
            cursor.execute(add, ())
            cursor.execute(add_comment, ())

        self._run_briefly(run)

    def _run_briefly(self, action: Callable[[Any], Any]) -> Any:
        """What an action on a cursor gives, in a transaction that waits for nobody long.

        So it makes nobody else wait. Where a lock is held, the transaction is undone and the action
        run again, a few times: it changes nothing but by the cursor.
        """
        is_held = self.psycopg.errors.LockNotAvailable
        for _ in range(_TRIES):
            with (
                suppress(is_held),
                self.connection.transaction(),
                self.connection.cursor() as cursor,
            ):
                cursor.execute(f"SET LOCAL lock_timeout = '{_SECONDS}s'")
                return action(cursor)
            time.sleep(_SECONDS)  # in which others get the table
        raise OSError(
            "another session holds the table, or rows of it: "
            "run it again later, it goes on from here"
        )

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _batches_with_mapped(
        self, texts: bool, new: Any = None
    ) -> Iterator[tuple[pa.RecordBatch, Matrix]]:
        """The rows in the order of their keys, and the vectors in a new column, NaN for none.

        `new` is a `psycopg.sql.Identifier`. Each page is a query of its own: the cursor of one for
        all would end with the transaction that writes the first page.
        """
        beside = self.beside if texts else OF_SAMPLES
        columns = ["{column}", "{new}", *(f"{{{what}}}::text" for what in beside)]
        names = {"new": self.sql.SQL("NULL") if new is None else new, **self.beside}
        condition = "TRUE"
        while True:
            query = _ROWS.format(columns=", ".join(columns), condition=condition, size=self.size)
            rows = self._fetch(self._format(query, **names))
            if not rows:
                return
            keys, vectors, mapped, *others = zip(*rows, strict=True)
            column = vector_column(self._numbers_in(keys, vectors))
            batch = make_batch(keys, column, dict(zip(beside, others, strict=True)))
            yield batch, self._numbers_in(keys, mapped)
            names["last"] = self.sql.Literal(keys[-1])
            condition = f"{{key}} > {{last}}::{self._key_type}"

    def _numbers_in(self, keys: Sequence[str], vectors: Sequence[Any]) -> Matrix:
        """The vectors of pgvector, or None, (n, d), with NaN in rows that have none."""
        numbers = [None if vector is None else vector.to_numpy() for vector in vectors]
        return self.checked_matrix(keys, numbers)

    def _update_column(self, new: Any, batch: pa.RecordBatch) -> set[str]:
        """Write a batch as a whole, or not at all. Gives the keys of rows that are gone.

        A row whose vector is null gets null.
        """
        kinds = import_optional("pgvector", extra="pgvector", needed_for=_NEEDED_FOR)
        vector_class = kinds.HalfVector if self.type_name == "halfvec" else kinds.Vector
        keys = batch.column("id").to_pylist()
        vectors = batch_vectors(batch)
        update = self._format(_UPDATE.format(key_type=self._key_type), new=new)
        not_updated = self._format(_NOT_UPDATED.format(key_type=self._key_type), new=new)

        def run(cursor: Any) -> set[str]:
            cursor.execute(_STAGE.format(kind=self.type_name))
            with cursor.copy(_STAGE_ROWS) as copy:
                copy.set_types(["text", self.type_name])
                for key, vector in zip(keys, vectors, strict=True):
                    value = None if np.isnan(vector[0]) else vector_class(vector)
                    copy.write_row((key, value))
            cursor.execute(update, ())
            others = cursor.execute(not_updated, ()).fetchall()
            gone = {key for key, is_gone in others if is_gone}
            self.check_all_stored(len(keys) - len(gone), len(keys) - len(others))
            return gone

        gone: set[str] = self._run_briefly(run)
        return gone

    def _fetch(self, query: Any, values: Any = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, which is executed with values: a % in it is doubled."""
        with self.connection.cursor(binary=True) as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(query, values).fetchall()
        return rows

    def _format(self, query: str, **more: Any) -> Any:
        """A query with names in the place of {table}, {column}, {key} and those of `more`.

        In names % is doubled: the query has to be executed with values, if only with `()`.
        """
        parts = {
            "table": self.table,
            "column": self.sql.Identifier(self.name_in_store),
            "key": self.sql.Identifier(self.key),
            **more,
        }
        quoted = {}
        for what, part in parts.items():
            text = part.as_string(self.connection).replace("%", "%%")
            quoted[what] = self.sql.SQL(text)
        return self.sql.SQL(query).format(**quoted)

    def _field_expression(self, field: str | None, usual: Sequence[str]) -> Any:
        """A column, or a value in a column of JSON such as `metadata.language`, or NULL."""
        column, _, path = (field or "").partition(".")
        if path and field not in self.present:
            column = named_field(self.present, column, self.name)
            steps = [self.sql.Literal(step) for step in path.split(".")]
            value = self.sql.SQL("jsonb_extract_path({}::jsonb, {})").format(
                self.sql.Identifier(column), self.sql.SQL(", ").join(steps)
            )
            return self.sql.SQL(_JSON_AS_TEXT).format(value)
        present = find_field(self.present, field, usual, self.name)
        return self.sql.Identifier(present) if present else self.sql.SQL("NULL")


def _kept_name(name: str) -> str:
    """A name as PostgreSQL keeps it, which cuts long ones wherever they stand."""
    return name.encode()[:_LONGEST_NAME].decode(errors="ignore")
