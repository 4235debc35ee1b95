"""BUCC: mining the translations that are hidden in two comparable corpora."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.data.reading import DataError, read_lines
from st_xlret.data.sources import find_file
from st_xlret.evaluation.base import (
    BenchmarkEvaluator,
    Scores,
    chosen_names,
    name_file_in_errors,
    sizes_in_words,
)
from st_xlret.files import PathLike
from st_xlret.folders import files_below, unpacked_name
from st_xlret.search import mine_bitext

_HUB_DATASET = "mteb/BUCC"
_LANGUAGES = ("de", "fr", "ru", "zh")
_ENGLISH = "en"

_GoldPairs: TypeAlias = AbstractSet[tuple[str, str]]
"""(source id, target id) of translations."""


class BUCCCorpus(NamedTuple):
    """Id to sentence of two corpora, the second in English; the translations, if they are known."""

    source: Mapping[str, str]
    target: Mapping[str, str]
    gold: _GoldPairs | None = None


class MinedPair(NamedTuple):
    """A pair of sentence ids, and its margin score."""

    score: float
    source: str
    target: str

    @property
    def ids(self) -> tuple[str, str]:
        """The pair as gold pairs are written."""
        return self.source, self.target


class BUCCEvaluator(BenchmarkEvaluator):
    """Precision, recall and F1 of translations mined from two corpora, as in the shared task.

    The protocol is that of Artetxe and Schwenk ([2019](https://arxiv.org/abs/1811.01136)) and
    LASER: pairs are mined in both directions with the ratio margin over 4 neighbours, one-to-one
    (`mine_bitext`); the threshold that gives the best F1 on the training split is applied to the
    test split. Pairs with a repeated sentence are dropped.

    Options of reading: `split`, and `threshold_split`, whose gold pairs give the threshold: XTREME,
    and the ML-CTL paper, evaluate `"training"` with the threshold of `"sample"`. `mteb/BUCC` on the
    Hub has the training split alone.

    Metrics: `average_f1` (primary), `average_precision`, `average_recall`, and the same per
    language. A language without gold pairs gets no scores; its pairs are in `mined_pairs`: language
    to (score, source id, target id), best first.

    Args:
        corpora: Language to the corpus that is evaluated, its sentences beside English ones.
        training: Language to the corpus on which the threshold is chosen, with gold pairs. Default:
            the evaluated corpora themselves, which is optimistic, as the result says.
        split: Name of the evaluated split, for the result.
        threshold_split: Name of that of `training`.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].
    """

    benchmark = "bucc"
    title = "BUCC"
    question_languages = _LANGUAGES
    reference = "https://comparable.limsi.fr/bucc2018/bucc2018-task.html"
    primary = "f1"
    published_metrics = ("f1",)
    layout = (
        "files such as de-en.training.de, de-en.training.en, de-en.training.gold, de-en.test.de "
        "(BUCC 2018)"
    )
    splits = ("test", "training", "sample")
    options = ("split", "threshold_split")
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
        self.check_prompts("query")
        self.corpora = dict(corpora)
        self.training = dict(training or corpora)
        with_gold = [code for code, corpus in self.training.items() if corpus.gold]
        chosen_names(list(corpora), with_gold, f"BUCC with gold pairs ({threshold_split})")
        self.split = split
        self.threshold_split = threshold_split
        self.mined_pairs: dict[str, list[MinedPair]] = {}
        self.thresholds: dict[str, float] = {}

    @classmethod
    def from_files(
        cls,
        folder: Path | None,
        languages: Sequence[str] | None,
        *,
        split: str | None = None,
        threshold_split: str = "training",
        **options: Any,
    ) -> Self:
        """The evaluator of the corpora of one split, with those that the threshold is from."""
        if split is None:
            split = "training" if folder is None else "test"
        training = None
        if folder is None:
            chosen_names([split, threshold_split], ["training"], _HUB_DATASET)
            corpora = _load_hub_corpora(languages)
        else:
            corpora = load_bucc(folder, languages, split=split)
            if split != threshold_split:
                training = load_bucc(folder, list(corpora), split=threshold_split)
        return cls(corpora, training, split=split, threshold_split=threshold_split, **options)

    def evaluated_languages(self) -> list[str]:
        """The languages that have corpora."""
        return list(self.corpora)

    def score(self, model: SentenceTransformer) -> Scores:
        """Language to precision, recall and F1, for those with gold pairs.

        What is mined is kept in `mined_pairs`, and its thresholds are in the protocol.
        """
        scores = {}
        for language, corpus in self.corpora.items():
            training = self.training[language]
            candidates = self._mine_pairs(model, training, language)
            threshold = best_threshold(candidates, training.gold or set())
            if training is not corpus:
                candidates = self._mine_pairs(model, corpus, language)
            mined = [pair for pair in candidates if pair.score >= threshold]
            self.mined_pairs[language] = mined
            self.thresholds[language] = threshold
            if corpus.gold:
                scores[language] = _precision_recall_f1(mined, corpus.gold)
        return scores

    def _mine_pairs(
        self, model: SentenceTransformer, corpus: BUCCCorpus, language: str
    ) -> list[MinedPair]:
        """One-to-one pairs of the two sides, best first, without those of a repeated sentence."""
        sources = _names_by_sentence(corpus.source)
        targets = _names_by_sentence(corpus.target)
        mined = mine_bitext(
            self._embed_sentences(model, list(sources), language),
            self._embed_sentences(model, list(targets), _ENGLISH),
            show_progress_bar=self.show_progress_bar,
        )
        names_of_sources = list(sources.values())
        names_of_targets = list(targets.values())
        pairs = []
        for score, source_row, target_row in mined:
            source = names_of_sources[source_row]
            target = names_of_targets[target_row]
            if len(source) == 1 and len(target) == 1:
                pairs.append(MinedPair(score, source[0], target[0]))
        return pairs

    def _embed_sentences(
        self, model: SentenceTransformer, texts: Sequence[str], language: str
    ) -> Tensor:
        """The vectors of sentences in one language."""
        return self.embed_texts(model, texts, [language] * len(texts))

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        entries = {
            "task": "mining of translations, ratio margin over 4 neighbours, greedy one-to-one; "
            "pairs with a repeated sentence dropped",
            "split": self.split,
            "direction": "both, merged",
        }
        entries.update(super().protocol(model))
        sizes = {}
        for code, corpus in self.corpora.items():
            size = f"{len(corpus.source)} x {len(corpus.target)}"
            sizes[code] = f"{size} with {len(corpus.gold or ())} pairs"
        thresholds = [f"{code} {threshold:.4f}" for code, threshold in self.thresholds.items()]
        entries["threshold"] = f"best F1 on the {self._threshold_in_words()}"
        entries["languages"] = str(len(self.corpora))
        entries["corpus_size"] = sizes_in_words(sizes, "; ")
        entries["thresholds"] = ", ".join(thresholds)
        return entries

    def _threshold_in_words(self) -> str:
        """Where the threshold is from, for an entry of `COMPARED`."""
        is_itself = all(self.training[code] is corpus for code, corpus in self.corpora.items())
        if is_itself:
            return f"evaluated split ({self.split}) itself, which is optimistic"
        return f"{self.threshold_split} split"


def _names_by_sentence(sentences: Mapping[str, str]) -> dict[str, list[str]]:
    """Each sentence once, with the ids that have it, in the order of the corpus."""
    names: dict[str, list[str]] = {}
    for name, text in sentences.items():
        names.setdefault(text, []).append(name)
    return names


def _precision_recall_f1(mined: Sequence[MinedPair], gold: _GoldPairs) -> dict[str, float]:
    """Of mined pairs against all right ones, of which there has to be one."""
    right = len([pair for pair in mined if pair.ids in gold])
    return {
        "precision": right / max(1, len(mined)),
        "recall": right / len(gold),
        "f1": 2 * right / (len(mined) + len(gold)),
    }


def best_threshold(candidates: Sequence[MinedPair], gold: _GoldPairs) -> float:
    """The threshold on the score that gives the candidates the highest F1 against the gold pairs.

    Candidates come best first.
    """
    best_f1 = 0.0
    threshold = float("-inf")
    right = 0
    for count, pair in enumerate(candidates, start=1):
        right += pair.ids in gold
        lowest = pair.score
        if count < len(candidates):
            following = candidates[count].score
            if following == pair.score:
                continue  # no threshold separates equal scores
            lowest = (pair.score + following) / 2
        f1 = 2 * right / (count + len(gold))
        if f1 > best_f1:
            best_f1 = f1
            threshold = lowest
    return threshold


def load_bucc(
    folder: PathLike, languages: Sequence[str] | None = None, *, split: str = "training"
) -> dict[str, BUCCCorpus]:
    """Read one split of the files of the shared task, wherever they are in the folder.

    It is `"sample"`, `"training"` or `"test"`. A `DataError` refuses a language whose files are in
    two folders.
    """
    folder_of: dict[str, Path] = {}
    for file in sorted(files_below(Path(folder)).belonging):
        code, found, _ = unpacked_name(file).partition(f"-en.{split}.{_ENGLISH}")
        if found and folder_of.setdefault(code, file.parent) != file.parent:
            raise DataError(f"{code}-en.{split} is in {folder_of[code]} and {file.parent}", folder)
    corpora = {}
    for code in chosen_names(languages, sorted(folder_of), f"{folder} ({split})"):
        place = folder_of[code]
        start = f"{code}-en.{split}"
        source = _read_sentences_by_id(find_file(place, f"{start}.{code}"))
        target = _read_sentences_by_id(find_file(place, f"{start}.{_ENGLISH}"))
        gold = None
        if any(place.glob(f"{start}.gold*")):
            gold = _read_gold(find_file(place, f"{start}.gold"), source, target)
        corpora[code] = BUCCCorpus(source, target, gold)
    return corpora


def _read_sentences_by_id(file: Path) -> dict[str, str]:
    """The sentences by their ids, in the order of the file.

    A `DataError` names a line that is no sentence with a new id.
    """
    sentences = {}
    for number, line in read_lines(file):
        name, tab, sentence = line.partition("\t")
        if not tab or name in sentences:
            problem = f"expected a new id, a tab and a sentence, got {line[:60]!r}"
            raise DataError(problem, file=str(file), line=number)
        sentences[name] = sentence.strip()
    return sentences


def _read_gold(
    file: Path, source: Mapping[str, str], target: Mapping[str, str]
) -> set[tuple[str, str]]:
    """The right pairs of ids; a `DataError` refuses an id that neither side has."""
    pairs = set()
    for number, line in read_lines(file):
        with name_file_in_errors(file, number):
            one, other = line.split("\t")
            if one not in source:
                raise KeyError(one)
            if other not in target:
                raise KeyError(other)
        pairs.add((one, other))
    return pairs


def _load_hub_corpora(languages: Sequence[str] | None) -> dict[str, BUCCCorpus]:
    """The training split, which is named "test" there; its gold pairs are row numbers from 1."""
    from datasets import load_dataset

    corpora = {}
    for code in chosen_names(languages, _LANGUAGES, _HUB_DATASET):
        row = load_dataset(_HUB_DATASET, f"{code}-en", split="test")[0]
        # A KeyError where its rows are aligned pairs: nothing is to be mined.
        with name_file_in_errors(_HUB_DATASET):
            gold = set()
            for one, other in row["gold"]:
                gold.add((_row_name(code, one), _row_name(_ENGLISH, other)))
        source = _sentences_by_number(row["sentence1"], code)
        target = _sentences_by_number(row["sentence2"], _ENGLISH)
        corpora[code] = BUCCCorpus(source, target, gold)
    return corpora


def _sentences_by_number(sentences: Sequence[str], code: str) -> dict[str, str]:
    """Sentences by the ids that gold pairs name: their numbers from 1."""
    numbered = enumerate(sentences, start=1)
    return {_row_name(code, number): text.strip() for number, text in numbered}


def _row_name(code: str, number: int) -> str:
    """The id of a sentence, as the files of the shared task spell it."""
    return f"{code}-{number:09d}"
