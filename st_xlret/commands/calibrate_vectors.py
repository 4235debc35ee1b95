"""`st-xlret calibrate --vectors`: a map of vectors that are stored already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from st_xlret.commands.calibrate_options import Arguments
from st_xlret.commands.sources import (
    SampleArguments,
    StoreArguments,
    known_documents,
    print_note_without_documents,
    sample_vectors,
)
from st_xlret.commands.verdict import print_result
from st_xlret.files import atomic_directory, write_json
from st_xlret.stores.base import Store
from st_xlret.tables import MISSING, markdown_table, percent

if TYPE_CHECKING:
    from st_xlret.calibration.comparison import Comparison
    from st_xlret.calibration.fit_options import FitOptions
    from st_xlret.calibration.judged import Halves, NamedRows, Recall
    from st_xlret.calibration.vectors import VectorCalibration
    from st_xlret.stores.sampling import StoredSample


def calibrate_vectors(texts: SampleArguments, stored: StoreArguments, options: Arguments) -> None:
    """Fit a map on a sample of stored vectors, write it, and print what it does."""
    from st_xlret.calibration.panels import fit_with_panels

    options.fit_options.check(options.strength_or_auto)
    store = stored.open_store()
    store.refuse_mapped()
    queries = _open_queries(stored, options)
    fit_options = replace(options.fit_options, metric=store.metric, model=store.model)
    sample = _sample_to_fit(store, texts, fit_options, fit_options.min_texts)
    documents = sample.vectors
    if texts.model is not None and len(documents) > 1:
        raise ValueError(
            f"--model {texts.model} is for vectors in one language, and these are in several"
        )
    unlabelled = None
    if queries is not None and not options.qrels:
        unlabelled = _sample_to_fit(queries, texts, fit_options, fit_options.min_queries).vectors
    ids = known_documents(sample)
    print_note_without_documents(ids)
    fitted, comparison = fit_with_panels(
        documents,
        fit_options,
        options.strength_or_auto,
        encoder=texts.load_encoder() if texts.model else None,
        queries=unlabelled,
        phrases=options.phrases,
        ids=ids,
    )
    if queries is None or not options.qrels:
        _write_map(fitted, comparison, options)
        print_result(comparison, list(documents), options, texts, stored)
    else:
        judged = _judge(fitted, store, queries, options)
        fitted = fitted.at(judged.used)
        if comparison is not None:
            comparison = replace(comparison, strength=judged.used)
        _write_map(fitted, comparison, options, judged=judged.as_json())
        print(f"\n{judged}\n")
    _print_usage_of_map(fitted, options.output)


def _open_queries(stored: StoreArguments, options: Arguments) -> Store | None:
    """The vectors of queries, which have the fields of the documents; None without queries."""
    if not options.queries:
        return None
    address = " ".join(options.queries)  # several are no address
    return replace(stored, vectors=address).open_store()


def _sample_to_fit(
    store: Store, texts: SampleArguments, fit_options: FitOptions, min_texts: int
) -> StoredSample:
    """As many vectors of each language as the fit needs, drawn by its seed."""
    count = texts.texts_per_language or fit_options.default_texts_per_language
    return sample_vectors(store, texts.languages, count, min_texts=min_texts, seed=fit_options.seed)


@dataclass(frozen=True)
class _Judged:
    """What judged queries find.

    Attributes:
        recalls: Strength, among them 0 -> what the first half of them finds, which chooses, and
            what the second half does, which measures.
        used: The strength that is used.
    """

    recalls: dict[float, Halves]
    used: float

    @property
    def best(self) -> float:
        """The strength by which the half that chooses finds most; of equal ones the lowest."""
        return max(self.recalls, key=lambda strength: self.recalls[strength].first.overall)

    def __str__(self) -> str:
        first, second = self.recalls[self.used]
        before = self.recalls[0.0].second
        lowest, highest = second.gain_over(before)
        what = f"strength {self.used:g}"
        if self.used != self.best:
            what += f" was asked for, and {self.best:g} is best"
        words = (
            f"Verdict: {what}, by {len(first.parts)} of your questions. The {len(second.parts)} "
            f"others find {percent(second.overall)} % of their answers among ten, and "
            f"{percent(before.overall)} % as it is: a gain of {100 * lowest:+.1f} to "
            f"{100 * highest:+.1f} points (95 % interval)."
        )
        return f"{words}\n\n{self._table()}\n\nRecall@10 and MRR@10 (%) of the other questions."

    def _table(self) -> str:
        """What the half that measures finds at each strength, in Markdown."""
        header = ["strength", "all answers", "in the question's language", "in others", "MRR@10"]
        rows = []
        for strength, (_, second) in self.recalls.items():
            label = f"{strength:g}"
            if strength == self.used:
                label += " (used)"
            figures = [second.overall, second.same_language, second.other_languages, second.mrr]
            rows.append([label, *(percent(each).replace("nan", MISSING) for each in figures)])
        return markdown_table(header, rows)

    def as_json(self) -> list[dict[str, Any]]:
        """A record of each strength, as `language_bias.json` keeps it under `judged`.

        The first half chose, the second one measures. Keys are the fields of `Recall`, figures are
        fractions.
        """
        rows = []
        for strength, (first, second) in self.recalls.items():
            rows.append(
                {
                    "strength": strength,
                    "first_half": _as_json(first),
                    "second_half": _as_json(second),
                }
            )
        return rows


def _as_json(recall: Recall) -> dict[str, float]:
    """The figures of a half, with the number of its questions in the place of their parts."""
    figures = recall._asdict()
    figures["questions"] = len(figures.pop("parts"))
    return figures


def _judge(fitted: VectorCalibration, store: Store, queries: Store, options: Arguments) -> _Judged:
    """What judged queries find at each strength, among them 0 and that of the map.

    By `auto` the best is used, but for a rotation: it is fitted at one strength, and beside that 0
    alone is looked at.
    """
    from st_xlret.calibration import judged_recall
    from st_xlret.calibration.comparison import STRENGTHS

    others = (0.0,) if options.fit_options.rotates else STRENGTHS
    maps = {at: fitted.at(at) for at in sorted({*others, fitted.strength})}
    qrels = str(options.qrels)
    recalls = judged_recall(_usable_rows(store), _usable_rows(queries), qrels, maps)
    judged = _Judged(recalls, fitted.strength)
    if options.strength == "auto" and not options.fit_options.rotates:
        return replace(judged, used=judged.best)
    return judged


def _usable_rows(store: Store) -> Iterator[NamedRows]:
    """The rows that have a vector and a language; others are left out without a count."""
    from st_xlret.calibration.judged import NamedRows

    for batch in store.batches():
        vectors, is_usable, codes = store.examine_rows(batch)
        (rows,) = is_usable.nonzero()
        names = batch.column("id").take(rows).to_pylist()
        yield NamedRows(names, vectors[rows], codes[rows].tolist())


def _write_map(
    calibration: VectorCalibration,
    comparison: Comparison | None,
    options: Arguments,
    **more: Any,
) -> None:
    """Write the map, and its figures with entries `more`, into the folder of the output."""
    from st_xlret.calibration.comparison import LANGUAGE_BIAS

    with atomic_directory(options.output, overwrite=options.overwrite) as folder:
        calibration.save(folder)
        if comparison is not None:
            comparison.write(folder, **more)
        elif more:
            write_json(folder / LANGUAGE_BIAS, more)


def _print_usage_of_map(calibration: VectorCalibration, output: str) -> None:
    """Say how the map is used, in Python, and what becomes of the documents."""
    language = ', language="fr"' if calibration.languages else ""
    documents = f"the documents: st-xlret apply {output} --vectors SOURCE --into NAME"
    if calibration.queries_only:
        documents = "the documents stay as they are"
    print(
        f"The map is in {output}. In the service that searches (without Python: "
        f"{output}/README.md):\n\n"
        f'    calibration = st_xlret.VectorCalibration.load("{output}")\n'
        f'    query = calibration.transform(query, role="query"{language})\n'
        f"    # {documents}\n"
    )
