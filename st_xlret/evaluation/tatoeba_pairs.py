"""Tatoeba between two languages other than English."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from st_xlret.evaluation.bilingual_retrieval import retrieval_accuracy
from st_xlret.evaluation.encoding.embedding import Calibration, Pooling, TextEmbedder
from st_xlret.evaluation.readers.tatoeba_pairs import (
    CCP_PAIRS,
    JOINED,
    join_on_english,
    load_tatoeba_pairs,
    split_pair,
)
from st_xlret.evaluation.reporting.benchmark_evaluator import BenchmarkEvaluator
from st_xlret.evaluation.reporting.tables import BenchmarkResult, macro_average
from st_xlret.evaluation.tatoeba import load_tatoeba_hub

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class TatoebaPairsEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between languages other than English, in both directions.

    CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 2) reports the mean of both directions for 15 pairs
    of languages, with up to 1 000 linked sentences of each from Tatoeba. The sentences that the authors drew are not
    published. They are drawn anew here from Tatoeba's own export; without it, two languages of the English-centric test
    set are joined where they have the same English sentence, which leaves few sentences for most pairs. A small number
    of sentences is an easier task: the result has the numbers.

    Metrics: `average_accuracy` (primary), `average_accuracy_forward` (first language to second),
    `average_accuracy_backward`, and the same three per pair, such as `de-el_accuracy`.

    Args:
        sentences: Pair, such as `"de-el"`, to (sentences in the first language, translations in the second).
        name: Prefix of the metrics.
        origin: Where the pairs are from, for the result.
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        calibration: Applied to each language's embeddings, such as a `CalibrationLayer`.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        show_progress_bar: Whether to show a bar over the pairs.
        write_csv: Whether to append the accuracies to a CSV file where an output path is given.
        language_metrics: Whether to return the metrics of each pair, beside the means.

    Raises:
        ValueError: If there are no pairs, a name is no pair of two languages, a pair has no sentences or another number
            of translations than sentences, or if the calibration does not know a language.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel", "radio"])], device="cpu")
        >>> evaluator = TatoebaPairsEvaluator({"fr-de": (["un taxi", "la radio"], ["Taxi", "Hotel Radio"])})
        >>> evaluator(model)["tatoeba-pairs_fr-de_accuracy"]
        1.0
    """

    card_metric = "accuracy"

    def __init__(
        self,
        sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        *,
        name: str = "tatoeba-pairs",
        origin: str = "given",
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: Calibration | None = None,
        batch_size: int = 128,
        precision: str = "fp32",
        show_progress_bar: bool = False,
        write_csv: bool = True,
        language_metrics: bool = True,
    ) -> None:
        super().__init__(
            name=name,
            csv_file=f"{(name or 'tatoeba_pairs').replace('-', '_')}_evaluation_results.csv",
            primary_metric="average_accuracy",
            write_csv=write_csv,
            language_metrics=language_metrics,
        )
        if not sentences:
            raise ValueError("there are no pairs of languages to evaluate.")
        self.sentences: dict[str, tuple[list[str], list[str]]] = {}
        for pair, (first, second) in sentences.items():
            split_pair(pair)
            if len(first) != len(second) or not len(first):
                raise ValueError(
                    f"pair {pair!r} has {len(first)} sentences and {len(second)} translations: give it the same, "
                    "positive number of both."
                )
            self.sentences[pair] = (list(first), list(second))
        self.origin = origin
        self.embedder = TextEmbedder(layer, pooling, calibration, batch_size, precision=precision)
        self.embedder.require_languages(
            list(dict.fromkeys(code for pair in self.sentences for code in split_pair(pair)))
        )
        self.show_progress_bar = show_progress_bar

    @classmethod
    def from_directory(
        cls, path: str | os.PathLike[str], pairs: Sequence[str] | None = None, **options: Any
    ) -> TatoebaPairsEvaluator:
        """Read Tatoeba's export (`sentences.csv` and `links.csv`), or join the English-centric test sets of LASER.

        Args:
            path: The folder.
            pairs: Such as `["de-el", "zh-ja"]`. Default: the 15 of the CCP paper.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a pair has no sentences, or a file is malformed.
        """
        sentences, origin = load_tatoeba_pairs(path, _chosen(pairs))
        return cls(sentences, **{"origin": origin, **options})

    @classmethod
    def from_hub(cls, pairs: Sequence[str] | None = None, **options: Any) -> TatoebaPairsEvaluator:
        """Join the English-centric test sets of `mteb/tatoeba-bitext-mining` on English.

        Args:
            pairs: As for `from_directory`.
            **options: The evaluator's own.

        Raises:
            ValueError: If a pair has no sentences.
        """
        return cls(join_on_english(load_tatoeba_hub(), _chosen(pairs)), **{"origin": JOINED, **options})

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Accuracies per pair, their averages, and the protocol."""
        scores: dict[str, dict[str, float]] = {}
        pairs = tqdm(self.sentences.items(), desc="Tatoeba pairs", disable=not self.show_progress_bar)
        for pair, sides in pairs:
            embeddings = [
                self.embedder.embed(model, texts, code) for texts, code in zip(sides, split_pair(pair), strict=True)
            ]
            forward, backward = retrieval_accuracy(*embeddings)
            scores[pair] = {
                "accuracy": (forward + backward) / 2,
                "accuracy_forward": forward,
                "accuracy_backward": backward,
            }
        return BenchmarkResult("tatoeba-pairs", scores, macro_average(scores), self._protocol(model))

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        counts = ", ".join(f"{pair} {len(first)}" for pair, (first, _) in self.sentences.items())
        return {
            "task": "nearest neighbour by cosine within the pair of languages, equal cosines to the lower row",
            "direction": "forward: first language to second; backward: second to first; accuracy: mean of both",
            **self.embedder.describe(model),
            "sentences": self.origin,
            "sentences_per_pair": counts,
        }


def _chosen(pairs: Sequence[str] | None) -> list[str]:
    chosen = [pairs] if isinstance(pairs, str) else list(CCP_PAIRS if pairs is None else pairs)
    for pair in chosen:
        split_pair(pair)
    return chosen
