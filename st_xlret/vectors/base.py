"""What every store of vectors can do: give rows in batches, a sample of each language, and a place for mapped rows."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

Metric = Literal["cosine", "dot", "euclidean"]

LANGUAGE_FIELDS = ("language", "lang")
_NAMED = 5  # rows that a message names
_SHORTEST = np.finfo(np.float32).tiny  # the square of the shortest length of which float32 has all digits
_SHOWN = 20  # fields that a message lists
_IDENTIFIED = 100_000  # texts whose language a sample identifies
_MODEL_NAMES = ("model_name", "model", "name")  # where a client's settings of an embedding function have the model


class Fields(NamedTuple):
    """Where a store has what. None: the usual names, see `open_vectors`."""

    vector: str | None = None
    language: str | None = None
    text: str | None = None
    document: str | None = None
    languages_file: str | None = None


class VectorRows(NamedTuple):
    """Some rows of a source.

    Attributes:
        ids: What the store calls the rows: their keys, or their numbers from 0.
        vectors: (n, d) float32; NaN in rows without a vector.
        languages: Code of each row, None where there is none.
        texts: Text of each row, None where there is none, and everywhere unless everything was asked for.
        documents: Document that each row is from, None where there is none, and everywhere unless its field was named.
        records: The other fields in the store's own form, for its target: a list, or an Arrow batch. None unless
            everything was asked for.
    """

    ids: Sequence[Any]
    vectors: NDArray[np.float32]
    languages: list[str | None]
    texts: list[str | None]
    documents: list[str | None]
    records: Any = None

    def of(self, chosen: NDArray[np.bool_]) -> VectorRows:
        """The chosen rows; (n,) of whether a row is."""
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen).tolist()
        numbers = np.array(rows, np.int64)
        columns = (self.ids, self.languages, self.texts, self.documents, self.records)
        ids, languages, texts, documents, records = (
            [column[i] for i in rows] if isinstance(column, Sequence) else column and column.take(numbers)
            for column in columns
        )
        return VectorRows(ids, self.vectors[chosen], languages, texts, documents, records)

    def usable(self) -> NDArray[np.bool_]:
        """Which rows have a vector that can be mapped, of finite numbers and a length; (n,)."""
        squares = np.einsum("nd,nd->n", self.vectors, self.vectors)
        return np.isfinite(squares) & (squares >= _SHORTEST)


class LeftOut:
    """Rows that cannot be used: counted, and the first of them named."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._first: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, reason: str, ids: Iterable[Any]) -> None:
        """Count rows under a reason such as "without a vector"."""
        for name in ids:
            self.counts[reason] += 1
            if len(self._first[reason]) < _NAMED:
                self._first[reason].append(str(name))

    def add_vectors(self, rows: VectorRows, usable: NDArray[np.bool_]) -> None:
        """Count the rows whose vectors are not usable, by what is wrong with them."""
        for i in np.flatnonzero(~usable).tolist():
            vector = rows.vectors[i]
            is_short = np.abs(vector).max() < 1
            reason = "whose vector is zero, or nearly" if is_short else "with numbers that are infinite or too large"
            self.add("without a vector (or with NaN)" if np.isnan(vector).any() else reason, [rows.ids[i]])

    def __str__(self) -> str:
        parts = []
        for reason, count in self.counts.items():
            first = ", ".join(self._first[reason])
            more = ", ..." if count > _NAMED else ""
            parts.append(f"{count} row{'s' * (count > 1)} {reason} ({first}{more})")
        return "; ".join(parts)


class VectorTarget(ABC):
    """Where mapped vectors go: something new beside their source, which a `with` block makes, or continues.

    Attributes:
        name: What it is, for messages: "the column mapped of docs".
        switch: The line of a program's own query code that searches the mapped vectors.
        back: The line that searches the stored vectors, as before.
        continues: Whether what an interrupted run has written stays, for the next one to continue.
        everything: Whether `write` copies the other fields, so that it has to be given everything.
        already: Rows that are there from an interrupted run.
    """

    name: str
    switch: str
    back: str
    continues: bool = False
    everything: bool = False
    already: int = 0

    @abstractmethod
    def __enter__(self) -> VectorTarget: ...

    def __exit__(self, *error: Any) -> Any:  # noqa: B027
        """Finish what is written. A database has each batch already."""

    def missing(self, rows: VectorRows) -> NDArray[np.bool_]:
        """Which rows are not there yet, (n,)."""
        there = self.there(list(rows.ids)) if self.already else ()
        return np.array([name not in there for name in rows.ids])

    def there(self, ids: list[Any]) -> Collection[Any]:
        """Those of the rows that are there."""
        return ()

    @abstractmethod
    def write(self, rows: VectorRows) -> None:
        """Write rows with their mapped vectors. A row of NaN has none: it is left out, or stored without a vector."""


class VectorSource(ABC):
    """Stored vectors.

    Attributes:
        name: What it is, for messages; without passwords and keys.
        called: What the store itself calls the vectors: a column, a named vector, a collection, a table, a file.
        dimension: Numbers in a vector.
        metric: How the store compares vectors, if it says: "cosine", "dot" or "euclidean".
        model: Name of the model that made the vectors, if the store says.
        fingerprint: What identifies its weights, if the store says.
        mark: By which map `apply_calibration` has made the vectors, and from which; None for vectors as they were made.
        fields: The fields asked for.
        secrets: Passwords and keys, which no message shows.
    """

    name: str
    called: str
    dimension: int
    metric: Metric | None = None
    model: str | None = None
    fingerprint: str | None = None
    mark: str | None = None
    fields: Fields = Fields()
    secrets: tuple[str, ...] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, size: int, everything: bool) -> Iterator[VectorRows]:
        """The rows as the store has them, at most `size` at a time."""

    @abstractmethod
    def target(self, name: str, mark: str) -> VectorTarget:
        """A new place for mapped vectors. Nothing is written before its `with` block.

        Args:
            name: What to call it: a file, column, named vector, collection or table, as the store has them.
            mark: Names the map and these vectors. What is there under the name is continued if it has this mark.

        Raises:
            FileExistsError: If there is something else under the name.
        """

    def batches(self, size: int = 4096, *, everything: bool = False) -> Iterator[VectorRows]:
        """All rows, at most `size` at a time, in constant memory.

        Args:
            size: Rows in a batch.
            everything: Also read texts and the other fields.

        Raises:
            OSError: If the store fails; the message names it.
            ValueError: If the store has vectors of another length.
        """
        with self.errors():
            rows = self.read(size, everything)
            yield from rows if self.fields.languages_file is None else self._labelled(rows, self.fields.languages_file)

    def sample(
        self,
        per_language: int,
        *,
        seed: int = 0,
        languages: Collection[str] | None = None,
        show_progress_bar: bool = False,
    ) -> dict[str, NDArray[np.float32]]:
        """Vectors of each language, drawn in one pass so that every row has the same chance.

        All rows are read: stores are often in the order of their documents, so that the first rows of a language are
        about few subjects, and a language may come last. Rows without a vector or a language are left out, with a
        warning that counts and names them. Of rows whose language has to be identified from a text, 100 000 are looked
        at, drawn at random.

        Args:
            per_language: Vectors to draw from each language; all, where there are fewer.
            seed: Seed of the draw.
            languages: The languages to draw from. Default: all.
            show_progress_bar: Show how many rows are read.

        Returns:
            Language -> (n, d) float32, in the order of the codes.

        Raises:
            ValueError: If no row has a vector and a language, or one of `languages` has none.
        """
        generator = np.random.default_rng(seed)
        found: dict[str, tuple[NDArray[np.float64], NDArray[np.float32]]] = {}
        left_out, there_are, passed_over = LeftOut(), set[str](), 0
        total = len(self)
        share = 1.0 if self.fields.text is None else _IDENTIFIED / max(1, total)
        bar = tqdm(total=total, desc="Sampling", unit=" rows", disable=not show_progress_bar)
        for rows in self.batches(everything=self.fields.text is not None):
            bar.update(len(rows.ids))
            lots = generator.random(len(rows.ids))
            looked_at = (lots < share) | np.array([code is not None for code in rows.languages])
            rows, lots, passed_over = rows.of(looked_at), lots[looked_at], passed_over + int((~looked_at).sum())
            codes = np.array([code or "" for code in self.languages_of(rows)])
            usable = rows.usable()
            left_out.add_vectors(rows, usable)
            left_out.add("without a language", (rows.ids[i] for i in np.flatnonzero(usable & (codes == "")).tolist()))
            there_are |= set(codes[usable].tolist()) - {""}
            for code in set(codes[usable].tolist()) - {""}:
                if languages is not None and code not in languages:
                    continue
                lots_before, before = found.get(code, (np.empty(0), np.empty((0, self.dimension), np.float32)))
                own = np.flatnonzero(usable & (codes == code))
                if len(before) == per_language:
                    own = own[lots[own] < lots_before.max()]
                merged = np.concatenate([lots_before, lots[own]])
                kept = np.argsort(merged)[:per_language]
                found[code] = merged[kept], np.concatenate([before, rows.vectors[own]])[kept]
        bar.close()
        if not total:
            raise ValueError(f"{self.name} has no vectors")
        missing = sorted(set(languages or ()) - set(found))
        if missing and there_are:
            known = ", ".join(sorted(there_are)[:_SHOWN])
            drawn = (
                f". Some may be among the {passed_over} of {total} rows that were not drawn to have their language "
                "identified: leave a rare language out, or store the languages in a field"
            ) * (passed_over > 0)
            raise ValueError(f"{self.name}: no vector is in {', '.join(missing)}; there are {known}{drawn}")
        if not found:
            there = ", ".join(self.payload_fields()[:_SHOWN])
            raise ValueError(
                f"{self.name}: of {total} rows none has a vector and a language. Languages come from a "
                f"field (--language_field{f'; there are {there}' if there else ''}), from a file with a code a line "
                "(--languages_file, for .npy and .faiss), or from texts (--text_field, with the extra langid)"
            )
        if left_out.counts:
            warnings.warn(f"{self.name}: left out: {left_out}", stacklevel=2)
        return {code: found[code][1] for code in sorted(found)}

    def languages_of(self, rows: VectorRows) -> list[str | None]:
        """The languages of rows; where one is missing, and a text field is named, identified from the text."""
        if self.fields.text is None or all(rows.languages):
            return rows.languages
        if self._identifier is None:
            from st_xlret.languages import LanguageIdentifier

            self._identifier = LanguageIdentifier()
        pairs = zip(rows.languages, rows.texts, strict=True)
        return [code or (self._identifier.identify(text) if text else None) for code, text in pairs]

    def payload_fields(self) -> list[str]:
        """The fields of the first rows, where each row has fields of its own."""
        return []

    def refuse_mapped(self) -> None:
        """Refuse vectors that `apply_calibration` has made; the `ValueError` names those that they were made from."""
        if self.mark is not None:
            original = self.mark.partition(" of ")[2]
            raise ValueError(
                f"{self.name}: a calibration has mapped these vectors already, and a second one would distort them: "
                f"take those that they were made from, {original}"
            )

    def close(self) -> None:  # noqa: B027
        """Close the connection to the store, if there is one; a `with` block does."""

    def __enter__(self) -> VectorSource:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    _identifier: Any = None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the store's client name the source, and show no password or key."""
        try:
            yield
        except (ImportError, FileExistsError, FileNotFoundError):
            raise
        except Exception as error:
            message = " ".join(str(error).split()) or type(error).__name__
            safe = message
            for secret in self.secrets:
                safe = safe.replace(secret, "***")
            if isinstance(error, ValueError | OSError) and self.name in message == safe:
                raise
            kind = ValueError if isinstance(error, ValueError) else OSError
            raise kind(f"{self.name}: {safe}") from (error if safe == message else None)

    def _labelled(self, batches: Iterable[VectorRows], file: str) -> Iterator[VectorRows]:
        """Rows with the languages of a file, a line for each row."""
        with open(file, encoding="utf-8") as lines:
            for rows in batches:
                try:
                    codes = [line.strip() or None for line in islice(lines, len(rows.ids))]
                except UnicodeDecodeError as error:
                    raise ValueError(f"{file} is no text in UTF-8: {error}") from error
                if len(codes) < len(rows.ids):
                    raise ValueError(f"{file} has fewer lines than {self.name} has vectors, {len(self)}")
                yield rows._replace(languages=codes)
            if next(lines, None) is not None:
                raise ValueError(f"{file} has more lines than {self.name} has vectors, {len(self)}")


def field_among(present: Collection[str], named: str | None, usual: Sequence[str], where: str) -> str | None:
    """The field that was named, or the first usual one that is there; a `ValueError` lists what there is instead."""
    if named is None:
        return next((name for name in usual if name in present), None)
    if named not in present:
        there = ", ".join(map(repr, list(present)[:_SHOWN])) + f", ... ({len(present)})" * (len(present) > _SHOWN)
        raise ValueError(f"{where} has no field {named!r}; it has {there}")
    return named


def named_model(settings: Mapping[str, Any]) -> str | None:
    """The name of the model in a client's settings of an embedding function, or in a collection's metadata."""
    found = (settings.get(name) for name in _MODEL_NAMES)
    return next((name for name in found if isinstance(name, str)), None)


def taken(where: str, what: str) -> FileExistsError:
    """The error for a name under which there is something that was not made by the same map."""
    return FileExistsError(
        f"{where} has {what} already, not made by this map in this way: nothing is overwritten, give another name"
    )


def fields_among(payloads: Iterable[Any]) -> list[str]:
    """The fields that payloads have, in the order of the alphabet."""
    return sorted({name for payload in payloads for name in payload or ()})


def value_at(payload: Any, named: str | None, usual: Sequence[str] = LANGUAGE_FIELDS) -> str | None:
    """A value of a nested payload: of the field named, such as "metadata.lang", or of the first usual one."""
    for path in usual if named is None else (named,):
        value = payload
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value not in (None, ""):
            return str(value)
    return None


def cast(array: NDArray[Any], kind: Any) -> NDArray[Any]:
    """The numbers in another floating-point type. PyTorch casts float16 three to five times as fast as NumPy."""
    if array.dtype == kind or np.float16 not in (array.dtype, kind) or not array.flags.c_contiguous:
        with np.errstate(over="ignore"):  # a float64 that float32 does not hold becomes infinite, which is not usable
            return array.astype(kind, copy=False)
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is read only
        given = torch.from_numpy(array)
    return given.to(getattr(torch, np.dtype(kind).name)).numpy()


def existing_file(path: str) -> Path:
    """The path of a file or folder that is there."""
    found = Path(path).expanduser()
    if not found.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    return found
