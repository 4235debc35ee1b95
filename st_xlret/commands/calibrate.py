r"""Calibrate a multilingual encoder, so that its search no longer prefers the language of the query.

    st-xlret calibrate --model intfloat/multilingual-e5-small --documents documents/ --output runs/calibrated
    st-xlret calibrate --vectors vectors.parquet --queries_only --output map

Documents are those that are to be searched, or others in their languages; no labels and no training are needed. The
result is a plain Sentence Transformers model that needs no language: `encode_query` and `encode_document`. Vectors that
are stored already need no encoder: they get a map, and stay where they are if queries alone are mapped. By default the
subspace in which the languages' means differ is projected out (--steps lsar). Other steps need the language of each
text, given as its task: `encode(texts, task="fr")`; the CCP paper's are --steps shift scale rotate. A table compares
the choices without labels, and says which one it recommends.

A document has one language, which is named, or identified (extra langid); in a text file a blank line ends a document.
Of a folder, text files are read if they are named after their language (fr.txt).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import st_xlret
import st_xlret.calibration as calibrations
from st_xlret.commands import check_options
from st_xlret.files import (
    atomic_directory,
    atomic_file,
    check_output_directory,
    write_json,
)
from st_xlret.options import name_leading_words, option, parse
from st_xlret.portable import save_portable
from st_xlret.precision import PRECISIONS
from st_xlret.stores.apply import apply_calibration
from st_xlret.stores.base import Store
from st_xlret.stores.registry import forms_in_words, open_store
from st_xlret.stores.sampling import counts_in_words

if TYPE_CHECKING:
    from st_xlret.calibration.judged import Batch, Recall
    from st_xlret.calibration.report import Comparison

_CHECKED_TEXTS, _REPORTED_TEXTS, _DOUBTFUL = 300, 300, 0.2
_UNITS = ["sentence", "text", "document"]
_REPORT = r"""Report how much an encoder's search prefers the language of the query. No labels are needed.

    st-xlret report --model intfloat/multilingual-e5-small --documents documents/ --output bias.json
    st-xlret report --vectors vectors.parquet --output bias.json

Each sampled text searches a pool with as many texts of every language, but for its own document. The report has the
share of its nearest neighbours that are in its own language, against chance, a heat map of the languages in which
neighbours are found, and what the usual calibrations would make of it. Documents are read as `calibrate` reads them.
"""
_APPLY = r"""Map stored vectors by a calibration, into something new beside them.

    st-xlret apply map/ --vectors vectors.parquet --into mapped.parquet
    st-xlret apply map/ --vectors "qdrant:http://localhost:6333?collection=docs&vector=dense" --into mapped
    st-xlret apply map/ --vectors "postgresql://me@host/database?table=docs&column=embedding" --into mapped

The map is what `st-xlret calibrate --vectors` has written. Nothing is overwritten. In a database but LanceDB, the
same command continues what was interrupted, and maps rows that were added since. A map of queries alone
(--queries_only) needs no `apply`.
"""


@dataclass
class EncoderArguments:
    """An encoder, and documents to embed."""

    _argument_group_name = "encoder and texts"

    documents: list[str] = option(
        [], "JSON lines, Parquet, tables, text, Markdown; folders of them, or BEIR's layout."
    )
    model: str | None = option(None, "The encoder: a folder or a name on the Hub.")
    unit: str | None = option(
        None,
        "What is taken; text: a line or an element. By default document in BEIR's layout, else sentence.",
        _UNITS,
    )
    skip_bad_lines: bool = option(
        False, "Skip and count bad lines instead of stopping at the first one."
    )
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")


@dataclass
class SampleArguments(EncoderArguments):
    """An encoder, and a sample of texts."""

    languages: list[str] = option([], "Languages to look at. All by default.")
    texts_per_language: int | None = option(
        None,
        "Texts or vectors of each language. By default 300, and 1500 for steps but lsar, shift and to_pivot.",
    )
    query_prompt: str | None = option(
        None, "Put before queries: a text, or the name of one of the model's prompts."
    )
    document_prompt: str | None = option(
        None, "Put before documents, likewise. By default the model's own."
    )
    precision: str = option(
        "auto", "Number format: auto is bf16 where the processor computes in it.", PRECISIONS
    )

    def sample_texts(self, **draw_options: Any) -> Any:
        """Texts of each language of the documents; the options of the draw are how many, and how."""
        reading = {
            "languages": self.languages,
            "unit": self.unit,
            "skip_bad_lines": self.skip_bad_lines,
        }
        return calibrations.sample_texts(self.documents, **reading, **draw_options)


@dataclass
class StoreArguments:
    """Vectors that are stored already."""

    _argument_group_name = "stored vectors"

    vectors: str | None = option(
        None,
        f"{forms_in_words()}, instead of texts.",
    )
    vector_field: str | None = option(None, "Field of the vectors. By default 'vector'.")
    language_field: str | None = option(
        None, "Field of the languages. By default 'language' or 'lang'."
    )
    text_field: str | None = option(
        None, "Field of texts, whose language is identified where none is named."
    )
    languages_file: str | None = option(
        None, "For .npy and .faiss: a code a line, in the order of the vectors."
    )

    def open_store(self) -> Store:
        """The store; without --vectors a `ValueError`."""
        check_options(self, "vectors")
        fields = {name: value for name, value in vars(self).items() if name != "vectors"}
        return open_store(self.vectors or "", **fields)


@dataclass
class Arguments:
    """How to calibrate, and where the result goes."""

    _argument_group_name = "calibration"

    output: str = option(
        None, "Folder for the calibrated model or the map, with the report on its language bias."
    )
    overwrite: bool = option(False, "Replace a model or a map that is there.")
    steps: list[str] = option(
        ["lsar"],
        "In this order: lsar (minus the subspace in which the languages' means differ; needs no language), shift "
        "(minus the language's mean), coral (one covariance), scale (by the standard deviation), rotate (into the "
        "pivot), lir (minus the top principal component), to_pivot (documents moved to the pivot's mean).",
        ["shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot"],
    )
    queries: list[str] = option(
        [],
        "Questions without labels, for maps of queries: a folder in BEIR's layout, JSON lines, or text files "
        "(questions.fr.txt); of --vectors, the address of theirs. With --queries_only and lsar, 5 of a language do.",
    )
    qrels: str | None = option(
        None,
        "With --vectors and --queries: BEIR's or TREC's judgements. Half of the queries choose the strength.",
    )
    queries_only: bool = option(
        False, "Map queries alone: an index goes on working. For lsar and shift."
    )
    phrases: bool = option(
        True, "Phrases of weak languages join lsar of a model, for languages without texts."
    )
    strength: str | None = option(
        None,
        "From 0 to 1; auto: the highest score. By default auto for --vectors, 1 for a model and with rotate.",
    )
    keep_mean: float | None = option(
        None,
        "Share of the overall mean to keep: 0.4 for queries only, 0.05 for lsar, 0.25 for shift, else as papers.",
    )
    pivot: str = option(
        "en", "The language into which rotate and to_pivot map, and of texts that name none."
    )
    pairs: list[str] = option([], "Parallel sentences with the pivot, for a closed-form rotate.")
    min_texts: int = option(50, "Fewest texts of a language.")
    seed: int = option(0, "Seed of the draw and of the rotation.")

    def strength_with_default(self, default: float | Literal["auto"]) -> float | Literal["auto"]:
        """The strength that is asked for; where none is, 1 with a rotation, else the default."""
        if self.strength is None:
            return 1.0 if "rotate" in self.steps else default
        return "auto" if self.strength == "auto" else float(self.strength)


@dataclass
class ReportArguments:
    """What to measure."""

    output: str = option(None, "JSON file of the report; the heat map goes beside it as a PNG.")
    neighbours: int = option(20, "Nearest neighbours to look at.")
    seed: int = option(0, "Seed of the sample.")


@dataclass
class ApplyArguments:
    """Which map, and where its results go."""

    map: str = field(metadata={"help": "Folder of the calibration."})
    into: str = field(
        metadata={"help": "Name of the new file, named vector, column, table or collection."}
    )


def main(arguments: Sequence[str], *, prog: str = "st-xlret calibrate") -> None:
    """Run the command `calibrate`."""
    words = ["--documents" if word == "--corpus" else word for word in arguments]
    texts, stored, options = _parse_options(Arguments, words, description=__doc__, prog=prog)
    sources = [
        texts.model,
        stored.vectors,
        stored.languages_file,
        options.qrels,
        *options.pairs,
        *options.queries,
    ]
    check_output_directory(options.output, options.overwrite, inputs=[*sources, *texts.documents])
    if stored.vectors is None:
        _calibrate_model(texts, options)
    else:
        _calibrate_vectors(texts, stored, options)


def report(arguments: Sequence[str], *, prog: str = "st-xlret report") -> None:
    """Run the command `report`."""
    texts, stored, options = _parse_options(
        ReportArguments, arguments, description=_REPORT, prog=prog
    )
    from st_xlret.calibration.plots import plot_language_bias

    output = Path(options.output)
    picture = output.with_suffix(".report.png" if output.suffix == ".png" else ".png")
    with atomic_file(output, ours="report") as part, atomic_file(picture, ours="report") as drawn:
        comparison = _compare_usual_calibrations(texts, stored, options)
        print(f"\n{comparison}")
        write_json(part, comparison.before.as_json())
        search = comparison.before.search
        is_drawn = plot_language_bias(search.languages, search.shares, drawn)
    print(f"written to {output}" + (f" and {picture}" if is_drawn else ""))


def apply(arguments: Sequence[str], *, prog: str = "st-xlret apply") -> None:
    """Run the command `apply`."""
    words = name_leading_words(arguments, "map")
    options, stored = parse([ApplyArguments, StoreArguments], words, description=_APPLY, prog=prog)
    calibration = st_xlret.VectorCalibration.load(options.map)
    with stored.open_store() as store:
        applied = apply_calibration(calibration, store, options.into, show_progress_bar=True)
    if applied.left_out:
        print(f"not mapped: {counts_in_words(applied.left_out)}")
    print(f"{applied.written} rows written to {options.into}")


def _parse_options(own_group: Any, words: Sequence[str], **parser_options: Any) -> Any:
    """Read which texts or stored vectors, and a command's own options; a `ValueError` for both sources or neither."""
    texts, stored, options = parse(
        [SampleArguments, StoreArguments, own_group], words, **parser_options
    )
    check_options(options, "output")
    others: tuple[str, ...] = ("qrels",)
    if stored.vectors is None:
        check_options(texts, "model", "documents")
    else:
        check_options(options, *["queries"] * bool(getattr(options, "qrels", None)))
        others = ("model", "documents", "pairs")
    beside = [name for name in others if (vars(texts) | vars(options)).get(name)]
    check_options(
        options, unread=beside, where=f"{'without' if stored.vectors is None else 'with'} --vectors"
    )
    return texts, stored, options


def _compare_usual_calibrations(
    texts: SampleArguments, stored: StoreArguments, options: ReportArguments
) -> Comparison:
    """The bias of an encoder or of stored vectors, and what the usual calibrations would make of it."""
    count, queries, ids = texts.texts_per_language or _REPORTED_TEXTS, None, None
    fit_options: Any = {"texts": count, "neighbours": options.neighbours, "min_texts": 2}
    if stored.vectors is None:
        documents, queries, ids = _embed_sample(
            texts, texts.sample_texts(texts_per_language=count, seed=options.seed)
        )
        fit_options |= {"normalize": False}
    else:
        store = stored.open_store()
        documents = _sample_vectors(
            store, texts, count, min_texts=Arguments.min_texts, seed=options.seed
        )
        fit_options |= {"queries_only": True, "metric": store.metric}
    steps = ["lsar"] if len(documents) <= next(iter(documents.values())).shape[1] else ["shift"]
    return replace(
        calibrations.fit_and_compare(documents, queries, ids, steps=steps, **fit_options)[1],
        used=False,
    )


def _embed_sample(texts: SampleArguments, sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """Vectors of a sample of texts as documents, those as queries if they differ, and numbers of their documents."""
    from st_xlret.calibration.embedding import RoleEncoder
    from st_xlret.encoding import PROMPT_NAMES, role_prompt
    from st_xlret.hub.export import load_model

    model = load_model(texts.model or "", texts.device)
    prompts = {
        role: role_prompt(model, role, getattr(texts, f"{role}_prompt")) for role in PROMPT_NAMES
    }
    encoding: Any = {
        "batch_size": texts.batch_size,
        "precision": texts.precision,
        "show_progress_bar": True,
    }
    fewest = min(len(part.texts) for part in sample.values())
    chosen = {code: part.texts[:fewest] for code, part in sample.items()}
    document_ids = {code: part.documents for code, part in sample.items()}
    encoder = RoleEncoder(model, prompts, **encoding)
    return encoder.embed(chosen, "document"), encoder.embed_first_as_queries(chosen), document_ids


def _calibrate_model(texts: SampleArguments, options: Arguments) -> None:
    from st_xlret.calibration.sampling import usual_texts_per_language
    from st_xlret.encoding import PROMPT_NAMES, role_prompt
    from st_xlret.hub.card import encoding_calls, set_card_data
    from st_xlret.hub.export import load_model

    count = texts.texts_per_language or usual_texts_per_language(options.steps)
    draw_options: Any = {
        "texts_per_language": count,
        "min_texts": options.min_texts,
        "seed": options.seed,
    }
    sample = texts.sample_texts(**draw_options)
    _print_label_check({code: part.texts[:_CHECKED_TEXTS] for code, part in sample.items()})
    reading = {"languages": list(sample), "skip_bad_lines": texts.skip_bad_lines}
    pairs = st_xlret.load_pairs(options.pairs, **reading) if options.pairs else None
    model = load_model(texts.model or "", texts.device)
    if not (
        texts.query_prompt
        or texts.document_prompt
        or any(role_prompt(model, role) for role in PROMPT_NAMES)
    ):
        way_out = "give them, such as E5's 'query: ' and 'passage: ', by --query_prompt and --document_prompt"
        print(
            f"the model names no prompts: texts are embedded as they are. If it was trained with prompts, {way_out}"
        )
    comparisons: list[Comparison] = []
    names = ["steps", "phrases", "queries_only", "pivot", "keep_mean"]
    names += ["query_prompt", "document_prompt", "batch_size", "precision"]
    settings: Any = {name: (vars(texts) | vars(options))[name] for name in names}
    settings |= {
        "strength": options.strength_with_default(1.0),
        "queries": options.queries or None,
        "pairs": pairs,
    }
    calibrated = st_xlret.calibrate(
        model, sample, report=comparisons.append, **settings, **draw_options
    )
    data = {"texts": texts.documents, "questions": options.queries, "pairs": options.pairs}
    set_card_data(calibrated, base_model=texts.model, data=data)
    with atomic_directory(options.output, overwrite=options.overwrite) as folder:
        save_portable(calibrated, folder)
        comparisons[0].write(folder)
    print(
        f"\n{comparisons[0]}\n\nThe calibrated model is in {options.output}, for Sentence Transformers alone:\n"
    )
    print(f'    model = SentenceTransformer("{options.output}")')
    print(
        "".join(
            f"    {role}_vectors = {call}\n"
            for role, (_, call) in encoding_calls(calibrated).items()
        )
    )


def _print_label_check(texts: Mapping[str, Sequence[str]]) -> None:
    """Print the share of language labels with which an identifier disagrees, and warn of languages with many."""
    from st_xlret.languages import label_disagreements

    try:
        checked = label_disagreements(texts)
    except ImportError as error:
        return print(f"language labels were not checked: {error}")
    mean = sum(share for share, _, _ in checked.values()) / max(1, len(checked))
    print(f"the language identifier disagrees with {100 * mean:.1f} % of the labels")
    for code, (share, other, example) in checked.items():
        if share >= _DOUBTFUL:
            what = f"{100 * share:.0f} % of the texts labelled {code!r} look like {other!r}, such as {example[:80]!r}"
            print(f"warning: {what}: correct them, or leave the language out (--languages)")


def _calibrate_vectors(texts: SampleArguments, stored: StoreArguments, options: Arguments) -> None:
    from st_xlret.calibration.checks import check_steps
    from st_xlret.calibration.choose import QUESTIONS
    from st_xlret.calibration.sampling import usual_texts_per_language
    from st_xlret.calibration.report import STRENGTHS

    amount = options.strength_with_default("auto")
    check_steps(options.steps, amount, queries_only=options.queries_only)
    store = stored.open_store()
    store.refuse_mapped()
    one = " ".join(options.queries or [])  # several are no address
    queries = replace(stored, vectors=one).open_store() if one else None
    count = texts.texts_per_language or usual_texts_per_language(options.steps)
    draw_options: Any = {"min_texts": options.min_texts, "seed": options.seed}
    sample, questions = _sample_vectors(store, texts, count, **draw_options), None
    fit_options: Any = {
        name: getattr(options, name) for name in ("steps", "queries_only", "pivot", "keep_mean")
    }
    fit_options |= {"metric": store.metric, "model": store.model, **draw_options}
    recalls: dict[float, tuple[Recall, Recall]] = {}
    if queries is not None and options.qrels:
        fitted = calibrations.VectorCalibration.fit(sample, **fit_options)
        maps = {
            at: fitted.at(at)
            for at in sorted({*STRENGTHS, *([] if amount == "auto" else [amount])})
        }
        recalls = calibrations.judged_recall(
            _usable_rows(store), _usable_rows(queries), options.qrels, maps
        )
        if amount == "auto":
            amount = max(recalls, key=lambda at: recalls[float(at)][0].overall)
    elif queries is not None:
        few = (
            min(QUESTIONS, options.min_texts)
            if options.queries_only and options.steps == ["lsar"]
            else None
        )
        questions = _sample_vectors(
            queries, texts, count, min_texts=few or options.min_texts, seed=options.seed
        )
    calibration, comparison = calibrations.fit_and_compare(
        sample, questions=questions, strength=amount, **fit_options
    )
    comparison = replace(
        comparison, judged={at: first.overall for at, (first, _) in recalls.items()}
    )
    halves = [
        {"strength": strength, "first_half": first._asdict(), "second_half": second._asdict()}
        for strength, (first, second) in recalls.items()
    ]
    with atomic_directory(options.output, overwrite=options.overwrite) as folder:
        calibration.save(folder)
        comparison.write(folder, **({"judged": halves} if halves else {}))
    print(f"\n{comparison}" + (f"\n\n{_recall_table(recalls, amount)}" if recalls else ""))
    language = ', language="fr"' if calibration.languages else ""
    documents = f"the documents: st-xlret apply {options.output} --vectors SOURCE --into NAME"
    print(
        f"\nThe map is in {options.output}. In the service that searches (README.md there has it without Python):\n\n"
        f'    calibration = st_xlret.VectorCalibration.load("{options.output}")\n'
        f'    query = calibration.transform(query, role="query"{language})\n'
        f"    # {'the documents stay as they are' if calibration.queries_only else documents}\n"
    )


def _sample_vectors(
    store: Store, texts: SampleArguments, count: int, *, min_texts: int, seed: int
) -> dict[str, Any]:
    """Vectors of each language of a store; languages with fewer than `min_texts` are left out, and named."""
    mapped = f", mapped by the calibration {store.mark}" if store.mark else ""
    print(f"{store.name}: {len(store)} vectors of {store.dimension} dimensions{mapped}")
    sample = store.sample(
        count, languages=texts.languages or None, seed=seed, show_progress_bar=True
    )
    kept = {code: rows for code, rows in sample.items() if len(rows) >= min_texts}
    print(f"sampled: {', '.join(f'{code} {len(rows)}' for code, rows in list(kept.items())[:30])}")
    if few := [f"{code[:20]} {len(rows)}" for code, rows in sample.items() if code not in kept]:
        print(
            f"warning: left out, with fewer than {min_texts} vectors: {len(few)} languages, {', '.join(few[:30])}"
        )
    return kept or sample  # which the fit refuses


def _usable_rows(store: Store) -> Iterator[Batch]:
    for batch in store.batches():
        vectors, is_usable, codes = store.check_rows(batch, Counter())
        (rows,) = is_usable.nonzero()
        yield batch.column("id").take(rows).to_pylist(), vectors[rows], codes[rows].tolist()


def _recall_table(recalls: Mapping[float, tuple[Recall, Recall]], used: object) -> str:
    from st_xlret.tables import markdown_table, percent

    rows = [
        [
            f"{strength:g}{' (used)' * (strength == used)}",
            *(percent(figure).replace("nan", "-") for figure in second),
        ]
        for strength, (_, second) in recalls.items()
    ]
    table = markdown_table(
        ["strength", "all answers", "in the language of the query", "in others"], rows
    )
    return f"Recall@10 (%) of one half of the judged queries; auto is chosen by the other half:\n\n{table}"
