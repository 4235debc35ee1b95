"""Map the vectors of a source into something new beside them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from st_xlret.vectors.base import LeftOut, VectorRows, VectorSource, VectorTarget
from st_xlret.vectors.calibration import VectorCalibration

_ROWS = 8192  # in a batch
_SECONDS = 3.0  # of a dry run


@dataclass
class Applied:
    """What `apply_calibration` has done, or would do.

    Attributes:
        target: Where the mapped vectors are, with the line of query code that searches them, and the way back.
        written: Rows that were written.
        left_out: Rows that could not be mapped.
        added: Rows that were added to the source meanwhile and not read: running it again maps them.
        translated: Rows of the source that share their vectors with translations.
        pairs: Pairs of these.
        documents: Documents whose chunks the rows are, where their field was named.
        seconds: How long it took; of a dry run, how long reading and mapping all rows would take.
    """

    target: VectorTarget
    written: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    added: int = 0
    translated: int = 0
    pairs: int = 0
    documents: int = 0
    seconds: float = 0.0


def apply_calibration(
    calibration: VectorCalibration,
    source: VectorSource,
    into: str,
    *,
    share_translations: bool = False,
    dry_run: bool = False,
    show_progress_bar: bool = True,
) -> Applied:
    """Write the mapped vectors of a source into something new. Nothing that is there is changed.

    In a database every batch counts: an interrupted run is continued by the same call, which also maps rows that were
    added since. A file is written whole or not at all.

    Args:
        calibration: The map.
        source: The stored vectors, see [`open_vectors`][st_xlret.vectors.open_vectors].
        into: Name of the new file (`.npy`, `.parquet`, `.faiss`), named vector or collection (Qdrant), column
            (PostgreSQL), table (LanceDB) or collection (Chroma).
        share_translations: Let texts that say the same in several languages share their vectors, see
            [`share_translations`][st_xlret.share_translations]. All vectors are then in memory, in float32
            and up to three times, and the time grows with the square of their number. Rows that are added later find
            their translations among all rows; vectors that are written already stay as they are. If the rows are
            chunks that overlap, open the source with its `document_field`.
        dry_run: Write nothing; map for some seconds to see how long it takes.
        show_progress_bar: Show how many rows are done.

    Returns:
        What was done.

    Raises:
        FileExistsError: If there is something else under the name.
        ValueError: If the map is of other vectors, or of queries alone, or the vectors are mapped already; or if
            translations are to share their vectors, and the rows are not in two languages at least, or none has a value
            in the document field.
        OSError: If the store fails. What is written in a database stays, and is continued.
        KeyboardInterrupt: If it is stopped; likewise.
    """
    if calibration.queries_only:
        raise ValueError(
            "this calibration maps queries alone, so that the stored vectors stay as they are: there is nothing to "
            "write. For a map of both, which --share_translations needs too, calibrate without --queries_only"
        )
    source.refuse_mapped()
    if not len(source):
        raise ValueError(f"{source.name} has no vectors: there is nothing to map")
    calibration.check(dimension=source.dimension, metric=source.metric, model=source.model, name=source.name)
    how, chunks_of = calibration.fingerprint, source.fields.document
    if share_translations:
        by = f" by {chunks_of.replace(' ', '_')}" if chunks_of else ""
        how += f", translations shared{by},"
    target = source.target(into, f"{how} of {source.called}")
    applied, total, read, started = Applied(target), len(source), 0, time.perf_counter()
    everything = target.everything or bool(calibration.languages and source.fields.text)
    batches = source.batches(_ROWS, everything=everything)
    if dry_run:
        _measure(calibration, source, batches, applied, total)
        return applied
    sharing = _Sharing(calibration, source, applied, show_progress_bar) if share_translations else None
    with target, tqdm(total=total, unit=" rows", disable=not show_progress_bar) as bar:
        try:
            for rows in batches:
                if sharing is not None:
                    rows = rows.of(sharing.has_read(rows))
                with source.errors() if target.continues else nullcontext():  # errors of a file name the file
                    missing = rows.of(target.missing(rows))
                    if missing.ids:
                        mapped = _mapped(calibration, source, missing, applied.left_out)
                        target.write(mapped if sharing is None else sharing.replaced(mapped))
                applied.written += len(missing.ids)
                read += len(rows.ids)
                bar.update(len(rows.ids))
        except (OSError, KeyboardInterrupt) as error:
            if target.continues:
                there = target.already + applied.written - applied.left_out.counts.total()
                kept = f"{there} rows are in {target.name}; the same command continues"
                kind = OSError if isinstance(error, OSError) else KeyboardInterrupt
                raise kind(f"{error}. {kept}".removeprefix(". ")) from error
            raise
    applied.written -= applied.left_out.counts.total()
    applied.added = max(0, len(source) - read)
    applied.seconds = time.perf_counter() - started
    return applied


class _Sharing:
    """The vectors of all rows that have a language, after a first pass over the source."""

    def __init__(
        self, calibration: VectorCalibration, source: VectorSource, applied: Applied, show_progress_bar: bool
    ) -> None:
        import torch  # which a map alone does not need

        from st_xlret.vectors.translations import find_translations, shared

        self.row_of: dict[Any, int | None] = {}  # None: without a language or a vector
        parts, languages, documents = [], list[str](), list[str | None]()
        bar = tqdm(total=len(source), desc="Reading", unit=" rows", disable=not show_progress_bar)
        fields = source.fields
        for rows in source.batches(_ROWS, everything=fields.text is not None):
            rows = rows._replace(languages=source.languages_of(rows))
            mapped = _mapped(calibration, source, rows, LeftOut()).vectors
            kept = np.isfinite(mapped).all(axis=1) & np.array([bool(code) for code in rows.languages], bool)
            for name, code, has in zip(rows.ids, rows.languages, kept.tolist(), strict=True):
                self.row_of[name] = len(languages) if has else None
                languages += [code] if has and code else []
            documents += itertools.compress(rows.documents, kept.tolist())
            parts.append(torch.from_numpy(mapped[kept]))
            bar.update(len(rows.ids))
        bar.close()
        if len(set(languages)) < 2:
            there = f"all rows are in {languages[0]}" if languages else "no row has a vector and a language"
            raise ValueError(
                f"{source.name}: {there}, and translations are found between languages: name the field of the "
                "languages (--language_field), a file with them (--languages_file, for .npy and .faiss), or the field "
                "of the texts (--text_field, with the extra langid), or leave --share_translations out"
            )
        applied.documents = len(set(documents) - {None})
        if fields.document is not None and not applied.documents:
            there = ", ".join(source.payload_fields())
            raise ValueError(
                f"{source.name}: no row with a vector and a language has a value in the document field "
                f"{fields.document!r}{f'; there are the fields {there}' if there else ''}"
            )
        vectors = torch.cat(parts)
        del parts  # they are as large as the vectors
        found = find_translations(
            vectors, languages, documents if fields.document else None, show_progress_bar=show_progress_bar
        )
        self.vectors = shared(vectors, found).numpy()
        applied.pairs = len(found.first)
        applied.translated = len(torch.cat([found.first, found.second]).unique())

    def has_read(self, rows: VectorRows) -> NDArray[np.bool_]:
        """Which rows were there in the first pass, (n,)."""
        return np.array([name in self.row_of for name in rows.ids], bool)

    def replaced(self, rows: VectorRows) -> VectorRows:
        """Mapped rows, with the vectors that they share with translations."""
        places = [self.row_of[name] for name in rows.ids]
        vectors = rows.vectors.copy()
        chosen = np.array([place is not None for place in places], bool)
        vectors[chosen] = self.vectors[[place for place in places if place is not None]]
        return rows._replace(vectors=vectors)


def _mapped(calibration: VectorCalibration, source: VectorSource, rows: VectorRows, left_out: LeftOut) -> VectorRows:
    """Rows with their mapped vectors; NaN in those that cannot be mapped."""
    usable = rows.usable()
    left_out.add_vectors(rows, usable)
    codes: list[str | None] = []
    if calibration.languages:
        codes = source.languages_of(rows)
        for i, code in enumerate(codes):
            if usable[i] and code not in calibration.languages:
                usable[i] = False
                reason = f"in {code}, for which there is no map" if code else "without a language"
                left_out.add(reason, [rows.ids[i]])
    chosen = [code for code, can in zip(codes, usable, strict=True) if can and code] if codes else None
    if usable.all():
        return rows._replace(vectors=calibration.transform(rows.vectors, "document", chosen))
    vectors = np.full_like(rows.vectors, np.nan)
    if usable.any():
        vectors[usable] = calibration.transform(rows.vectors[usable], "document", chosen)
    return rows._replace(vectors=vectors)


def _measure(
    calibration: VectorCalibration, source: VectorSource, batches: Iterator[VectorRows], applied: Applied, total: int
) -> None:
    """Map rows for some seconds, without writing."""
    started, done = time.perf_counter(), 0
    for rows in batches:
        _mapped(calibration, source, rows, applied.left_out)
        done += len(rows.ids)
        applied.seconds = (time.perf_counter() - started) * max(0, total - applied.target.already) / done
        if time.perf_counter() - started > _SECONDS:
            break
