"""`st-xlret calibrate --vectors`: a map of vectors that are stored already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from st_xlret.commands.sources import (
    SampleArguments,
    StoreArguments,
    one_language_in_words,
    sample_vectors,
)
from st_xlret.files import atomic_directory, write_json
from st_xlret.stores.base import Store

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from st_xlret.calibration import VectorCalibration
    from st_xlret.calibration.judged import Batch, Recall
    from st_xlret.calibration.report import Comparison
    from st_xlret.commands.calibrate import Arguments

Recalls = dict[float, "tuple[Recall, Recall]"]
"""Strength -> recall of the half of the judged queries that chooses, and of the other half."""


def calibrate_vectors(texts: SampleArguments, stored: StoreArguments, options: Arguments) -> None:
    """Fit a map on a sample of stored vectors, write it, and print what it does."""
    from st_xlret.calibration.checks import check_steps
    from st_xlret.calibration.sampling import usual_texts_per_language

    strength = options.strength_with_default("auto")
    check_steps(options.steps, strength, queries_only=options.queries_only)
    store = stored.open_store()
    store.refuse_mapped()
    queries = None
    if options.queries:
        address = " ".join(options.queries)  # several are no address
        queries = replace(stored, vectors=address).open_store()

    count = texts.texts_per_language or usual_texts_per_language(options.steps)
    sample = sample_vectors(
        store, texts.languages, count, min_texts=options.min_texts, seed=options.seed
    )
    is_one_language = len(sample) == 1 and options.has_one_map_of_queries
    _check_model(texts, is_one_language)
    fitting = _Fitting(sample, store, options, texts if is_one_language else None)
    questions = None
    recalls: Recalls = {}
    if queries is not None and options.qrels:
        recalls = fitting.judged_recalls(queries, options.qrels, strength)
        if strength == "auto":
            strength = _best_judged(recalls)
    elif queries is not None:
        fewest = _fewest_questions(options)
        questions = sample_vectors(
            queries, texts.languages, count, min_texts=fewest, seed=options.seed
        )
    comparison = None
    if is_one_language:
        calibration = fitting.fit(questions, strength)
    else:
        calibration, comparison = fitting.fit_and_compare(questions, strength)
        first_halves = {at: first.overall for at, (first, _) in recalls.items()}
        comparison = replace(comparison, judged=first_halves)
    _write(calibration, comparison, recalls, options)
    print(f"\n{comparison or one_language_in_words(list(sample))}")
    if recalls:
        print(f"\n{_recall_table(recalls, strength)}")
    _print_usage(calibration, options.output)


def _check_model(texts: SampleArguments, is_one_language: bool) -> None:
    """Vectors in one language, and no others, need the encoder that they are from."""
    if is_one_language and texts.model is None:
        raise ValueError(
            "the vectors are in one language, and nothing shows what languages differ in: give "
            "the encoder that they are from by --model, which embeds paragraphs in others"
        )
    if texts.model is not None and not is_one_language:
        raise ValueError(
            f"--model {texts.model} is for vectors in one language, and these are in several"
        )


def _best_judged(recalls: Recalls) -> float:
    """The strength with the highest recall of the half that chooses."""
    return max(recalls, key=lambda at: recalls[at][0].overall)


def _fewest_questions(options: Arguments) -> int:
    """Fewest questions of a language: a few of any join the fit of one map of queries alone."""
    from st_xlret.calibration.choose import QUESTIONS

    if options.has_one_map_of_queries:
        return min(QUESTIONS, options.min_texts)
    return options.min_texts


@dataclass(frozen=True)
class _Fitting:
    """What a calibration is fitted on, and how."""

    sample: dict[str, ArrayLike]
    store: Store
    options: Arguments
    encoder: SampleArguments | None
    """What names the encoder of the vectors, if they are in one language."""

    def fit_and_compare(
        self, questions: dict[str, ArrayLike] | None, strength: float | Literal["auto"]
    ) -> tuple[VectorCalibration, Comparison]:
        """The calibration at a strength, or at the best one, beside others."""
        from st_xlret.calibration import fit_and_compare

        return fit_and_compare(
            self.sample,
            questions=questions,
            strength=strength,
            steps=self.options.steps,
            queries_only=self.options.queries_only,
            pivot=self.options.pivot,
            keep_mean=self.options.keep_mean,
            min_texts=self.options.min_texts,
            metric=self.store.metric,
            model=self.store.model,
            seed=self.options.seed,
        )

    def fit(
        self, questions: dict[str, ArrayLike] | None, strength: float | Literal["auto"]
    ) -> VectorCalibration:
        """The calibration, which the encoder helps to fit on vectors in one language."""
        from st_xlret.calibration import VectorCalibration
        from st_xlret.calibration.panels import fit_one_language

        if self.encoder is not None:
            return fit_one_language(
                self.encoder.load_encoder(),
                self.sample,
                questions,
                phrases=self.options.phrases,
                strength=strength,
                keep_mean=self.options.keep_mean,
                metric=self.store.metric,
                model=self.store.model,
            )
        return VectorCalibration.fit(
            self.sample,
            queries=questions,
            steps=self.options.steps,
            strength=1.0 if strength == "auto" else strength,
            queries_only=self.options.queries_only,
            pivot=self.options.pivot,
            keep_mean=self.options.keep_mean,
            min_texts=self.options.min_texts,
            metric=self.store.metric,
            model=self.store.model,
            seed=self.options.seed,
        )

    def judged_recalls(
        self, queries: Store, qrels: str, strength: float | Literal["auto"]
    ) -> Recalls:
        """What judged queries find at each strength, and at the one that is asked for."""
        from st_xlret.calibration import judged_recall
        from st_xlret.calibration.report import STRENGTHS

        fitted = self.fit(None, 1.0)
        strengths = set(STRENGTHS)
        if strength != "auto":
            strengths.add(strength)
        maps = {at: fitted.at(at) for at in sorted(strengths)}
        return judged_recall(_usable_rows(self.store), _usable_rows(queries), qrels, maps)


def _usable_rows(store: Store) -> Iterator[Batch]:
    """Names, vectors and languages of the rows that have both of these."""
    for batch in store.batches():
        vectors, is_usable, codes = store.check_rows(batch, Counter())
        (rows,) = is_usable.nonzero()
        names = batch.column("id").take(rows).to_pylist()
        yield names, vectors[rows], codes[rows].tolist()


def _write(
    calibration: VectorCalibration,
    comparison: Comparison | None,
    recalls: Recalls,
    options: Arguments,
) -> None:
    more: dict[str, Any] = {}
    if recalls:
        more["judged"] = _recalls_as_json(recalls)
    with atomic_directory(options.output, overwrite=options.overwrite) as folder:
        calibration.save(folder)
        if comparison is not None:
            comparison.write(folder, **more)
        elif more:
            write_json(folder / "language_bias.json", more)


def _recalls_as_json(recalls: Recalls) -> list[dict[str, Any]]:
    rows = []
    for strength, (first, second) in recalls.items():
        rows.append(
            {
                "strength": strength,
                "first_half": first._asdict(),
                "second_half": second._asdict(),
            }
        )
    return rows


def _recall_table(recalls: Mapping[float, tuple[Recall, Recall]], used: object) -> str:
    from st_xlret.tables import markdown_table, percent

    rows = []
    for strength, (_, second) in recalls.items():
        label = f"{strength:g}"
        if strength == used:
            label += " (used)"
        figures = [percent(figure).replace("nan", "-") for figure in second]
        rows.append([label, *figures])
    header = ["strength", "all answers", "in the language of the query", "in others"]
    return (
        "Recall@10 (%) of one half of the judged queries; auto is chosen by the other half:\n\n"
        f"{markdown_table(header, rows)}"
    )


def _print_usage(calibration: VectorCalibration, output: str) -> None:
    language = ', language="fr"' if calibration.languages else ""
    documents = f"the documents: st-xlret apply {output} --vectors SOURCE --into NAME"
    if calibration.queries_only:
        documents = "the documents stay as they are"
    print(
        f"\nThe map is in {output}. In the service that searches (README.md there has it without "
        "Python):\n\n"
        f'    calibration = st_xlret.VectorCalibration.load("{output}")\n'
        f'    query = calibration.transform(query, role="query"{language})\n'
        f"    # {documents}\n"
    )
