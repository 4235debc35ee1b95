"""What every store of vectors does: give its rows as Arrow batches, and make something new for mapped vectors."""

import os
import re
import warnings
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm.auto import tqdm

from st_xlret.languages import (
    LanguageIdentifier,
    check_languages,
    language_of_label,
    match_language,
)
from st_xlret.secrets import without_secrets

Metric = Literal["cosine", "dot", "euclidean"]
Change = Callable[[pa.RecordBatch], pa.RecordBatch]
Matrix = NDArray[np.float32]

STORES = {
    "qdrant": ("databases", "QdrantStore"),
    "postgresql": ("databases", "PostgresStore"),
    "lance": ("files", "LanceStore"),
    "chroma": ("databases", "ChromaStore"),
    ".parquet": ("files", "ParquetStore"),
    ".npy": ("files", "NumpyStore"),
    ".faiss": ("files", "FaissStore"),
}
USUAL_FIELDS: dict[str, tuple[str, ...]] = {
    "language": ("language", "lang", "metadata.language", "metadata.lang"),
    "text": ("text", "page_content"),
    "source": ("source", "url", "metadata.source", "metadata.url"),
    "group": (),
}
"""What is read beside a vector, and the fields that usually have it."""
METRICS: dict[str, Metric] = {
    "cosine": "cosine",
    "dot": "dot",
    "ip": "dot",
    "euclid": "euclidean",
    "l2": "euclidean",
}
"""What the stores call the metrics, in lower case."""
_NO_CODE = "with a language that is no code, such as"
_SHORTEST = np.finfo(
    np.float32
).tiny  # the square of the shortest length of which float32 has all digits
_IDENTIFIED = 100_000  # texts whose language a sample identifies


class Fields(NamedTuple):
    """Where a store has what. None: the usual names, see `open_store`."""

    vector: str | None = None
    language: str | None = None
    text: str | None = None
    group: str | None = None
    languages_file: str | None = None

    def paths(self, name: str) -> tuple[str, ...]:
        """The field named for one of `USUAL_FIELDS`, or the usual ones."""
        field = getattr(self, name, None)
        return (field,) if field else USUAL_FIELDS[name]

    def columns_of_payloads(self, payloads: Iterable[Any]) -> dict[str, list[str | None]]:
        """The columns beside the vectors, from the payload of each row."""
        return {
            name: [payload_value(payload, *self.paths(name)) for payload in payloads]
            for name in USUAL_FIELDS
        }


class Store(AbstractContextManager["Store"]):
    """Stored vectors. A `with` block closes the connection to a database."""

    name: str  # for messages, without passwords and keys
    name_in_store: str  # of the column, named vector, collection, table or file that has the vectors; in the mark
    dimension: int
    numbers: Any = np.float32  # the type of those that it holds
    metric: Metric | None = (
        None  # None where the store does not say, as for the model and what identifies its weights
    )
    model: str | None = None
    fingerprint: str | None = None
    mark: str | None = None  # by which map `apply_calibration` made the vectors, and from which
    fields: Fields = Fields()
    present: Collection[str] = ()  # names of its fields, if it knows them
    secrets: tuple[str, ...] = ()  # which no message shows
    size: int = 8192  # rows in a batch, at most
    _identify_language = cached_property(lambda self: LanguageIdentifier().identify)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, texts: bool) -> Iterator[pa.RecordBatch]:
        """The rows; see `batches`."""

    @abstractmethod
    def write(self, into: str, mark: str, change: Change) -> int:
        """Write rows with the vectors that `change` gives them into something new, which bears the mark.

        A row whose vector is null is left out, or stored without one. A file or table is whole or not there; a database
        continues what has this mark. Returns how many rows were deleted in the store before they could be written.
        """

    def close(self) -> None:  # noqa: B027
        """Close the connection, if there is one."""

    def __exit__(self, *error: Any) -> None:
        self.close()

    def batches(self, *, texts: bool = False) -> Iterator[pa.RecordBatch]:
        """All rows, in constant memory; with `texts` also these, where they are from, and their groups.

        The batches have the columns `id` (the store's key, or the number from 0), `vector` (lists of `dimension`
        float32), `language`, `text`, `source` and `group`; null where a row has none.
        """
        with self.sanitize_errors():
            yield from self.read(texts or self.fields.text is not None)

    def nullable_vector_column(self, vectors: Sequence[Any]) -> pa.Array:
        """Vectors as a database gives them, or None, as a column of a batch."""
        missing = [np.nan] * self.dimension
        rows = np.array([missing if vector is None else vector for vector in vectors], np.float32)
        return vector_column(rows.reshape(len(vectors), self.dimension))

    def check_rows(
        self,
        batch: pa.RecordBatch,
        left_out: Counter[str],
        *,
        needs_language: bool = True,
        drawn: Any = True,
    ) -> tuple[Matrix, NDArray[np.bool_], NDArray[Any]]:
        """Vectors (n, d), whether a row has a finite one and a language, (n,), and the languages, (n,), "" for none.

        `left_out` counts the rows that cannot be used, by the reason. A row that needs a language and names none gets
        that of its text, if it is `drawn`, (n,), and a text field is named. Where no language is needed, labels that
        are no codes stay.
        """
        vectors = batch_vectors(batch)
        squares = np.einsum("nd,nd->n", vectors, vectors)
        is_usable = np.isfinite(squares) & (squares >= _SHORTEST)
        left_out["without a vector that can be mapped"] += int((~is_usable).sum())
        labels_and_codes = [
            _label_and_code(label) for label in batch.column("language").to_pylist()
        ]
        labels, codes = np.array(labels_and_codes, object).reshape(-1, 2).T
        if not needs_language:
            return vectors, is_usable, np.where(codes == "", labels, codes)
        if self.fields.text is not None:
            for row in np.flatnonzero(drawn & is_usable & (labels == "")).tolist():
                text = batch.column("text")[row].as_py()
                codes[row] = self._identify_language(text) if text else ""
        lacking = np.flatnonzero(drawn & is_usable & (codes == ""))
        unreadable = [label for label in labels[lacking].tolist() if label]
        left_out["without a language"] += len(lacking) - len(unreadable)
        if unreadable:
            reason = next(
                (why for why in left_out if _NO_CODE in why), f"{_NO_CODE} {unreadable[0][:40]!r}"
            )
            left_out[reason] += len(unreadable)
        return vectors, is_usable & (codes != ""), codes

    def sample(
        self,
        per_language: int,
        *,
        languages: Collection[str] | None = None,
        seed: int = 0,
        show_progress_bar: bool = False,
    ) -> dict[str, Matrix]:
        """Vectors of each language, drawn in one pass so that every row has the same chance.

        All rows are read. Those without a vector or a language are left out, with a warning that counts them. Of rows
        whose language has to be identified, about 100 000 are looked at.

        Without `languages`, all are drawn from; `"pt"` takes `"pt-br"`, too. One that has no vector is a `ValueError`,
        as are labels of which most are no codes. Gives language -> (n, d) float32, in the order of the codes.
        """
        generator, wanted = np.random.default_rng(seed), check_languages(languages)
        lots_and_vectors: dict[str, tuple[NDArray[np.float64], Matrix]] = {}
        left_out, known, total = Counter[str](), Counter[str](), len(self)
        share = 1.0 if self.fields.text is None else _IDENTIFIED / max(1, total)
        with tqdm(total=total, desc="Sampling", unit=" rows", disable=not show_progress_bar) as bar:
            for batch in self.batches():
                bar.update(batch.num_rows)
                lots = generator.random(batch.num_rows)
                vectors, is_usable, codes = self.check_rows(batch, left_out, drawn=lots < share)
                known.update(codes[is_usable].tolist())
                codes = np.array([match_language(code, wanted) for code in codes], dtype=object)
                for code in {*codes[is_usable].tolist()} - {None}:
                    chosen = np.flatnonzero(is_usable & (codes == code))
                    before = lots_and_vectors.get(code, (lots[:0], vectors[:0]))
                    merged = np.concatenate([before[0], lots[chosen]])
                    lowest = np.argsort(merged)[:per_language]
                    lots_and_vectors[code] = (
                        merged[lowest],
                        np.concatenate([before[1], vectors[chosen]])[lowest],
                    )
        missing = (wanted or frozenset()) - set(lots_and_vectors)
        if (
            missing
            or not known
            or sum(left_out[why] for why in left_out if _NO_CODE in why) > known.total()
        ):
            there_are, lacking = (
                ", ".join(sorted(known)[:20]) or "none",
                ", ".join(sorted(missing)) or "any",
            )
            alike = [
                field
                for field in self.present
                if "lang" in field.lower() or "locale" in field.lower()
            ]
            raise ValueError(
                f"{self.name}: of {total} rows none has a vector and a language ({lacking}); there are {there_are}, "
                f"left out are {counts_in_words(left_out) or 'no rows'}. Languages come from a field "
                f"(--language_field; {', '.join(alike) or 'none'} looks like one), a file with a code a line "
                "(--languages_file), or texts (--text_field)"
            )
        if left_out.total():
            warnings.warn(f"{self.name}: left out: {counts_in_words(left_out)}", stacklevel=2)
        return {code: lots_and_vectors[code][1] for code in sorted(lots_and_vectors)}

    def refuse_mapped(self) -> None:
        """Refuse vectors that `apply_calibration` has made, and name those that they were made from."""
        if self.mark is not None:
            original = self.mark.partition(" of ")[2]
            raise ValueError(
                f"{self.name} is mapped already: take the vectors that these were made from, {original}"
            )

    def refuse_taken(
        self, what: str, is_taken: bool, mark: str | None = None, mark_there: str | None = None
    ) -> None:
        """Refuse a name under which there is something, unless it bears the same mark."""
        if is_taken and (mark is None or mark_there != mark):
            raise FileExistsError(
                f"{self.name}: {what} is there already: nothing is overwritten, give another name"
            )

    def check_stored_rows(self, sent: int, present: int, stored: int) -> int:
        """Raise an `OSError` if fewer rows are `stored` than `present`; gives how many of those `sent` are gone."""
        if stored < present:
            why = "a trigger, a rule or a policy leaves rows out, or the server has lost them"
            raise OSError(
                f"{self.name} has taken {stored} of {present} vectors: {why}. Run it again for the others"
            )
        return sent - present

    @contextmanager
    def sanitize_errors(self) -> Iterator[None]:
        """Errors of the store's client name the store, and show no password or key."""
        try:
            yield
        except Exception as error:
            message = " ".join(str(error).split()) or type(error).__name__
            for secret in self.secrets:
                message = message.replace(secret, "***")
            kind = ValueError if isinstance(error, ValueError) else OSError
            named = kind(message if self.name in message else f"{self.name}: {message}")
            says_enough = isinstance(error, ImportError | FileExistsError | FileNotFoundError)
            raise (error if says_enough else named) from None


def open_store(
    address: str | os.PathLike[str],
    *,
    vector_field: str | None = None,
    language_field: str | None = None,
    text_field: str | None = None,
    group_field: str | None = None,
    languages_file: str | os.PathLike[str] | None = None,
) -> Store:
    r"""Open stored vectors, wherever they are. Nothing but their description is read.

    Args:
        address: A `.parquet` file or a folder of them; `.npy`; `.faiss`, flat or IVF;
            `qdrant:PATH_OR_URL?collection=C&vector=V` (the key is QDRANT_API_KEY); `lance:PATH?table=T&column=V`;
            `postgresql://USER@HOST/DATABASE?table=T&column=V` (pgvector); `chroma:PATH_OR_URL?collection=C`.
        vector_field: Column of the vectors in Parquet and LanceDB. Default: `vector`.
        language_field: Field of the languages, such as `metadata.language`. Default: the first usual one of a row.
        text_field: Field of the texts. Rows without a language then get the one that the extra `langid` finds in their
            text. Default: `text` or `page_content`, for the texts alone.
        group_field: Field of what versions of one text have in common.
        languages_file: For `.npy` and `.faiss`: a file with a code a line, in the order of the vectors.
    """
    address = os.fspath(address)
    scheme, path = address.partition(":")[0], Path(address).expanduser()
    kind = (
        scheme
        if scheme in STORES
        else ".parquet"
        if address.strip() and path.is_dir()
        else path.suffix
    )
    file, problem = None if languages_file is None else os.fspath(languages_file), None
    fields = Fields(vector_field, language_field, text_field, group_field, file)
    if (
        kind not in STORES
        or kind != scheme
        and ("://" in address or "@" in address and not path.exists())
    ):
        problem = f"names no stored vectors; known are {', '.join(STORES)}"
    elif file is not None and kind not in (".npy", ".faiss"):
        problem = f"has a field of languages: --languages_file {file} is for .npy and .faiss files"
    elif kind in (".npy", ".faiss") and any(fields[:-1]):
        problem = f"has no fields, and {next(filter(None, fields))!r} is one: languages are in --languages_file"
    if problem:
        raise ValueError(f"{parse_address(address, optional=None)[2]} {problem}")
    module, name = STORES[kind]
    return cast(Store, getattr(import_module(f"st_xlret.stores.{module}"), name)(address, fields))


def parse_address(
    address: str, *required: str, optional: Sequence[str] | None = ()
) -> tuple[str, dict[str, str], str, tuple[str, ...]]:
    """Take an address apart, `scheme:PLACE?name=value`, whose place is a folder or a URL.

    With `optional=None`, any name and any place will do; names that are not required are not shown. Gives the place,
    with user and password; the values; the address without user, password and key, for messages; and these secrets.
    """
    scheme, _, rest = address.partition(":")
    place, _, query = rest.partition("?")
    values, login, names = dict(parse_qsl(query)), _login_in(rest), [*required, *(optional or ())]
    settings = "&".join(
        f"{name}={values[name]}" for name in values if name in names and name != "api_key"
    )
    shown = f"{scheme}:{without_secrets(place.replace(login, '', 1))}?{settings}".removesuffix("?")
    missing, unknown = (
        [name for name in required if not values.get(name)],
        sorted({*values} - {*names}),
    )
    problem = None
    if set(login[:-1]) & set("/?#@[]"):
        shown, problem = (
            scheme,
            "the user or password has one of / ? # @ [ ]: write %2F %3F %23 %40 %5B %5D instead",
        )
    elif missing:
        problem = f"{missing[0]} is missing; write {scheme}:PLACE?{'&'.join(f'{name}=...' for name in required)}"
    elif optional is not None and unknown:
        problem = f"unknown {', '.join(unknown)}; known are {', '.join(names)}"
    elif (
        optional is not None
        and not place.startswith(("http://", "https://"))
        and not os.path.isdir(place)
    ):
        problem = "there is no such folder"  # which the client would make
    if problem:
        raise ValueError(f"{shown}: {problem}")
    passwords = [values[name] for name in values if "key" in name or "password" in name]
    passwords += [
        login[:-1].partition(":")[2],
        *re.findall(r"password\s*=\s*'?([^\s']+)", place),
    ]  # of libpq's form
    secrets = {form for password in passwords if password for form in (password, unquote(password))}
    return place, values, shown, tuple(secrets)


def _login_in(rest: str) -> str:
    """`user:password@` in an address after its scheme; "" where an @ is part of a path."""
    before, slashes, authority = rest.partition("//")
    place = before.partition("?")[0]
    login, at, _ = (authority if slashes else place).rpartition("@")
    is_path = not slashes and (os.path.exists(place) or (":" not in login and "/" in login))
    return "" if is_path else login + at


def batch_vectors(batch: pa.RecordBatch) -> Matrix:
    """The vectors of a batch, (n, d), with NaN in rows that have none."""
    column = batch.column("vector")
    width = column.type.list_size
    numbers = column.values.slice(column.offset * width, len(column) * width).to_numpy(
        zero_copy_only=False
    )
    rows: Matrix = numbers.reshape(len(column), width)
    if column.null_count:
        rows = rows.copy()
        rows[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return rows


def vector_column(vectors: Matrix) -> pa.FixedSizeListArray:
    """Vectors (n, d) as an Arrow column; rows that begin with NaN are null."""
    missing = np.isnan(vectors[:, 0])
    mask = pa.array(missing) if missing.any() else None
    numbers = pa.array(np.ascontiguousarray(vectors).ravel())
    return pa.FixedSizeListArray.from_arrays(numbers, vectors.shape[1], mask=mask)


def make_batch(
    ids: Iterable[Any], vectors: pa.Array, beside: Mapping[str, Any] | None = None
) -> pa.RecordBatch:
    """A batch as `Store.batches` gives them; columns that are not `beside` the vectors are null."""
    columns: dict[str, Any] = dict.fromkeys(USUAL_FIELDS, pa.nulls(len(vectors)))
    columns |= {"id": list(map(str, ids)), **(beside or {})}
    strings = {name: _string_column(pa.array(values)) for name, values in columns.items()}
    return pa.record_batch({**strings, "vector": vectors})


def _string_column(column: pa.Array) -> pa.Array:
    """A column as text; where Arrow refuses a value, such as bytes that are no UTF-8, as Python writes each."""
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        values = [
            one.decode("utf-8", "replace") if isinstance(one, bytes) else one
            for one in column.to_pylist()
        ]
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def counts_in_words(left_out: Mapping[str, int]) -> str:
    """Counts of rows by reason, in words."""
    return "; ".join(
        f"{count} row{'s' * (count > 1)} {reason}" for reason, count in left_out.items() if count
    )


def find_field(
    present: Collection[str], field: str | None, usual: Sequence[str], where: str
) -> str | None:
    """The field that was named, or the first usual one that is there; a `ValueError` lists what there is instead."""
    chosen = next((name for name in usual if name in present), None) if field is None else field
    count = 1 if chosen is None else list(present).count(chosen)
    if count != 1:
        number, fields = f"{count} fields" if count else "no field", list(present)[:20]
        raise ValueError(
            f"{where} has {number} {chosen!r}; it has {', '.join(map(repr, fields)) or 'none'}"
        )
    return chosen


def payload_value(payload: Any, *paths: str) -> str | None:
    """The first value that a nested payload has at one of the paths, such as "metadata.lang"."""
    for path in paths:
        value = payload
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value not in (None, "") and value == value:
            return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return None


def metric_of(name: str | None, where: str) -> Metric | None:
    """The metric that a store calls so; None if it calls none, and a `ValueError` for one that maps do not keep."""
    if name and name.lower() not in METRICS:
        raise ValueError(
            f"{where} compares vectors by {name}; maps are for cosine, dot product and Euclidean distance"
        )
    return METRICS[name.lower()] if name else None


def model_name_in(settings: Mapping[str, Any]) -> str | None:
    """The name of the model in a client's settings of an embedding function, or in a collection's metadata."""
    names = (settings.get(key) for key in ("model_name", "model", "name"))
    name = next((name for name in names if isinstance(name, str)), "")
    return (
        "".join(letter for letter in name if letter.isprintable() and letter not in "`<>") or None
    )  # pages show it


def first_vector_length(vectors: Iterable[Any]) -> int:
    """Numbers in the first vector that there is; 0 if there is none."""
    return len(next((vector for vector in vectors if vector is not None), ()))


@lru_cache(maxsize=65_536)
def _label_and_code(label: str | None) -> tuple[str, str]:
    """A label and its code; "" for a label that is missing, and for the code of one that is none."""
    try:
        code = language_of_label(label) or ""
    except ValueError:
        return label or "", ""
    return code, code
