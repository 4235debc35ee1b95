"""Vectors in a column of PostgreSQL, of pgvector's types `vector` and `halfvec`."""

from __future__ import annotations

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
    field_among,
    taken,
)

_METRICS: dict[str, Metric] = {"cosine": "cosine", "ip": "dot", "l2": "euclidean"}
_OPERATORS = {"dot": "<#>", "euclidean": "<->"}
_COLUMNS = """
SELECT attname, format_type(atttypid, NULL), atttypmod, col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_KEYS = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = %s AND indisprimary"""
_INDEXES = """
SELECT opcname FROM pg_index JOIN pg_opclass ON pg_opclass.oid = indclass[0]
JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] WHERE indrelid = %s AND attname = %s"""
_KEY_TYPES = (
    "smallint", "integer", "bigint", "numeric", "text", "character varying", "uuid", "date", "bytea",
    "timestamp without time zone", "timestamp with time zone",
)  # fmt: skip
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


class PostgresVectors(VectorSource):
    """A column of a table that has a primary key of one column."""

    def __init__(self, source: str, fields: Fields) -> None:
        address = parse_address(source, "table", "column", optional=None)
        self.name, self.fields, self.secrets = address.shown, fields, address.secrets
        psycopg = import_optional("psycopg", extra="pgvector", needed_for="vectors in PostgreSQL")
        pgvector = import_optional("pgvector.psycopg", extra="pgvector", needed_for="vectors in PostgreSQL")
        self.sql, table, column = psycopg.sql, address.values["table"], address.values["column"]
        others = {name: value for name, value in address.values.items() if name not in ("table", "column")}
        self.table = self.sql.Identifier(*table.split("."))
        with self.errors():
            place = f"postgresql:{address.place}"
            self.connection = psycopg.connect(place, autocommit=True, **{**_LIMITS, **others})
            pgvector.register_vector(self.connection)
            ((oid,),) = self._rows("SELECT to_regclass(%s)::oid", self.table.as_string(self.connection))
            columns = {name: rest for name, *rest in self._rows(_COLUMNS, oid)}
            keys = [name for (name,) in self._rows(_KEYS, oid)]
            classes = [name for (name,) in self._rows(_INDEXES, oid, column)]
        if oid is None:
            raise ValueError(f"{self.name}: there is no table {table}")
        lists = [name for name, (kind, *_) in columns.items() if kind in ("vector", "halfvec")]
        field_among(lists, column, (), f"{self.name}, among its columns of type vector and halfvec,")
        if len(keys) != 1:
            raise ValueError(f"{self.name}: the table needs a primary key of one column, by which rows are found again")
        self.column, self.kind, self.key, self.columns = column, columns[column][0], keys[0], columns
        comment = columns[column][2] or ""
        self.called, self.mark = column, comment.removeprefix(_MARK) if comment.startswith(_MARK) else None
        self.key_type = columns[self.key][0]
        self.language = self._field(fields.language, LANGUAGE_FIELDS)
        self.text, self.document = self._field(fields.text, ("text",)), self._field(fields.document, ())
        self.metric = next((_METRICS[name.split("_")[1]] for name in classes if name.split("_")[1] in _METRICS), None)
        self.dimension = columns[column][1]
        if self.dimension < 1:
            found = self._rows(
                self._sql("SELECT vector_dims({column}) FROM {table} WHERE {column} IS NOT NULL LIMIT 1")
            )
            if not found:
                raise ValueError(f"{self.name}: the column is empty")
            self.dimension = found[0][0]

    def __len__(self) -> int:
        with self.errors():
            return int(self._rows(self._sql("SELECT count(*) FROM {table}"))[0][0])

    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The rows in the order of their keys, by their keys."""
        text = self.text if everything else self.sql.SQL("NULL")
        fields = {"language": self.language, "text": text, "document": self.document}
        select = "SELECT {key}, {column}, {language}, {text}, {document} FROM {table}"
        first, rest = (
            self._sql(f"{select} {where} ORDER BY {{key}} LIMIT {size}", **fields) for where in ("", "WHERE {key} > %s")
        )
        found = self._rows(first)
        while found:
            keys, vectors, languages, texts, documents = zip(*found, strict=True)
            yield VectorRows(
                list(keys),
                self._vectors(keys, vectors),
                [str(code) if code not in (None, "") else None for code in languages],
                [str(text) if text is not None else None for text in texts],
                [str(document) if document not in (None, "") else None for document in documents],
            )
            found = self._rows(rest, keys[-1])

    def target(self, name: str, mark: str) -> VectorTarget:
        """A new column of the same table and type; a row without a vector has null in it."""
        if self.key_type not in _KEY_TYPES:
            raise ValueError(f"{self.name}: the key {self.key} is of {self.key_type}, not of {', '.join(_KEY_TYPES)}")
        if len(name.encode()) > _NAME:
            raise ValueError(f"{name}: PostgreSQL keeps {_NAME} bytes of a name: give a shorter one")
        return _Column(self, name, mark)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _rows(self, query: Any, *values: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor(binary=True) as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(query, values).fetchall()
            return rows

    def _sql(self, query: str, **more: Any) -> Any:
        """A query with names in it, in which % is doubled, as in every query that takes values."""
        name = self.sql.Identifier
        parts = {"table": self.table, "column": name(self.column), "key": name(self.key), **more}
        quoted = {what: part.as_string(self.connection).replace("%", "%%") for what, part in parts.items()}
        return self.sql.SQL(query).format(**{what: self.sql.SQL(part) for what, part in quoted.items()})

    def _field(self, named: str | None, usual: Sequence[str]) -> Any:
        """A column, or a value in a column of JSON such as `metadata.language`, or NULL."""
        column, _, path = (named or "").partition(".")
        if path and named not in self.columns:
            field_among(self.columns, column, usual, self.name)
            parts = self.sql.SQL(", ").join(map(self.sql.Literal, path.split(".")))
            return self.sql.SQL("jsonb_extract_path_text({}::jsonb, {})").format(self.sql.Identifier(column), parts)
        found = field_among(self.columns, named, usual, self.name)
        return self.sql.Identifier(found) if found else self.sql.SQL("NULL")

    def _vectors(self, keys: Any, found: Any) -> NDArray[np.float32]:
        vectors = np.full((len(found), self.dimension), np.nan, np.float32)
        for row, (key, vector) in enumerate(zip(keys, found, strict=True)):
            if vector is not None and vector.dimensions() != self.dimension:
                raise ValueError(
                    f"{self.name}: the vector of row {key} has {vector.dimensions()} numbers, not {self.dimension}"
                )
            if vector is not None:
                vectors[row] = vector.to_numpy()
        return vectors


class _Column(VectorTarget):
    continues = True

    def __init__(self, source: PostgresVectors, name: str, mark: str) -> None:
        self.source, self.comment = source, f"{_MARK}{mark}"
        self.column = source.sql.Identifier(name)
        self.is_new = name not in source.columns
        table, operator = source.table.as_string(source.connection), _OPERATORS.get(source.metric or "", "<=>")
        self.name = f"the column {name} of {table}"
        self.switch, self.back = (
            f"SELECT ... FROM {table} ORDER BY {quoted.as_string(source.connection)} {operator} %(query)s LIMIT 10"
            for quoted in (self.column, source.sql.Identifier(source.column))
        )
        if not self.is_new:
            if source.columns[name][2] != self.comment:
                raise taken(source.name, f"a column {name}")
            with source.errors():
                self.already = self._run("SELECT count(*) FROM {table} WHERE {new} IS NOT NULL")[0][0]

    def __enter__(self) -> VectorTarget:
        with self.source.errors(), self.source.connection.transaction():
            execute, comment = self.source.connection.execute, self.source.sql.Literal(self.comment)
            if self.is_new:
                kind = f"{self.source.kind}({self.source.dimension})"
                execute(self._sql(f"ALTER TABLE {{table}} ADD {{new}} {kind}"), ())
                execute(self._sql("COMMENT ON COLUMN {table}.{new} IS {comment}", comment=comment), ())
        return self

    def there(self, ids: list[Any]) -> set[Any]:
        mapped = "SELECT {key} FROM {table} WHERE {key} = ANY(%s) AND {new} IS NOT NULL"
        return {key for (key,) in self._run(mapped, ids)}

    def write(self, rows: VectorRows) -> None:
        """One transaction: a batch is there as a whole, or not at all."""
        kinds = import_optional("pgvector", extra="pgvector", needed_for="vectors in PostgreSQL")
        kind = {"vector": kinds.Vector, "halfvec": kinds.HalfVector}[self.source.kind]
        connection = self.source.connection
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TEMP TABLE mapped_rows (key {self.source.key_type}, mapped {self.source.kind}) ON COMMIT DROP"
            )
            with cursor.copy("COPY mapped_rows FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types([self.source.key_type, self.source.kind])
                for key, vector in zip(rows.ids, rows.vectors, strict=True):
                    if not np.isnan(vector[0]):
                        copy.write_row((key, kind(vector)))
            update = (
                "UPDATE {table} SET {new} = mapped_rows.mapped FROM mapped_rows WHERE {table}.{key} = mapped_rows.key"
            )
            cursor.execute(self._sql(update), ())

    def _sql(self, text: str, **more: Any) -> Any:
        return self.source._sql(text, new=self.column, **more)

    def _run(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.source._rows(self._sql(text), *values)
