"""Measure a model for the study of search: XQuAD-R and Tatoeba, as it is and calibrated, each text embedded once.

    python -m training_scripts.studies.measure_search --model runs/search/model --pool xquad_r --tatoeba tatoeba/v1 \\
        --output measured.json

- raw: the model as it is;
- calibrated: after `st-xlret calibrate --corpus POOL`, which needs no language and no question;
- aligned: with `shift coral` fitted on the pool and its questions apart, no labels.

Each is measured in the pool of all languages by mAP@20, mAP over the whole ranking, language preference, and recall@10
of all answers, of those in the question's language, and of those in others; by mAP@20 among the candidates of the
question's own language; and, but for the last one, which has no maps for other languages, by Tatoeba's accuracy. With
--held_out, learning rates are chosen: the mean mAP@20 of those pools.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from st_xlret.calibration import VectorCalibration, fit_calibration
from st_xlret.encoding import Role, encode
from st_xlret.evaluation import LAReQAEvaluator, TatoebaEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.files import write_json
from st_xlret.hub.export import load_model
from st_xlret.modules import CalibrationLayer
from st_xlret.options import option, parse
from st_xlret.precision import PRECISIONS

# The languages of the CCP paper's Table 1, but for Urdu, and five more.
TATOEBA = ["ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "vi", "zh"]
FURTHER = ["id", "ja", "ko", "pt", "uk"]
OF_POOL = {
    "pool": "map_at_20",
    "preference": "language_preference",
    "whole ranking": "map",
    "recall@10": "recall_at_10",
    "recall@10 same language": "recall_at_10_same_language",
    "recall@10 other languages": "recall_at_10_other_languages",
}


@dataclass
class Arguments:
    """What to measure, and on what."""

    model: str = field(metadata={"help": "The model."})
    output: str = field(metadata={"help": "JSON file for the figures, as fractions in [0, 1]."})
    pool: str | None = option(None, "XQuAD-R, or some of its paragraphs, in BEIR's layout.")
    context: bool = option(False, "Candidates are sentences followed by their paragraphs.")
    tatoeba: str | None = option(None, "Folder of Tatoeba. By default it is not measured.")
    held_out: list[str] = option([], "Other pools in BEIR's layout, to choose a learning rate by.")
    precision: str = option("auto", "Number format of the model.", PRECISIONS)


class Embedder:
    """Embeds a text once, whichever evaluator and calibration it is for.

    Attributes:
        maps: Role -> the map of its vectors by language, "document" also for no role.
    """

    def __init__(self, model: Any, precision: str) -> None:
        self.model, self.precision = model, precision
        self.known: dict[tuple[Role | None, str], Tensor] = {}
        self.maps: dict[Role, CalibrationLayer] = {}

    def embed(self, model: Any, texts: Any, languages: Any, role: Role | None = None) -> Tensor:
        """As an evaluator's `embed`."""
        if new := [text for text in dict.fromkeys(texts) if (role, text) not in self.known]:
            how: dict[str, Any] = {"precision": self.precision, "convert_to_tensor": True, "show_progress_bar": True}
            vectors = encode(self.model, new, role=role, **how).float()
            self.known.update(zip(((role, text) for text in new), vectors, strict=True))
        vectors = torch.stack([self.known[role, text] for text in texts])
        layer = self.maps.get(role or "document")
        if layer is None:
            return vectors
        for code in dict.fromkeys(languages):
            rows = [row for row, other in enumerate(languages) if other == code]
            vectors[rows] = layer.transform(vectors[rows], code).float()
        return vectors

    def by_language(self, texts: Any, role: Role) -> dict[str, Tensor]:
        """Language -> the vectors (n, d) of its texts."""
        languages = texts["language"][:]
        vectors = self.embed(self.model, texts["text"][:], languages, role)
        return {code: vectors[[other == code for other in languages]] for code in dict.fromkeys(languages)}

    def evaluate(self, evaluator: Any) -> Any:
        """The result of an evaluator with these embeddings."""
        evaluator.embed = self.embed
        return evaluator.evaluate(self.model)


def measure(embedder: Embedder, pool: str, tatoeba: str | None, context: bool) -> dict[str, float]:
    """The scores of one way to embed: own, those of `OF_POOL`, and those of Tatoeba by language."""
    average, own = (
        embedder.evaluate(LAReQAEvaluator.from_directory(pool, split=split, context=context)).average
        for split in ("test", "test-same-language")
    )
    figures = {"own": own["map_at_20"], **{name: average[key] for name, key in OF_POOL.items() if key in average}}
    if tatoeba is not None:
        scores = embedder.evaluate(TatoebaEvaluator.from_directory(tatoeba, [*TATOEBA, *FURTHER])).scores
        accuracy = {code: score["accuracy"] for code, score in scores.items()}
        figures["Tatoeba"] = sum(accuracy[code] for code in TATOEBA) / len(TATOEBA)
        figures["Tatoeba of all"] = sum(accuracy.values()) / len(accuracy)
        figures |= {f"tatoeba {code}": score for code, score in accuracy.items()}
    return figures


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure the model; returns the figures, which are in the file too."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    embedder, figures = Embedder(load_model(given.model), given.precision), dict[str, float]()
    if given.held_out:
        results = [embedder.evaluate(LAReQAEvaluator.from_directory(pool)) for pool in given.held_out]
        figures["raw held out"] = sum(result.average["map_at_20"] for result in results) / len(results)
    if given.pool:
        data = read_lareqa(given.pool, context=given.context)
        documents = embedder.by_language(data.corpus, "document")
        queries = embedder.by_language(data.queries, "query")
        lsar = fit_calibration(documents)
        coral = VectorCalibration.fit(documents, queries=queries, steps=["shift", "coral"], normalize=False)
        ways: dict[str, tuple[dict[Role, CalibrationLayer], str | None]] = {
            "raw": ({}, given.tatoeba),
            "calibrated": ({"query": lsar, "document": lsar}, given.tatoeba),
            "aligned": ({"query": coral.layer("query"), "document": coral.layer()}, None),
        }
        for name, (embedder.maps, tatoeba) in ways.items():
            measured = measure(embedder, given.pool, tatoeba, given.context)
            figures |= {f"{name} {key}": score for key, score in measured.items()}
    write_json(given.output, figures)
    print("".join(f"{name}: {100 * score:.1f}\n" for name, score in figures.items()))
    return figures


if __name__ == "__main__":
    main()
