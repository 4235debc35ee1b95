"""Measure a model for the study of search: XQuAD-R and Tatoeba, as it is and calibrated, each text embedded once.

    python -m training_scripts.studies.measure_search --model runs/search/model --pool xquad_r --tatoeba tatoeba/v1 \\
        --output measured.json

The evaluators are those of `st-xlret evaluate`, the calibrations those of `st-xlret calibrate`:

- raw: the model as it is;
- calibrated: `--corpus POOL`, which needs no language and no question;
- aligned: `--corpus POOL --queries POOL --steps shift coral`, fitted on the pool and its questions, without labels.

Each is measured by mAP@20 and language preference in the pool of all languages, by mAP@20 among the candidates of the
question's own language and, but for the last one, which has no maps for other languages, by Tatoeba's accuracy: the
mean of the 13 languages of the CCP paper's Table 1, and of all 18. With --mining, the model as it is also mines
translations (F1). With --held_out, learning rates are chosen: mAP@20 of the model as it is in that pool.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from st_xlret.commands.fitting import Method, fit
from st_xlret.evaluation import BUCCEvaluator, LAReQAEvaluator, TatoebaEvaluator
from st_xlret.evaluation.encoding.embedding import Calibration, Side, TextEmbedder
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.files import write_json_atomically
from st_xlret.hub.loading import load_model
from st_xlret.options import option, parse

# The languages of the CCP paper's Table 1.
TATOEBA = ["ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "vi", "zh"]
FURTHER = ["id", "ja", "ko", "pt", "uk"]

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from st_xlret.evaluation.retrieval.data import TextCollection


@dataclass
class Arguments:
    """What to measure, and on what."""

    model: str = field(metadata={"help": "The model."})
    output: str = field(metadata={"help": "JSON file for the figures, as fractions in [0, 1]."})
    pool: str | None = option(None, "XQuAD-R, or some of its paragraphs, in BEIR's layout.")
    tatoeba: str | None = option(None, "Folder of Tatoeba. By default it is not measured.")
    mining: str | None = option(None, "Folder of evaluation/make_mining_test.py. By default nothing is mined.")
    held_out: str | None = option(None, "Another pool in BEIR's layout, to choose a learning rate by.")
    precision: str = option("auto", "Number format of the model.", choices=["auto", "fp32", "bf16"])


@dataclass(frozen=True)
class RememberingEmbedder(TextEmbedder):
    """Embeds a text once, whichever evaluator and calibration it is for.

    Attributes:
        known: (side, text) -> vector (d,), before calibration.
        queries: Calibration of queries, if it is another one than that of documents.
    """

    known: dict[tuple[Side | None, str], Tensor] = field(default_factory=dict)
    queries: Calibration | None = None

    def embed(
        self, model: SentenceTransformer, texts: Sequence[str], language: str, *, side: Side | None = None
    ) -> Tensor:
        """Embed the texts that are not known yet, and calibrate the vectors of all of them: float32 (n, d)."""
        import torch

        new = [text for text in dict.fromkeys(texts) if (side, text) not in self.known]
        if new:
            plain = replace(self, calibration=None)
            vectors = super(RememberingEmbedder, plain).embed(model, new, language, side=side)
            self.known.update(zip(((side, text) for text in new), vectors, strict=True))
        found = torch.stack([self.known[side, text] for text in texts])
        calibration = self.queries if side == "query" and self.queries is not None else self.calibration
        return found if calibration is None else calibration.transform(found, language).float()


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure the model; returns the figures, which are in the file too."""
    (given,) = parse([Arguments], sys.argv[1:] if arguments is None else arguments, description=__doc__)
    if not (given.pool or given.held_out):
        raise ValueError("there is nothing to measure: give --pool or --held_out")
    model = load_model(given.model)
    embedder = RememberingEmbedder(batch_size=64, precision=given.precision, show_progress_bar=True)
    figures: dict[str, float] = {}
    if given.held_out:
        evaluator = LAReQAEvaluator.from_directory(given.held_out)
        evaluator.embedder = embedder
        figures["raw held out"] = evaluator.evaluate(model).average["map_at_20"]
    if given.pool:
        figures |= measure_pool(model, embedder, given.pool, given.tatoeba)
    if given.mining:
        figures |= measure_mining(model, embedder, given.mining)
    write_json_atomically(given.output, figures)
    print("".join(f"{name}: {100 * score:.1f}\n" for name, score in figures.items()))
    return figures


def measure_pool(
    model: SentenceTransformer, embedder: RememberingEmbedder, pool: str, tatoeba: str | None
) -> dict[str, float]:
    """The scores of the model as it is, calibrated and aligned."""
    collection = read_lareqa(pool)
    figures = {f"raw {name}": score for name, score in measure(model, embedder, pool, tatoeba).items()}
    sides: dict[Side, TextCollection] = {"document": collection.corpus, "query": collection.queries}
    by_language = {side: vectors_by_language(model, embedder, texts, side) for side, texts in sides.items()}
    pivot = next(iter(by_language["document"]))
    default = fit(Method(), by_language["document"], pivot=pivot)
    aligned = fit(Method(steps=["shift", "coral"]), by_language["document"], by_language["query"], pivot=pivot)
    for name, fitted, sentences in (("calibrated", default, tatoeba), ("aligned", aligned, None)):
        calibrations: dict[str, Any] = {"calibration": fitted.documents, "queries": fitted.queries}
        found = measure(model, replace(embedder, **calibrations), pool, sentences)
        figures |= {f"{name} {measured}": score for measured, score in found.items()}
    return figures


def measure_mining(model: SentenceTransformer, embedder: RememberingEmbedder, folder: str) -> dict[str, float]:
    """F1 of mined translations: the mean, and each language's. The threshold is that of the training split."""
    evaluator = BUCCEvaluator.from_directory(folder)
    evaluator.embedder = embedder
    result = evaluator.evaluate(model)
    scores = {f"mining {code}": score["f1"] for code, score in result.scores.items()}
    return {"mining": result.average["f1"], **scores}


def vectors_by_language(
    model: SentenceTransformer, embedder: TextEmbedder, texts: TextCollection, side: Side
) -> dict[str, Tensor]:
    """Language to the vectors (n, d) of its texts."""
    texts_of: dict[str, list[str]] = {}
    for row, text in enumerate(texts.texts):
        texts_of.setdefault(texts.language_of(row), []).append(text)
    return {code: embedder.embed(model, found, code, side=side) for code, found in texts_of.items()}


def measure(model: SentenceTransformer, embedder: TextEmbedder, pool: str, tatoeba: str | None) -> dict[str, float]:
    """The scores of one way to embed: pool, preference, own, and those of Tatoeba by language."""
    figures = {}
    for name, split in (("pool", "test"), ("own", "test-same-language")):
        evaluator = LAReQAEvaluator.from_directory(pool, split=split)  # type: ignore[arg-type]
        evaluator.embedder = embedder
        average = evaluator.evaluate(model).average
        figures[name] = average["map_at_20"]
        if "language_preference" in average:
            figures["preference"] = average["language_preference"]
    if tatoeba is not None:
        sentences = TatoebaEvaluator.from_directory(tatoeba, [*TATOEBA, *FURTHER])
        sentences.embedder = embedder
        scores = {code: score["accuracy"] for code, score in sentences.evaluate(model).scores.items()}
        figures["Tatoeba"] = sum(scores[code] for code in TATOEBA) / len(TATOEBA)
        figures["Tatoeba of all"] = sum(scores.values()) / len(scores)
        figures |= {f"tatoeba {code}": score for code, score in scores.items()}
    return figures


if __name__ == "__main__":
    main()
