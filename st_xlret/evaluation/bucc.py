"""BUCC: mining the translations that are hidden in two comparable corpora."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm.auto import tqdm

from st_xlret.evaluation.encoding.embedding import Calibration, Pooling, TextEmbedder
from st_xlret.evaluation.readers.bucc import BUCCCorpus, BUCCSplit, load_bucc_directory, load_bucc_hub
from st_xlret.evaluation.reporting.benchmark_evaluator import BenchmarkEvaluator
from st_xlret.evaluation.reporting.tables import BenchmarkResult, macro_average
from st_xlret.files import write_text_atomically
from st_xlret.search.mining import Margin, mine_bitext

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class MinedPair(NamedTuple):
    """A pair of sentence ids, and its margin score."""

    score: float
    source: str
    target: str


class BUCCEvaluator(BenchmarkEvaluator):
    """Precision, recall and F1 of translations mined from two corpora, by the protocol of the BUCC shared task.

    The protocol of Artetxe and Schwenk ([2019](https://arxiv.org/abs/1811.01136)) and LASER, which the papers
    follow: pairs are mined in both directions with the ratio margin over 4 neighbours, one-to-one
    (`mine_bitext`); the threshold on their score that gives the best F1 on the training split is applied to the
    test split. Each distinct sentence is mined once. Pairs with a sentence that occurs more than once in its corpus are
    dropped, as its id is ambiguous.

    The tasks of this name in mteb are a different benchmark: retrieval between the gold pairs alone, where every
    sentence has a translation and no threshold is needed.

    Metrics: `average_f1` (primary), `average_precision`, `average_recall`, and the same three per language, such as
    `de_f1`. A language without gold pairs in the evaluated split gets no scores; its pairs are in `mined_pairs` and in
    the files of `pairs_directory`, in the format of the organisers.

    Args:
        corpora: Language to the corpus that is evaluated, its sentences beside English ones.
        training: Language to the corpus on which the threshold is chosen, with gold pairs. Default: the evaluated
            corpora themselves, which is optimistic, as the result says.
        name: Prefix of the metrics.
        split: Name of the evaluated split, for the result.
        threshold_split: Name of the split of `training`, for the result.
        k: Number of neighbours in the margin.
        margin: See `mine_bitext`; the papers use `"ratio"`.
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        calibration: Applied to each language's embeddings, such as a `CalibrationLayer`.
        batch_size: Size of a forward pass, in texts of 64 tokens (see `encode_texts`).
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        pairs_directory: Folder for the mined pairs, in files such as `de-en.test.mined.tsv` with a score and two ids
            per line, best first. Default: they are not written.
        show_progress_bar: Whether to show bars over the languages, batches and blocks.
        write_csv: Whether to append the metrics to a CSV file where an output path is given.
        language_metrics: Whether to return each language's metrics, beside the means.

    Raises:
        ValueError: If there are no languages, a language has no training corpus, a training corpus has no gold pairs,
            or the calibration does not know a language.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret.evaluation.readers.bucc import BUCCCorpus, BUCCSide
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel", "radio"])], device="cpu")
        >>> german = BUCCSide(["de-1", "de-2"], ["Taxi Taxi", "Hotel Radio"])
        >>> english = BUCCSide(["en-1", "en-2"], ["radio hotel", "taxi"])
        >>> gold = {("de-1", "en-2"), ("de-2", "en-1")}
        >>> evaluator = BUCCEvaluator({"de": BUCCCorpus(german, english, gold)})
        >>> evaluator(model)["bucc_de_f1"]
        1.0
    """

    card_metric = "f1"

    def __init__(
        self,
        corpora: Mapping[str, BUCCCorpus],
        training: Mapping[str, BUCCCorpus] | None = None,
        *,
        name: str = "bucc",
        split: str = "test",
        threshold_split: str = "training",
        k: int = 4,
        margin: Margin = "ratio",
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: Calibration | None = None,
        batch_size: int = 128,
        precision: str = "fp32",
        pairs_directory: str | os.PathLike[str] | None = None,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        language_metrics: bool = True,
    ) -> None:
        super().__init__(
            name=name,
            csv_file=f"{name or 'bucc'}_evaluation_results.csv",
            primary_metric="average_f1",
            write_csv=write_csv,
            language_metrics=language_metrics,
        )
        if not corpora:
            raise ValueError("there are no languages to evaluate.")
        self.corpora = dict(corpora)
        self.training = dict(corpora if training is None else training)
        self.threshold_on_itself = all(self.training.get(language) is corpus for language, corpus in corpora.items())
        for language in self.corpora:
            if language not in self.training:
                raise ValueError(f"language {language!r} has no training corpus, which its threshold is chosen on.")
            if not self.training[language].gold:
                raise ValueError(
                    f"the {threshold_split} corpus of {language!r} has no gold pairs to choose its threshold by."
                )
        self.embedder = TextEmbedder(
            layer=layer,
            pooling=pooling,
            calibration=calibration,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            precision=precision,
        )
        self.embedder.require_languages(["en", *self.corpora])
        self.split = split
        self.threshold_split = threshold_split
        self.k = k
        self.margin: Margin = margin
        self.pairs_directory = None if pairs_directory is None else Path(pairs_directory)
        self.show_progress_bar = show_progress_bar
        self.mined_pairs: dict[str, list[MinedPair]] = {}
        self.thresholds: dict[str, float] = {}

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: BUCCSplit = "test",
        threshold_split: BUCCSplit = "training",
        **options: Any,
    ) -> BUCCEvaluator:
        """Read the files of the shared task, see `load_bucc_directory`.

        Args:
            path: The folder of `de-en.training.de` and so on, or of folders `de-en`.
            languages: Such as `["de", "zh"]`. Default: all that have the split.
            split: The evaluated split.
            threshold_split: The split whose gold pairs give the threshold. In XTREME's setting, which the ML-CTL paper
                reports, `split="training"` is evaluated with `threshold_split="sample"`. If both are the same split,
                the threshold is chosen on the evaluated pairs.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a file is malformed (file and line are named), or the split of the threshold has no gold.
        """
        corpora = load_bucc_directory(path, languages, split=split)
        training = None
        if split != threshold_split:
            training = load_bucc_directory(path, list(corpora), split=threshold_split)
        return cls(corpora, training, split=split, threshold_split=threshold_split, **options)

    @classmethod
    def from_hub(
        cls, languages: Sequence[str] | None = None, *, threshold_split: str = "training", **options: Any
    ) -> BUCCEvaluator:
        """Load `mteb/BUCC`. It has the training split alone, on which the threshold is then chosen as well.

        Args:
            languages: Among de, fr, ru, zh. Default: all four.
            threshold_split: `"training"`, as there is no other split.
            **options: The evaluator's own.

        Raises:
            ValueError: If a language or split is not there, or the data set holds aligned pairs only.
        """
        if threshold_split != "training":
            raise ValueError(
                f"threshold_split {threshold_split!r}: the data set on the Hub has the training split only."
            )
        return cls(load_bucc_hub(languages), **{"split": "training", **options})

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Precision, recall and F1 per language with gold pairs, their averages, and the protocol."""
        scores: dict[str, dict[str, float]] = {}
        languages = tqdm(self.corpora.items(), desc="BUCC", disable=not self.show_progress_bar)
        for language, corpus in languages:
            training = self.training[language]
            candidates = self._mine(model, training, language)
            threshold = best_threshold(candidates, training.gold or set())
            if training is not corpus:
                candidates = self._mine(model, corpus, language)
            extracted = [pair for pair in candidates if pair.score >= threshold]
            self.mined_pairs[language], self.thresholds[language] = extracted, threshold
            if self.pairs_directory is not None:
                self._write_pairs(language, extracted)
            if corpus.gold:
                scores[language] = mining_scores(extracted, corpus.gold)
        return BenchmarkResult("bucc", scores, macro_average(scores), self._protocol(model))

    def _mine(self, model: SentenceTransformer, corpus: BUCCCorpus, language: str) -> list[MinedPair]:
        """All one-to-one pairs, best first, without those of a sentence that occurs more than once."""
        counts = Counter(corpus.source.sentences), Counter(corpus.target.sentences)
        id_of = (
            dict(zip(corpus.source.sentences, corpus.source.ids, strict=True)),
            dict(zip(corpus.target.sentences, corpus.target.ids, strict=True)),
        )
        source, target = list(counts[0]), list(counts[1])
        embeddings = self.embedder.embed(model, source, language), self.embedder.embed(model, target, "en")
        try:
            pairs = mine_bitext(*embeddings, k=self.k, margin=self.margin, show_progress_bar=self.show_progress_bar)
        except ValueError as error:
            raise ValueError(f"BUCC {language}-en (rows are distinct sentences, from 0): {error}") from error
        return [
            MinedPair(score, id_of[0][source[i]], id_of[1][target[j]])
            for score, i, j in pairs
            if counts[0][source[i]] == counts[1][target[j]] == 1
        ]

    def _write_pairs(self, language: str, pairs: Sequence[MinedPair]) -> None:
        assert self.pairs_directory is not None
        lines = [f"{pair.score:.6f}\t{pair.source}\t{pair.target}\n" for pair in pairs]
        write_text_atomically(self.pairs_directory / f"{language}-en.{self.split}.mined.tsv", "".join(lines))

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        sizes = [
            f"{language} {len(corpus.source)} x {len(corpus.target)} with {len(corpus.gold or ())} pairs"
            for language, corpus in self.corpora.items()
        ]
        threshold = f"best F1 on the {self.threshold_split} split"
        if self.threshold_on_itself:
            threshold = f"best F1 on the evaluated split ({self.split}) itself, which is optimistic"
        protocol = {
            "task": f"mining of translations, {self.margin} margin over {self.k} neighbours, greedy one-to-one; "
            "pairs with a repeated sentence dropped",
            "split": self.split,
            "direction": "both, merged",
            **self.embedder.describe(model),
            "threshold": threshold,
            "languages": str(len(self.corpora)),
            "corpus_size": "; ".join(sizes),
        }
        if self.thresholds:
            protocol["thresholds"] = ", ".join(f"{language} {at:.4f}" for language, at in self.thresholds.items())
        without_gold = [language for language, corpus in self.corpora.items() if not corpus.gold]
        if without_gold:
            protocol["without_gold"] = f"{', '.join(without_gold)}: pairs were mined; there is nothing to score them by"
        return protocol


def best_threshold(candidates: Sequence[MinedPair], gold: set[tuple[str, str]]) -> float:
    """The threshold on the score that gives the candidates the highest F1 against the gold pairs.

    It lies halfway between the last candidate that is accepted and the first that is not. Of several thresholds with
    the highest F1, the highest is returned; if no candidate is right, the threshold is -inf.

    Args:
        candidates: Best first.
        gold: Pairs (source id, target id).

    Example:
        >>> ranked = [MinedPair(1.4, "a", "x"), MinedPair(1.2, "b", "y"), MinedPair(1.0, "c", "z")]
        >>> round(best_threshold(ranked, {("a", "x"), ("b", "y")}), 6)
        1.1
    """
    best, threshold, right = 0.0, float("-inf"), 0
    for taken, pair in enumerate(candidates, start=1):
        right += (pair.source, pair.target) in gold
        following = candidates[taken].score if taken < len(candidates) else None
        if following == pair.score:
            continue  # no threshold separates equal scores
        f1 = 2 * right / (taken + len(gold))
        if f1 > best:
            best = f1
            threshold = pair.score if following is None else (pair.score + following) / 2
    return threshold


def mining_scores(pairs: Sequence[MinedPair], gold: set[tuple[str, str]]) -> dict[str, float]:
    """Precision, recall and F1 of mined pairs, all 0 if none is right.

    Example:
        >>> mining_scores([MinedPair(1.0, "a", "x"), MinedPair(0.9, "b", "z")], {("a", "x"), ("b", "y")})
        {'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    right = sum((pair.source, pair.target) in gold for pair in pairs)
    return {
        "precision": right / len(pairs) if pairs else 0.0,
        "recall": right / len(gold),
        "f1": 2 * right / (len(pairs) + len(gold)),
    }
