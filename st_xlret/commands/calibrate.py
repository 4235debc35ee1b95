r"""Calibrate a multilingual encoder, so that its search no longer prefers the language of the query.

On the corpus that is to be searched, or on other documents in its languages; no labels and no training are needed:

    st-xlret calibrate --model intfloat/multilingual-e5-small --corpus my-beir-folder --output runs/calibrated
    st-xlret calibrate --model intfloat/multilingual-e5-small --documents documents/ --output runs/calibrated

Vectors that are stored already stay where they are, and queries alone are mapped; no encoder is needed:

    st-xlret calibrate --vectors vectors.parquet --queries_only --output map

The result is a plain Sentence Transformers model that needs no language: `SentenceTransformer("runs/calibrated")` with
`encode_query` and `encode_document`. By default the subspace in which the languages' means differ is projected out
(`--steps lsar`). With questions that have no labels (`--queries`), queries get a map of their own. The other steps need
the language of each text, given as its task: `encode(texts, task="fr")`; among them are the CCP paper's (`--steps shift
scale rotate`). A table compares the choices without labels, and says which one it recommends. Programs do the same by
`st_xlret.calibrate`.

A document has one language, which is named or identified; in a text file a blank line ends a document. Of a folder,
text files are read if they are named after their language (fr.txt), or if it has nothing else: a README beside
documents is none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from st_xlret.commands.stored_vectors import Stored, describe, lines_for_a_service, sample_vectors
from st_xlret.files import atomic_directory, check_output_directory, write_json
from st_xlret.options import option, parse
from st_xlret.precision import PRECISIONS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from st_xlret.calibration import CalibrationOptions, Comparison, Sample
    from st_xlret.stores import Store
    from st_xlret.vectors.judged import Recall

CHECKED_TEXTS, DOUBTFUL = 300, 0.2
_OF_MODELS = (
    *("model", "corpus", "documents", "pairs", "query_prompt", "document_prompt", "by_role"),
    *("license", "base_model"),
)


@dataclass
class Texts:
    """An encoder, and texts to embed."""

    _argument_group_name = "encoder and texts"

    model: str | None = option(None, "The encoder: a folder or a name on the Hub. It is not trained any further.")
    documents: list[str] = option(
        [],
        "Documents in several languages: JSON lines, Parquet, tables, text or Markdown files, folders of them, or a "
        "folder in BEIR's layout. Their language is identified where they do not name it (extra langid).",
    )
    languages: list[str] = option([], "Languages to look at. All by default.")
    texts_per_language: int | None = option(
        None,
        "Texts or vectors of each language, drawn at random. By default 300, and 1500 for a calibration whose steps "
        "need more than means: not lsar, shift and to_pivot.",
    )
    unit: str | None = option(
        None,
        "What is drawn: sentences, texts as they stand (a line, an element of a list), or documents. By default "
        "documents of a folder in BEIR's layout, and sentences of other sources.",
        ["sentence", "text", "document"],
    )
    skip_bad_lines: bool = option(False, "Skip and count bad lines instead of stopping at the first one.")
    limits: list[str] = option([], "Longest line and sentence, as line_bytes=67108864 sentence_characters=10000.")
    query_prompt: str | None = option(None, "Put before queries: a text, or the name of one of the model's prompts.")
    document_prompt: str | None = option(None, "Put before documents, likewise. By default the model's own.")
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.")
    precision: str = option("auto", "Number format: auto is bf16 where the processor computes in it.", PRECISIONS)
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def sample(self, sources: Sequence[str], **drawn: Any) -> dict[str, Sample]:
        """Texts of each language of the sources; `drawn` is how many, and how."""
        from st_xlret.calibration import sample_texts
        from st_xlret.data.lines import Limits

        how: Any = {"languages": self.languages, "unit": self.unit, "skip_bad_lines": self.skip_bad_lines}
        return sample_texts(list(sources), **how, limits=Limits.parse(self.limits), **drawn)


@dataclass
class Input(Texts):
    """What to calibrate, and on what."""

    _argument_group_name = "input"

    corpus: str | None = option(
        None, "Instead of --documents, the corpus to be searched: a folder in BEIR's layout, or documents."
    )
    queries: list[str] = option(
        [],
        "Questions without labels, for maps of queries: a folder in BEIR's layout, JSON lines (text, language), or "
        "text files (questions.fr.txt). Their language is identified where they do not name it. With --vectors and "
        "--qrels: the stored vectors of the queries.",
    )
    qrels: str | None = option(
        None,
        "With --vectors and --queries: which documents answer which query, in BEIR's or TREC's format, by the keys of "
        "the store, or in files by the numbers of the rows from 0. auto then takes the strength that finds most for "
        "one half of the queries, and the table is of the other half.",
    )
    pairs: list[str] = option(
        [], "Parallel sentences with the pivot, for rotate: languages that have them get the closed-form solution."
    )
    exclude: list[str] = option(
        [],
        "Text files whose lines must not be in the pairs, such as a test set's English side.",
    )


@dataclass
class Method:
    """How to calibrate."""

    _argument_group_name = "method"

    steps: list[str] = option(
        ["lsar"],
        "In this order: lsar (minus the subspace in which the languages' means differ; needs no language), "
        "shift (minus the language's mean), coral (the same covariance for all), scale (divided by the standard "
        "deviation), rotate (orthogonal map into the pivot), lir (minus the language's top principal component), "
        "to_pivot (documents moved to the pivot's mean, queries in the pivot untouched).",
        choices=["shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot"],
    )
    by_role: bool = option(
        False,
        "Maps of queries apart from those of documents, fitted on the documents' texts with the prompt for queries. "
        "--queries implies it, with the questions.",
    )
    queries_only: bool = option(
        False,
        "Map queries alone: documents stay as they are, and an index of them goes on working. For lsar and shift.",
    )
    strength: str | None = option(
        None,
        "From 0, which leaves vectors as they are, to 1, the full calibration; auto takes the one with the highest "
        "score, see the guide. By default auto for --vectors, 1 for a model and with rotate.",
    )
    keep_mean: float | None = option(
        None,
        "Share of the mean of all languages that shift and lsar keep. By default 0.25, which suits search; 0.5 with "
        "--queries_only; with scale, rotate or lir as in their papers.",
    )
    coral_ridge: float = option(
        1.0,
        "Variance that coral adds to each direction, relative to the average. Less text needs more.",
    )
    coral_shrink: float = option(
        0.5,
        "How far coral draws each covariance to the average first, from 0 to 1. 0 fits the languages' contents too.",
    )
    scale_by: str = option(
        "std",
        "scale: divide by the standard deviation or the variance.",
        choices=["std", "variance"],
    )
    pivot: str = option("en", "The language into which rotate and to_pivot map, and of texts that name none.")
    rotation_start: str = option(
        "both",
        "rotate without pairs: start from the identity (fast), by adversarial training, or take the better of both by "
        "an unsupervised criterion.",
        choices=["identity", "adversarial", "both"],
    )
    rotation_prior: float = option(
        0.0,
        "rotate: 0 fits the pairs alone; 1 stays nearer to the model's own alignment, safer where pairs are few.",
    )
    min_texts: int = option(50, "Fewer texts of a language are an error.")
    seed: int = option(0, "Seed of the draw and of the rotation.")

    def amount(self, default: float | Literal["auto"]) -> float | Literal["auto"]:
        """The strength."""
        if self.strength is None:
            return 1.0 if "rotate" in self.steps else default
        if self.strength == "auto":
            return "auto"
        try:
            return float(self.strength)
        except ValueError:
            raise ValueError(f"--strength {self.strength}: give a number from 0 to 1, or auto") from None

    def options(self) -> CalibrationOptions:
        """The options of the fit."""
        from st_xlret.calibration import CalibrationOptions, RotationOptions

        return CalibrationOptions(
            keep_mean=self.keep_mean,
            coral_ridge=self.coral_ridge,
            coral_shrink=self.coral_shrink,
            scale_by=self.scale_by,  # type: ignore[arg-type]
            rotation=RotationOptions(initial=self.rotation_start, prior=self.rotation_prior),  # type: ignore[arg-type]
            min_texts=self.min_texts,
        )


@dataclass
class Output:
    """Where the result goes."""

    _argument_group_name = "output"

    output: str = option(None, "Folder for the calibrated model, with the report on its language bias.")
    overwrite: bool = option(False, "Replace a model or a map that is there.")
    license: str | None = option(
        None,
        "Licence of the model, for its card, such as mit. By default the encoder's, if its card states one.",
    )
    base_model: str | None = option(None, "Name of the encoder on the Hub, for the card, where --model is a folder.")

    def __post_init__(self) -> None:
        from st_xlret.hub.card import check_license

        check_license(self.license)


def main(arguments: Sequence[str], *, prog: str = "st-xlret calibrate") -> None:
    """Run the command `calibrate`."""
    given, stored, method, target = parse([Input, Stored, Method, Output], arguments, description=__doc__, prog=prog)
    if not target.output:
        raise ValueError("--output is missing")
    if stored.vectors is not None:
        if others := [
            name for name in _OF_MODELS if any(getattr(group, name, None) for group in (given, method, target))
        ]:
            raise ValueError(f"--vectors are stored already: leave --{' and --'.join(others)} out")
        if bool(given.queries) != bool(given.qrels) or len(given.queries) > 1:
            raise ValueError("with --vectors, --queries (the address of their vectors) and --qrels go together")
        _calibrate_vectors(given, stored, method, target)
        return
    if given.qrels:
        raise ValueError("--qrels are for --vectors: leave them out")
    if not given.model:
        raise ValueError("--model is missing, or --vectors, where documents are embedded already")
    if (given.corpus is None) == (not given.documents):
        raise ValueError("give either --corpus (what is to be searched) or --documents")
    if given.pairs and "rotate" not in method.steps:
        raise ValueError("--pairs are for the step rotate: add it to --steps, or leave them out")
    check_output_directory(target.output, overwrite=target.overwrite)
    calibrated, comparison = _calibrate(given, method)
    sources = [given.corpus] if given.corpus else given.documents
    _save(calibrated, comparison, given, target, {"texts": sources, "questions": given.queries, "pairs": given.pairs})
    _advise(calibrated, comparison, target.output)


def _calibrate(given: Input, method: Method) -> tuple[SentenceTransformer, Comparison]:
    from st_xlret.calibration import calibrate, sample_questions, usual_texts
    from st_xlret.data import PairOptions, load_pairs
    from st_xlret.data.lines import Limits
    from st_xlret.encoding import role_prompt
    from st_xlret.hub.export import load_model

    size = given.texts_per_language or usual_texts(method.steps)
    drawn: dict[str, Any] = {"texts_per_language": size, "min_texts": method.min_texts, "seed": method.seed}
    sources = [given.corpus] if given.corpus else given.documents
    sample = given.sample(sources, **drawn)
    report_labels({code: found.texts for code, found in sample.items()})
    questions = sample_questions(given.queries, list(sample), **drawn) if given.queries else None
    if questions is not None:
        print(f"questions: {', '.join(f'{code} {len(texts)}' for code, texts in questions.items())}")
        if lacking := [code for code in sample if code not in questions]:
            print(f"without enough questions of their own: {', '.join(lacking)}")
    pairs = None
    if given.pairs:
        reading: dict[str, Any] = {"skip_bad_lines": given.skip_bad_lines, "limits": Limits.parse(given.limits)}
        pairs = load_pairs(given.pairs, PairOptions(languages=list(sample), exclude=tuple(given.exclude), **reading))
    model = load_model(given.model or "", given.device)
    prompts = [role_prompt(model, "query", given.query_prompt), role_prompt(model, "document", given.document_prompt)]
    if not any(prompts):
        print(
            "the model names no prompts: texts are embedded as they are. If it was trained with prompts, such as E5's "
            "'query: ' and 'passage: ', give them by --query_prompt and --document_prompt"
        )
    found: list[Comparison] = []
    calibrated = calibrate(
        model,
        sample,
        steps=method.steps,
        queries=questions,
        pairs=pairs,
        by_role=method.by_role,
        queries_only=method.queries_only,
        strength=method.amount(1.0),
        pivot=method.pivot,
        options=method.options(),
        query_prompt=prompts[0],
        document_prompt=prompts[1],
        batch_size=given.batch_size,
        precision=given.precision,
        seed=method.seed,
        report=found.append,
    )
    return calibrated, found[0]


def _calibrate_vectors(given: Input, stored: Stored, method: Method, target: Output) -> None:
    """Fit a map on stored vectors, save it with its report, and say what it brings."""
    from st_xlret.calibration import compare_strengths, fit_and_compare, usual_texts
    from st_xlret.calibration.fit import QUERY_STEPS
    from st_xlret.evaluation import markdown_table
    from st_xlret.vectors.calibration import VectorCalibration, check_steps, unit_vectors

    check_steps(method.steps)
    check_output_directory(target.output, overwrite=target.overwrite)
    source = stored.open()
    source.refuse_mapped()
    drawn: Any = {"languages": given.languages, "min_texts": method.min_texts, "seed": method.seed}
    size = given.texts_per_language or usual_texts(method.steps)
    units = unit_vectors(sample_vectors(source, size, **drawn), metric=source.metric)
    amount = method.amount("auto")
    found: dict[float, tuple[Recall, Recall]] = {}
    if given.qrels:
        found = _judged(given, stored, source, units, method)
        if amount == "auto":
            amount = max(found, key=lambda strength: found[float(strength)][0].overall)
    how: Any = {"steps": method.steps, "pivot": method.pivot, "options": method.options(), "show_progress_bar": True}
    fitted, comparison = fit_and_compare(
        units, strength=amount, queries_only=method.queries_only, seed=method.seed, **how
    )
    if set(method.steps) <= {*QUERY_STEPS}:
        comparison = replace(
            comparison, other_way=compare_strengths(units, queries_only=not method.queries_only, **how)
        )
    calibration = VectorCalibration.of_layers(fitted, metric=source.metric, model=source.model)
    with atomic_directory(target.output, overwrite=target.overwrite) as folder:
        calibration.save(folder)
        _write_report(comparison, folder, found)
    print(describe(comparison))
    _recommend(comparison)
    if found:
        rows = [
            [f"{strength:g}{' (used)' * (strength == amount)}", *(f"{100 * figure:.1f}" for figure in second)]
            for strength, (_, second) in found.items()
        ]
        print(
            f"\nRecall@10 (%) of one half of the judged queries; auto is chosen by the other half:\n\n"
            f"{markdown_table(['strength', 'all answers', 'in the language of the query', 'in others'], rows)}"
        )
    print(
        f"\nThe map is in {target.output}. "
        + lines_for_a_service(
            target.output, queries_only=calibration.queries_only, needs_language=bool(calibration.languages)
        )
    )


def _judged(
    given: Input, stored: Stored, source: Store, units: Mapping[str, Tensor], method: Method
) -> dict[float, tuple[Recall, Recall]]:
    """What judged queries find at each strength, one half of them and the other."""
    from st_xlret.calibration import fit_role_calibrations
    from st_xlret.calibration.choosing import STRENGTHS
    from st_xlret.vectors.calibration import VectorCalibration
    from st_xlret.vectors.judged import judged_recall

    how: Any = {"steps": method.steps, "options": method.options(), "queries_only": method.queries_only}
    amount = method.amount("auto")
    maps = {
        strength: VectorCalibration.of_layers(fit_role_calibrations(units, strength=strength, **how))
        for strength in sorted({*STRENGTHS, *([] if amount == "auto" else [amount])})
    }
    queries = replace(stored, vectors=given.queries[0]).open()
    return judged_recall(source, queries, given.qrels or "", maps, show_progress_bar=True)


def _write_report(
    comparison: Comparison, folder: Path, judged: Mapping[float, tuple[Recall, Recall]] | None = None
) -> None:
    """The language bias before and after, and at other strengths, as JSON and as pictures."""
    from st_xlret.evaluation.language_bias import bias_as_json
    from st_xlret.evaluation.tables import plot_language_bias, plot_strengths

    found = {"before": comparison.before, "after": comparison.after}
    report: dict[str, Any] = {when: bias_as_json(biases) for when, biases in found.items()}
    for when, biases in found.items():
        bias = biases["search"]
        plot_language_bias(bias.languages, bias.shares, folder / f"language_bias_{when}.png")
    if comparison.strengths:
        report["strengths"] = [{"strength": at, **row.as_json()} for at, row in comparison.strengths.items()]
        plot_strengths(report["strengths"], folder / "strength.png")
    if judged:
        report["judged"] = [
            {"strength": at, "first_half": first._asdict(), "second_half": second._asdict()}
            for at, (first, second) in judged.items()
        ]
    write_json(folder / "language_bias.json", report)


def _save(
    model: SentenceTransformer, comparison: Comparison, given: Input, target: Output, data: Mapping[str, Sequence[str]]
) -> None:
    """Save the model with its report, whole or not at all."""
    from st_xlret.hub.card import set_card_data

    set_card_data(model, license=target.license, base_model=target.base_model or given.model, data=data)
    with atomic_directory(target.output, overwrite=target.overwrite) as folder:
        model.save_pretrained(os.fspath(folder))
        _write_report(comparison, folder)


def _advise(model: SentenceTransformer, comparison: Comparison, output: str) -> None:
    """Print the comparison, what saves the recommended calibration, and how the model is used."""
    print(f"\n{comparison}")
    _recommend(comparison)
    shares = [f"{100 * found['search'].same_language_share:.1f} %" for found in (comparison.before, comparison.after)]
    chance = 100 * comparison.before["search"].chance
    print(f"\nResults in the query's language: {shares[0]} before, {shares[1]} after (chance: {chance:.1f} %).")
    print(f"The calibrated model is in {output}. Use it with Sentence Transformers alone:\n")
    from st_xlret.hub.card import encoding_calls

    print(f'    model = SentenceTransformer("{output}")')
    for call in encoding_calls(model).values():
        print(f"    {call[1]}")


def _recommend(comparison: Comparison) -> None:
    """Name the options that save what is recommended, if that is another calibration."""
    calibration = comparison.rows[comparison.recommended].calibration
    if calibration is None or comparison.recommended == comparison.chosen:
        return
    by_role = calibration.query is not None and not calibration.queries_only
    steps = (calibration.query or calibration.document).steps
    others = ["--strength", "--keep_mean", *([] if by_role else ["--queries", "--by_role"])]
    print(
        f"To save it, run the command again with --steps {' '.join(steps)}{' --by_role' * by_role} --overwrite, and "
        f"without {', '.join(others)}.\n"
    )


def report_labels(texts: Mapping[str, Sequence[str]]) -> None:
    """Print the share of language labels with which an identifier disagrees, and warn of languages with many."""
    from st_xlret.languages import check_labels

    try:
        check = check_labels({code: found[:CHECKED_TEXTS] for code, found in texts.items()})
    except ImportError:
        print('language labels were not checked: pip install "st-xlret[langid]" brings the identifier')
        return
    unknown = f"; it does not know {', '.join(check.unknown)}" if check.unknown else ""
    print(f"the language identifier disagrees with {100 * check.share:.1f} % of the labels{unknown}")
    for code, share in check.disagreement.items():
        if share >= DOUBTFUL:
            print(
                f"warning: {100 * share:.0f} % of the texts labelled {code!r} look like another language, most often "
                f"{check.found[code]!r}, such as {check.examples[code][:80]!r}. A calibration on wrong labels does "
                "harm: correct them, or leave the language out with --languages"
            )
