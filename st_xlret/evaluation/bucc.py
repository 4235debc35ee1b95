"""BUCC: mining the translations that are hidden in two comparable corpora."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_xlret.data.lines import DataError, read_lines
from st_xlret.evaluation.base import BenchmarkEvaluator
from st_xlret.search import mine_bitext

HUB_DATASET = "mteb/BUCC"
BUCC_LANGUAGES = ("de", "fr", "ru", "zh")


@dataclass(frozen=True)
class BUCCCorpus:
    """Two comparable corpora that contain translations of each other's sentences.

    Attributes:
        source: Id to sentence, in the other language.
        target: Id to sentence, in English.
        gold: Pairs (source id, target id) that are translations; None if they are unknown.
    """

    source: Mapping[str, str]
    target: Mapping[str, str]
    gold: set[tuple[str, str]] | None = field(default=None)

    def __post_init__(self) -> None:
        for pair in self.gold or ():
            unknown = [name for name, side in zip(pair, (self.source, self.target), strict=True) if name not in side]
            if unknown:
                raise ValueError(f"the gold pair {pair} names {unknown[0]!r}, which is no sentence's id.")


class MinedPair(NamedTuple):
    """A pair of sentence ids, and its margin score."""

    score: float
    source: str
    target: str


class BUCCEvaluator(BenchmarkEvaluator):
    """Precision, recall and F1 of translations mined from two corpora, by the protocol of the BUCC shared task.

    The protocol is that of Artetxe and Schwenk ([2019](https://arxiv.org/abs/1811.01136)) and LASER: pairs are mined in
    both directions with the ratio margin over 4 neighbours, one-to-one (`mine_bitext`); the threshold that gives the
    best F1 on the training split is applied to the test split. Pairs with a sentence that occurs more than once in its
    corpus are dropped, as its id is ambiguous. (mteb's tasks of this name are retrieval between the gold pairs alone.)

    The folder is that of `de-en.training.de` and so on, or of folders `de-en`; default languages are all that have the
    split. `mteb/BUCC` on the Hub has the training split alone, on which the threshold is then chosen as well.

    Options of reading: `split` (evaluated), and `threshold_split`, whose gold pairs give the threshold. XTREME, and the
    ML-CTL paper, evaluate `"training"` with the threshold of `"sample"`.

    Metrics: `average_f1` (primary), `average_precision`, `average_recall`, and the same per language, such as `de_f1`.
    A language without gold pairs gets no scores; its pairs are in `mined_pairs`: language to (score, source id, target
    id), best first.

    Args:
        corpora: Language to the corpus that is evaluated, its sentences beside English ones.
        training: Language to the corpus on which the threshold is chosen, with gold pairs. Default: the evaluated
            corpora themselves, which is optimistic, as the result says.
        split: Name of the evaluated split, for the result.
        threshold_split: Name of the split of `training`, for the result.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].

    Raises:
        ValueError: If there are no languages, a language has no training corpus, a training corpus has no gold pairs,
            or the calibration does not know a language.
    """

    benchmark = "bucc"
    primary = "f1"
    published_metrics = ("f1",)
    layout = "files such as de-en.training.de, de-en.training.en, de-en.training.gold, de-en.test.de (BUCC 2018)"
    splits = ("test", "training", "sample")
    languages_in_all = 4
    is_on_hub = True

    def __init__(
        self,
        corpora: Mapping[str, BUCCCorpus],
        training: Mapping[str, BUCCCorpus] | None = None,
        *,
        split: str = "test",
        threshold_split: str = "training",
        **options: Any,
    ) -> None:
        super().__init__(**options)
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
        self.embedder = replace(self.embedder, show_progress_bar=self.show_progress_bar)
        self.embedder.require_languages(["en", *self.corpora])
        self.split = split
        self.threshold_split = threshold_split
        self.mined_pairs: dict[str, list[MinedPair]] = {}
        self.thresholds: dict[str, float] = {}

    @classmethod
    def read(
        cls,
        folder: Path | None,
        languages: list[str] | None,
        *,
        split: str | None = None,
        threshold_split: str = "training",
        **_: Any,
    ) -> dict[str, Any]:
        """The corpora of the evaluated split, and those of the split for the threshold if that is another one."""
        split = split or ("training" if folder is None else "test")
        if folder is None:
            if {split, threshold_split} != {"training"}:
                asked = threshold_split if split == "training" else split
                raise ValueError(f"split {asked!r}: the data set on the Hub has the training split only.")
            return {"corpora": load_bucc_hub(languages), "split": split}
        corpora, training = load_bucc_directory(folder, languages, split=split), None
        if split != threshold_split:
            training = load_bucc_directory(folder, list(corpora), split=threshold_split)
        return {"corpora": corpora, "training": training, "split": split, "threshold_split": threshold_split}

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Precision, recall and F1 per language with gold pairs."""
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
            if corpus.gold:
                scores[language] = mining_scores(extracted, corpus.gold)
        return scores

    def _mine(self, model: SentenceTransformer, corpus: BUCCCorpus, language: str) -> list[MinedPair]:
        """All one-to-one pairs, best first, without those of a sentence that occurs more than once."""
        sides = corpus.source, corpus.target
        counts = [Counter(side.values()) for side in sides]
        id_of = [{sentence: name for name, sentence in side.items()} for side in sides]
        source, target = list(counts[0]), list(counts[1])
        embeddings = self.embedder.embed(model, source, language), self.embedder.embed(model, target, "en")
        try:
            pairs = mine_bitext(*embeddings, show_progress_bar=self.show_progress_bar)
        except ValueError as error:
            raise ValueError(f"BUCC {language}-en (rows are distinct sentences, from 0): {error}") from error
        return [
            MinedPair(score, id_of[0][source[i]], id_of[1][target[j]])
            for score, i, j in pairs
            if counts[0][source[i]] == counts[1][target[j]] == 1
        ]

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        sizes = [
            f"{language} {len(corpus.source)} x {len(corpus.target)} with {len(corpus.gold or ())} pairs"
            for language, corpus in self.corpora.items()
        ]
        threshold = f"best F1 on the {self.threshold_split} split"
        if self.threshold_on_itself:
            threshold = f"best F1 on the evaluated split ({self.split}) itself, which is optimistic"
        protocol = {
            "task": "mining of translations, ratio margin over 4 neighbours, greedy one-to-one; pairs with a repeated "
            "sentence dropped",
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
    """The threshold on the score that gives the candidates the highest F1 against the gold pairs."""
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
    """Precision, recall and F1 of mined pairs, all 0 if none is right."""
    right = sum((pair.source, pair.target) in gold for pair in pairs)
    return {
        "precision": right / len(pairs) if pairs else 0.0,
        "recall": right / len(gold),
        "f1": 2 * right / (len(pairs) + len(gold)),
    }


def load_bucc_directory(
    path: str | os.PathLike[str], languages: Sequence[str] | None = None, *, split: str = "training"
) -> dict[str, BUCCCorpus]:
    """Read one split of the files of the shared task: `de-en.training.de`, `.en`, `.gold` and so on.

    Args:
        path: The folder of these files, or one above it: `de-en/...` and `bucc2018/de-en/...` are found too.
        languages: Such as `["de"]`. Default: all that have both texts of the split.
        split: `"sample"`, `"training"` or `"test"`. `gold` is None where there is no gold file, as in the test split.

    Raises:
        FileNotFoundError: If the folder or a file is missing.
        ValueError: If a file is malformed (file and line are named).
    """
    folder = Path(path)
    files = [file for pattern in ("", "*/", "*/*/") for file in folder.glob(f"{pattern}*-en.*.en")]
    there = {file.name.partition("-en.")[0]: file.parent for file in reversed(files) if file.match(f"*.{split}.en")}
    chosen = sorted(there) if languages is None else languages
    if not chosen or not there.keys() >= {*chosen}:
        missing = next((code for code in chosen if code not in there), "de")
        splits = sorted({file.name.split(".")[-2] for file in files})
        raise FileNotFoundError(
            f"{folder} and the folders in it hold no {missing}-en.{split}.en; there are the languages {sorted(there)} "
            f"of this split, and the splits {splits}"
        )
    return {language: _read_corpus(there[language], language, split) for language in chosen}


def load_bucc_hub(languages: Sequence[str] | None = None) -> dict[str, BUCCCorpus]:
    """Load `mteb/BUCC` from the Hub or, when offline, its cache: the training split, named "test" there."""
    from datasets import load_dataset

    languages = languages or BUCC_LANGUAGES
    unknown = [language for language in languages if language not in BUCC_LANGUAGES]
    if unknown:
        raise ValueError(f"{HUB_DATASET} has no {unknown}; it has {list(BUCC_LANGUAGES)}.")
    corpora = {}
    for language in languages:
        row = load_dataset(HUB_DATASET, f"{language}-en", split="test")[0]
        if not isinstance(row.get("sentence1"), (list, tuple)) or "gold" not in row:
            raise ValueError(
                f"{HUB_DATASET} ({language}-en) holds aligned pairs, not two corpora with gold pairs of row numbers: "
                "there is nothing to mine. Read the shared task's files with from_directory."
            )
        source, target = (
            {f"{code}-{number:09d}": text.strip() for number, text in enumerate(row[f"sentence{side}"], start=1)}
            for side, code in enumerate((language, "en"), start=1)
        )
        gold = {(f"{language}-{first:09d}", f"en-{second:09d}") for first, second in row["gold"]}
        corpora[language] = BUCCCorpus(source, target, gold)
    return corpora


def _read_corpus(folder: Path, language: str, split: str) -> BUCCCorpus:
    source, target = (_read_side(folder / f"{language}-en.{split}.{side}") for side in (language, "en"))
    gold_file = folder / f"{language}-en.{split}.gold"
    return BUCCCorpus(source, target, _read_gold(gold_file, source, target) if gold_file.is_file() else None)


def _read_side(file: Path) -> dict[str, str]:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing: the two texts of a pair of languages belong together.")
    sentences: dict[str, str] = {}
    for number, line in read_lines(file):
        name, tab, sentence = line.partition("\t")
        if not tab or not name.strip():
            raise DataError(f"expected an id, a tab and a sentence, got {line[:60]!r}", file=str(file), line=number)
        if name in sentences:
            raise DataError(f"the id {name!r} occurs in an earlier line too", file=str(file), line=number)
        sentences[name] = sentence.strip()
    if not sentences:
        raise ValueError(f"{file} holds no sentences.")
    return sentences


def _read_gold(file: Path, source: Mapping[str, str], target: Mapping[str, str]) -> set[tuple[str, str]]:
    gold = set()
    for number, line in read_lines(file):
        first, _, second = line.partition("\t")
        for name, side, place in ((first, source, "first"), (second, target, "second")):
            if name not in side:
                raise DataError(f"{name!r} is no id in the {place} text", file=str(file), line=number)
        gold.add((first, second))
    if not gold:
        raise ValueError(f"{file} holds no pairs.")
    return gold
