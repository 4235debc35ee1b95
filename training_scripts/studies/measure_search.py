"""Measure a model for the study of search: XQuAD-R and Tatoeba, as it is and calibrated, each text embedded once.

    python -m training_scripts.studies.measure_search --model runs/search/model --pool xquad_r --tatoeba tatoeba/v1 \\
        --output measured.json

- raw: the model as it is;
- calibrated: after `st-xlret calibrate --corpus POOL`, which needs no language and no question;
- aligned: after `--corpus POOL --queries POOL --steps shift coral`, fitted on the pool and its questions, no labels.

Each is measured in the pool of all languages by mAP@20, mAP over the whole ranking, language preference, and recall@10
of all answers, of those in the question's language, and of those in others; by mAP@20 among the candidates of the
question's own language; and, but for the last one, which has no maps for other languages, by Tatoeba's accuracy. With
--mining, the model as it is also mines translations (F1). With --held_out, learning rates are chosen: the mean mAP@20
of those pools.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from st_xlret.calibration import VectorCalibration, fit_calibration
from st_xlret.encoding import Role, encode
from st_xlret.evaluation import BUCCEvaluator, LAReQAEvaluator, TatoebaEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.files import write_json
from st_xlret.hub.export import load_model
from st_xlret.modules import CalibrationLayer
from st_xlret.options import option, parse

# The languages of the CCP paper's Table 1, but for Urdu, and five more.
TATOEBA = ["ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "vi", "zh"]
FURTHER = ["id", "ja", "ko", "pt", "uk"]
OF_POOL = {
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
    mining: str | None = option(None, "Folder of evaluation/make_mining_test.py. By default nothing is mined.")
    held_out: list[str] = option([], "Other pools in BEIR's layout, to choose a learning rate by.")
    precision: str = option("auto", "Number format of the model.", choices=["auto", "fp32", "bf16"])


@dataclass
class RememberingEmbedder:
    """Embeds a text once, whichever evaluator and calibration it is for.

    Attributes:
        precision: Number format of the model.
        calibration: Map of the vectors by language, if any.
        query_calibration: That of queries, if it is another one.
        known: (role, text) -> vector (d,) before calibration.
    """

    precision: str = "fp32"
    calibration: CalibrationLayer | None = None
    query_calibration: CalibrationLayer | None = None
    known: dict[tuple[Role | None, str], Tensor] = field(default_factory=dict)

    def embed(self, model: Any, texts: Any, languages: Any, role: Role | None = None) -> Tensor:
        """As an evaluator's `embed`."""
        new = [text for text in dict.fromkeys(texts) if (role, text) not in self.known]
        how: dict[str, Any] = {"role": role, "precision": self.precision, "convert_to_tensor": True}
        if new:
            vectors = encode(model, new, show_progress_bar=True, **how).float()
            self.known.update(zip(((role, text) for text in new), vectors, strict=True))
        vectors = torch.stack([self.known[role, text] for text in texts])
        layer = self.query_calibration if role == "query" and self.query_calibration else self.calibration
        if layer is not None:
            for code in dict.fromkeys(languages):
                rows = [row for row, other in enumerate(languages) if other == code]
                vectors[rows] = layer.transform(vectors[rows], code).float()
        return vectors

    def by_language(self, model: Any, texts: Any, role: Role) -> dict[str, Tensor]:
        """Language -> the vectors (n, d) of its texts."""
        languages = texts["language"][:]
        vectors = self.embed(model, texts["text"][:], languages, role)
        rows = {code: [row for row, other in enumerate(languages) if other == code] for code in languages}
        return {code: vectors[chosen] for code, chosen in rows.items()}

    def evaluate(self, evaluator: Any, model: Any) -> Any:
        """The result of an evaluator with these embeddings."""
        evaluator.embed = self.embed
        return evaluator.evaluate(model)


def measure(
    model: Any, embedder: RememberingEmbedder, pool: str, tatoeba: str | None, context: bool
) -> dict[str, float]:
    """The scores of one way to embed: pool, own, those of `OF_POOL`, and those of Tatoeba by language."""
    average, own = (
        embedder.evaluate(LAReQAEvaluator.from_directory(pool, split=split, context=context), model).average
        for split in ("test", "test-same-language")
    )
    figures = {"pool": average["map_at_20"], "own": own["map_at_20"]}
    figures |= {name: average[key] for name, key in OF_POOL.items() if key in average}
    if tatoeba is not None:
        found = embedder.evaluate(TatoebaEvaluator.from_directory(tatoeba, [*TATOEBA, *FURTHER]), model).scores
        scores = {code: score["accuracy"] for code, score in found.items()}
        figures["Tatoeba"] = sum(scores[code] for code in TATOEBA) / len(TATOEBA)
        figures["Tatoeba of all"] = sum(scores.values()) / len(scores)
        figures |= {f"tatoeba {code}": score for code, score in scores.items()}
    return figures


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Measure the model; returns the figures, which are in the file too."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    if not (given.pool or given.held_out):
        raise ValueError("there is nothing to measure: give --pool or --held_out")
    model = load_model(given.model)
    embedder = RememberingEmbedder(given.precision)
    figures: dict[str, float] = {}
    if given.held_out:
        evaluators = [LAReQAEvaluator.from_directory(pool) for pool in given.held_out]
        scores = [embedder.evaluate(each, model).average["map_at_20"] for each in evaluators]
        figures["raw held out"] = sum(scores) / len(scores)
    if given.pool:
        data = read_lareqa(given.pool, context=given.context)
        documents = embedder.by_language(model, data.corpus, "document")
        queries = embedder.by_language(model, data.queries, "query")
        aligned = VectorCalibration.fit(documents, queries=queries, steps=["shift", "coral"], normalize=False)
        ways: dict[str, tuple[dict[str, Any], str | None]] = {
            "raw": ({}, given.tatoeba),
            "calibrated": ({"calibration": fit_calibration(documents)}, given.tatoeba),
            "aligned": ({"calibration": aligned.layer(), "query_calibration": aligned.layer("query")}, None),
        }
        for name, (maps, tatoeba) in ways.items():
            calibrated = replace(embedder, **maps)
            found = measure(model, calibrated, given.pool, tatoeba, given.context)
            figures |= {f"{name} {key}": score for key, score in found.items()}
    if given.mining:
        result = embedder.evaluate(BUCCEvaluator.from_directory(given.mining), model)
        figures["mining"] = result.average["f1"]
        figures |= {f"mining {code}": score["f1"] for code, score in result.scores.items()}
    write_json(given.output, figures)
    print("".join(f"{name}: {100 * score:.1f}\n" for name, score in figures.items()))
    return figures


if __name__ == "__main__":
    main()
