"""Measure a model for the studies of search, as it is and calibrated; each text is embedded once.

    python -m training_scripts.studies.measure_search --model runs/search/model --pool xquad_r --tatoeba tatoeba/v1 \\
        --output measured.json

- raw: the model as it is;
- queries, calibrated: after `st-xlret calibrate --corpus POOL`, with `--queries_only` and without;
- no phrases, five questions: queries alone, with `--no_phrases`, or with `--queries` of five questions a language from
  the other split, without labels;
- aligned: with `shift coral` fitted on the pool and its questions apart, no labels.

The pool is measured by mAP@20, mAP over the whole ranking, language preference, and recall@10 of all answers, of those
in the question's language, and of those in others; by mAP@20 among the candidates of the question's own language; and
by Tatoeba's accuracy (the model as it is). --asked is AfriQA's pool, as `prepare` makes it: success@10 of the
questions as they were asked, and of their English translations. --held_out chooses learning rates: the mean mAP@20.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.calibration import VectorCalibration
from st_xlret.calibration.choose import QUESTIONS
from st_xlret.calibration.model import weak_language_phrases
from st_xlret.columns import Role
from st_xlret.evaluation import RetrievalEvaluator, macro_average
from st_xlret.evaluation.lareqa import average_precisions, read_lareqa
from st_xlret.evaluation.pools import RetrievalData, full_texts, read_beir
from st_xlret.evaluation.retrieval import ranking_of, score_ranking
from st_xlret.evaluation.tatoeba import retrieval_accuracy
from st_xlret.evaluation.tatoeba_files import load_tatoeba
from st_xlret.files import check_output_file, write_json
from st_xlret.hub.export import load_model
from st_xlret.options import option, parse
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


@dataclass
class Arguments:
    """What to measure, and on what."""

    model: str = field(metadata={"help": "The model."})
    output: str = field(
        metadata={"help": "JSON file for the figures, new or measured before, in [0, 1]."}
    )
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
    """Unit vectors, each mapped by the map of its language; without a calibration as they are."""
    return (
        vectors
        if calibration is None
        else torch.from_numpy(calibration.transform(vectors, role, codes))
    )


def by_language(vectors: Tensor, codes: Sequence[str]) -> dict[str, Tensor]:
    """Language -> its rows."""
    return {
        code: vectors[torch.from_numpy(np.array(codes) == code)] for code in dict.fromkeys(codes)
    }


def measure_pool(
    queries: Tensor,
    documents: Tensor,
    data: RetrievalData,
    calibration: Calibration = None,
    *,
    whole: bool = False,
) -> dict[str, float]:
    """The metrics of `score_ranking` for unit vectors, averaged over the languages of the questions, and further ones.

    `own` is mAP@20 among the candidates of the question's language, `share` how many of the first 20 results are in it,
    and, with `whole`, `map` is that of the whole ranking.
    """
    asked, codes = data.judged["language"][:], data.corpus["language"][:]
    queries, documents = (
        mapped(calibration, queries, "query", asked),
        mapped(calibration, documents, "document", codes),
    )
    ranking, own = ranking_of(queries, documents, 20), []
    figures = macro_average(score_ranking(ranking, data, ["map_at_20"]))
    candidates = by_language(documents, codes)
    for code in dict.fromkeys(asked):
        within = data.select_languages([code], corpus=True)
        # Where each paragraph is in one language, few questions have an answer in their own.
        rows = torch.from_numpy(np.isin(data.judged["id"][:], within.judged["id"][:]))
        best = ranking_of(queries[rows], candidates[code], 20)
        own.append(score_ranking(best, within, ["map_at_20"])[code]["map_at_20"])
    figures["own"] = float(np.mean(own))
    figures["share"] = float((np.array(codes)[ranking] == np.array(asked)[:, None]).mean())
    if whole:
        precisions = torch.from_numpy(average_precisions(queries, documents, data.relevant))
        figures["map"] = float(
            np.mean([of_code.mean() for of_code in by_language(precisions, asked).values()])
        )
    return figures


def embedded(
    model: SentenceTransformer, precision: str, texts: Sequence[str], role: Role | None = None
) -> Tensor:
    """Unit vectors (n, d) of texts; one that stands several times is embedded once."""
    evaluator = RetrievalEvaluator({}, batch_size=64, precision=precision, show_progress_bar=True)
    return unit_rows(evaluator.embed_texts(model, texts, [""] * len(texts), role))


def both_sides(embed: Embed, data: RetrievalData) -> tuple[Tensor, Tensor]:
    """Vectors of the questions and of the candidates."""
    return embed(full_texts(data.judged), "query"), embed(full_texts(data.corpus), "document")


def lsar_calibrations(
    embed: Embed, documents: Mapping[str, Tensor], questions: Any = None
) -> dict[str, Calibration]:
    """What `st-xlret calibrate` fits to the documents of a pool, to its phrases, and to questions."""
    phrases: Any = {
        "mul": embed([text for part in weak_language_phrases().values() for text in part], "query")
    }
    fit = partial(VectorCalibration.fit, documents, queries_only=True)
    ways = {
        "raw": None,
        "queries": fit(phrases=phrases),
        "calibrated": fit(phrases=phrases, queries_only=False),
    }
    if questions is not None:
        ways |= {"no phrases": fit(), "five questions": fit(phrases=phrases, queries=questions)}
    return ways


def figures_of_pool(embed: Embed, options: Arguments) -> dict[str, float]:
    """The scores of XQuAD-R and Tatoeba for each way."""
    data, figures = read_lareqa(str(options.pool), context=options.context), dict[str, float]()
    queries, documents = both_sides(embed, data)
    stored, asked = (
        by_language(documents, data.corpus["language"][:]),
        by_language(queries, data.judged["language"][:]),
    )
    coral = VectorCalibration.fit(stored, queries=asked, steps=["shift", "coral"])
    for way, calibration in {**lsar_calibrations(embed, stored), "aligned": coral}.items():
        scores = measure_pool(queries, documents, data, calibration, whole=True)
        names = OF_POOL | {
            key.replace("_at_", "@").replace("_", " "): key for key in scores if "recall" in key
        }
        figures |= {f"{way} {name}": scores[key] for name, key in names.items() if key in scores}
    texts = load_tatoeba(options.tatoeba, [*TATOEBA, *FURTHER]) if options.tatoeba else {}
    if accuracy := {
        code: sum(retrieval_accuracy(*map(embed, sides))) / 2 for code, sides in texts.items()
    }:
        figures["raw Tatoeba"] = sum(accuracy[code] for code in TATOEBA) / len(TATOEBA)
        figures["raw Tatoeba of all"] = sum(accuracy.values()) / len(accuracy)
    return figures


def figures_of_questions(embed: Embed, folder: str, split: str) -> dict[str, float]:
    """The scores of AfriQA for each way that needs no language of a question."""
    data, figures = read_beir(folder, split=split), dict[str, float]()
    queries, documents = both_sides(embed, data)
    stored = by_language(documents, data.corpus["language"][:])
    others: Any = read_beir(folder, split="dev" if split == "train" else "train").judged.to_pandas()
    by_code = others.groupby("language")["text"]
    questions = {
        code: embed(list(texts[:QUESTIONS]), "query") for code, texts in by_code if code != "en"
    }
    for way, calibration in lsar_calibrations(embed, stored, questions).items():
        ranking = ranking_of(
            mapped(calibration, queries, "query"), mapped(calibration, documents, "document"), 10
        )
        scores = score_ranking(ranking, data, ["success_at_10", "mrr_at_10"])
        figures[f"{way} English"] = scores.pop("en")["success_at_10"]
        names = {
            "asked": "success_at_10",
            "asked MRR": "mrr_at_10",
            "asked share": "same_language_at_10",
        }
        figures |= {f"{way} {name}": macro_average(scores)[key] for name, key in names.items()}
        figures |= {f"{way} asked {code}": score["success_at_10"] for code, score in scores.items()}
    return figures


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure the model; returns the figures, which are in the file too."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    check_output_file(options.output, ours="measure_search")
    embed, figures = (
        partial(embedded, load_model(options.model), options.precision),
        dict[str, float](),
    )
    if pools := [read_lareqa(pool) for pool in options.held_out]:
        figures["raw held out"] = sum(
            measure_pool(*both_sides(embed, p), p)["map_at_20"] for p in pools
        ) / len(pools)
    figures |= figures_of_pool(embed, options) if options.pool else {}
    figures |= figures_of_questions(embed, options.asked, options.split) if options.asked else {}
    write_json(options.output, figures, ours="measure_search")
    print("".join(f"{name}: {100 * score:.1f}\n" for name, score in figures.items()))
    return figures


if __name__ == "__main__":
    main()
