"""Measure a model for the studies of search, as it is and calibrated; each text is embedded once.

    python -m training_scripts.studies.measure_search --model runs/search/model --pool xquad_r \\
        --tatoeba tatoeba/v1 --output measured.json

- raw: the model as it is;
- queries, calibrated: after `st-xlret calibrate --corpus POOL`, with `--queries_only` and without;
- no phrases, five questions: queries alone, with `--no_phrases`, or with `--queries` of five
  questions a language from the other split, without labels;
- aligned: with `shift coral` fitted on the pool and its questions apart, no labels.

The pool is measured by mAP@20, mAP over the whole ranking, language preference, and recall@10 of
all answers, of those in the question's language, and of those in others; by mAP@20 among the
candidates of the question's own language; and by Tatoeba's accuracy (the model as it is). --asked
is AfriQA's pool, as `prepare` makes it: success@10 of the questions as they were asked, and of
their English translations. --held_out chooses learning rates: the mean mAP@20.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.calibration import FitOptions, VectorCalibration, fit_and_compare
from st_xlret.calibration.embedding import AS_QUERIES
from st_xlret.calibration.fit_options import MIN_JOINING_QUERIES
from st_xlret.calibration.panels import weak_language_phrases
from st_xlret.columns import Role
from st_xlret.evaluation import RetrievalEvaluator, macro_average
from st_xlret.evaluation.lareqa import average_precisions, read_lareqa
from st_xlret.evaluation.pools import RetrievalData, full_texts, read_beir
from st_xlret.evaluation.retrieval import ranking_of, score_ranking
from st_xlret.evaluation.tatoeba import retrieval_accuracy
from st_xlret.evaluation.tatoeba_files import load_tatoeba
from st_xlret.files import check_output_file, write_json
from st_xlret.hub.loading import load_model
from st_xlret.options import option, parse, required_option
from st_xlret.precision import PRECISIONS
from st_xlret.search import unit_rows

Calibration: TypeAlias = VectorCalibration | None
Embed: TypeAlias = Callable[..., Tensor]  # of texts and their role
# The languages of the CCP paper's Table 1, but for Urdu, and five more.
TATOEBA = ["ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "vi", "zh"]
FURTHER = ["id", "ja", "ko", "pt", "uk"]
OF_POOL = {
    "own": "own",
    "pool": "map_at_20",
    "preference": "language_preference",
    "whole ranking": "map",
}
"""Name of a figure of the pool -> metric. Studies have it as a column after its way: `raw pool`."""
OF_QUESTIONS = {
    "asked": "success_at_10",
    "asked MRR": "mrr_at_10",
    "asked share": "same_language_at_10",
}
"""Name of a figure of AfriQA's questions, but for those in English -> metric."""


@dataclass
class Arguments:
    """What to measure, and on what."""

    model: str = required_option("The model.")
    output: str = required_option("JSON file for the figures, new or measured before, in [0, 1].")
    pool: str | None = option(None, "XQuAD-R, or some of its paragraphs, in BEIR's layout.")
    context: bool = option(False, "Candidates are sentences followed by their paragraphs.")
    tatoeba: str | None = option(None, "Folder of Tatoeba. By default it is not measured.")
    asked: str | None = option(None, "AfriQA's questions and passages of news.")
    split: str = option("dev", "Split of AfriQA.")
    held_out: list[str] = option([], "Other pools in BEIR's layout, to choose a learning rate by.")
    precision: str = option("auto", "Number format of the model.", PRECISIONS)


def mapped(
    calibration: Calibration, vectors: Tensor, role: Role, codes: Sequence[str] | None = None
) -> Tensor:
    """Unit vectors, each mapped by the map of its language; without a calibration as they are.

    `codes` are the languages of the rows; without them, one map serves all.
    """
    if calibration is None:
        return vectors
    return torch.from_numpy(calibration.transform(vectors, role, codes))


def by_language(vectors: Tensor, codes: Sequence[str]) -> dict[str, Tensor]:
    """Language -> its rows."""
    of_rows = np.array(codes)
    rows = {}
    for code in dict.fromkeys(codes):
        rows[code] = vectors[torch.from_numpy(of_rows == code)]
    return rows


def measure_pool(
    queries: Tensor,
    documents: Tensor,
    data: RetrievalData,
    calibration: Calibration = None,
    *,
    whole: bool = False,
) -> dict[str, float]:
    """The metrics of `score_ranking` for unit vectors, averaged over the languages of questions.

    Further ones are `own`, mAP@20 among the candidates of the question's language, `share`, how
    many of the first 20 results are in it, and, with `whole`, `map`, that of the whole ranking.
    """
    asked = data.judged["language"][:]
    codes = data.corpus["language"][:]
    queries = mapped(calibration, queries, "query", asked)
    documents = mapped(calibration, documents, "document", codes)
    ranking = ranking_of(queries, documents, 20)
    figures = macro_average(score_ranking(ranking, data, ["map_at_20"]))
    figures["own"] = precision_among_own(queries, documents, data)
    is_own = np.array(codes)[ranking] == np.array(asked)[:, None]
    figures["share"] = float(is_own.mean())
    if whole:
        precisions = torch.from_numpy(average_precisions(queries, documents, data.relevant))
        means = [of_code.mean() for of_code in by_language(precisions, asked).values()]
        figures["map"] = float(np.mean(means))
    return figures


def precision_among_own(queries: Tensor, documents: Tensor, data: RetrievalData) -> float:
    """The mAP@20 of questions among the candidates of their language, averaged over languages."""
    candidates = by_language(documents, data.corpus["language"][:])
    names = data.judged["id"][:]
    precisions = []
    for code in dict.fromkeys(data.judged["language"][:]):
        within = data.select_languages([code], corpus=True)
        # Where each paragraph is in one language, few questions have an answer in their own.
        rows = torch.from_numpy(np.isin(names, within.judged["id"][:]))
        ranking = ranking_of(queries[rows], candidates[code], 20)
        precisions.append(score_ranking(ranking, within, ["map_at_20"])[code]["map_at_20"])
    return float(np.mean(precisions))


def embedded(
    model: SentenceTransformer, precision: str, texts: Sequence[str], role: Role | None = None
) -> Tensor:
    """Unit vectors (n, d) of texts; one that stands several times is embedded once."""
    evaluator = RetrievalEvaluator({}, batch_size=64, precision=precision, show_progress_bar=True)
    return unit_rows(evaluator.embed_texts(model, texts, [""] * len(texts), role))


def both_sides(embed: Embed, data: RetrievalData) -> tuple[Tensor, Tensor]:
    """Vectors of the questions and of the candidates."""
    queries = embed(full_texts(data.judged), "query")
    documents = embed(full_texts(data.corpus), "document")
    return queries, documents


def lsar_calibrations(
    embed: Embed,
    data: RetrievalData,
    documents: Tensor,
    questions: Mapping[str, Tensor] | None = None,
) -> dict[str, Calibration]:
    """What `st-xlret calibrate` fits to the documents of a pool, to its phrases, and questions.

    The keys are the ways of which figures are named.
    """
    codes = data.corpus["language"][:]
    stored = by_language(documents, codes)
    texts = np.array(full_texts(data.corpus), object)
    as_queries = {}
    for code in stored:
        first = texts[np.array(codes) == code][:AS_QUERIES]
        as_queries[code] = embed(first.tolist(), "query")
    phrases = [text for of_language in weak_language_phrases().values() for text in of_language]
    as_phrases = {"mul": embed(phrases, "query")}

    def fit(*, queries_only: bool, **joining: Any) -> VectorCalibration:
        options = FitOptions(queries_only=queries_only)
        fitted, _ = fit_and_compare(stored, as_queries, options=options, **joining)
        return fitted

    ways: dict[str, Calibration] = {
        "raw": None,
        "queries": fit(queries_only=True, phrases=as_phrases),
        "calibrated": fit(queries_only=False, phrases=as_phrases),
    }
    if questions is not None:
        ways["no phrases"] = fit(queries_only=True)
        ways["five questions"] = fit(queries_only=True, phrases=as_phrases, queries=questions)
    return ways


def figures_of_pool(embed: Embed, folder: str, context: bool) -> dict[str, float]:
    """The scores of XQuAD-R for each way."""
    data = read_lareqa(folder, context=context)
    queries, documents = both_sides(embed, data)
    stored = by_language(documents, data.corpus["language"][:])
    asked = by_language(queries, data.judged["language"][:])
    ways = lsar_calibrations(embed, data, documents)
    ways["aligned"] = VectorCalibration.fit(stored, queries=asked, steps=["shift", "coral"])
    figures = {}
    for way, calibration in ways.items():
        scores = measure_pool(queries, documents, data, calibration, whole=True)
        for name, metric in OF_POOL.items():
            if metric in scores:
                figures[f"{way} {name}"] = scores[metric]
        for metric, score in scores.items():
            if "recall" in metric:
                name = metric.replace("_at_", "@").replace("_", " ")
                figures[f"{way} {name}"] = score
    return figures


def figures_of_tatoeba(embed: Embed, folder: str) -> dict[str, float]:
    """The accuracy of Tatoeba, the mean of both directions, for the model as it is."""
    accuracies = {}
    for code, (texts, english) in load_tatoeba(folder, [*TATOEBA, *FURTHER]).items():
        directions = retrieval_accuracy(embed(texts), embed(english))
        accuracies[code] = sum(directions) / 2
    of_the_paper = sum(accuracies[code] for code in TATOEBA) / len(TATOEBA)
    of_all = sum(accuracies.values()) / len(accuracies)
    return {"raw Tatoeba": of_the_paper, "raw Tatoeba of all": of_all}


def figures_of_questions(embed: Embed, folder: str, split: str) -> dict[str, float]:
    """The scores of AfriQA for each way that needs no language of a question."""
    data = read_beir(folder, split=split)
    queries, documents = both_sides(embed, data)
    other_split = "dev" if split == "train" else "train"
    questions = some_questions(embed, read_beir(folder, split=other_split))
    figures = {}
    for way, calibration in lsar_calibrations(embed, data, documents, questions).items():
        asked = mapped(calibration, queries, "query")
        searched = mapped(calibration, documents, "document")
        ranking = ranking_of(asked, searched, 10)
        scores = score_ranking(ranking, data, ["success_at_10", "mrr_at_10"])
        of_english = scores.pop("en")
        figures[f"{way} English"] = of_english["success_at_10"]
        means = macro_average(scores)
        for name, metric in OF_QUESTIONS.items():
            figures[f"{way} {name}"] = means[metric]
        for code, of_code in scores.items():
            figures[f"{way} asked {code}"] = of_code["success_at_10"]
    return figures


def some_questions(embed: Embed, data: RetrievalData) -> dict[str, Tensor]:
    """The vectors of the first questions of each language but English."""
    table: Any = data.judged.to_pandas()
    questions = {}
    for code, texts in table.groupby("language")["text"]:
        if code != "en":
            questions[code] = embed(list(texts[:MIN_JOINING_QUERIES]), "query")
    return questions


def figure_of_held_out(embed: Embed, pools: Sequence[str]) -> float:
    """The mean mAP@20 of the model as it is."""
    precisions = []
    for pool in pools:
        data = read_lareqa(pool)
        queries, documents = both_sides(embed, data)
        precisions.append(measure_pool(queries, documents, data)["map_at_20"])
    return sum(precisions) / len(precisions)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure the model; returns the figures, which are in the file too."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    check_output_file(options.output, ours="measure_search")
    embed = partial(embedded, load_model(options.model), options.precision)
    figures: dict[str, float] = {}
    if options.held_out:
        figures["raw held out"] = figure_of_held_out(embed, options.held_out)
    if options.pool:
        figures |= figures_of_pool(embed, options.pool, options.context)
    if options.pool and options.tatoeba:
        figures |= figures_of_tatoeba(embed, options.tatoeba)
    if options.asked:
        figures |= figures_of_questions(embed, options.asked, options.split)
    write_json(options.output, figures, ours="measure_search")
    lines = [f"{name}: {100 * score:.1f}\n" for name, score in figures.items()]
    print("".join(lines))
    return figures


if __name__ == "__main__":
    main()
