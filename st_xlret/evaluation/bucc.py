"""BUCC: mining the translations that are hidden in two comparable corpora."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

from sentence_transformers import SentenceTransformer
from typing_extensions import Self

from st_xlret.data.reading import DataError, read_lines
from st_xlret.evaluation.base import BenchmarkEvaluator, chosen_names, name_file_in_errors
from st_xlret.files import PathLike
from st_xlret.folders import files_below
from st_xlret.search import mine_bitext

HUB_DATASET = "mteb/BUCC"


class BUCCCorpus(NamedTuple):
    """Id to sentence of two corpora, the second in English; (source id, target id) of translations, if known."""

    source: Mapping[str, str]
    target: Mapping[str, str]
    gold: AbstractSet[tuple[str, str]] | None = None


class MinedPair(NamedTuple):
    """A pair of sentence ids, and its margin score."""

    score: float
    source: str
    target: str


class BUCCEvaluator(BenchmarkEvaluator):
    """Precision, recall and F1 of translations mined from two corpora, by the protocol of the BUCC shared task.

    The protocol is that of Artetxe and Schwenk ([2019](https://arxiv.org/abs/1811.01136)) and LASER: pairs are mined in
    both directions with the ratio margin over 4 neighbours, one-to-one (`mine_bitext`); the threshold that gives the
    best F1 on the training split is applied to the test split. Pairs with a repeated sentence are dropped.

    Options of reading: `split`, and `threshold_split`, whose gold pairs give the threshold: XTREME, and the ML-CTL
    paper, evaluate `"training"` with the threshold of `"sample"`. `mteb/BUCC` on the Hub has the training split alone.

    Metrics: `average_f1` (primary), `average_precision`, `average_recall`, and the same per language. A language
    without gold pairs gets no scores; its pairs are in `mined_pairs`: language to (score, source id, target id), best
    first.

    Args:
        corpora: Language to the corpus that is evaluated, its sentences beside English ones.
        training: Language to the corpus on which the threshold is chosen, with gold pairs. Default: the evaluated
            corpora themselves, which is optimistic, as the result says.
        split: Name of the evaluated split, for the result.
        threshold_split: Name of that of `training`.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].
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
        self.corpora, self.training = dict(corpora), dict(training or corpora)
        with_gold = [code for code, corpus in self.training.items() if corpus.gold]
        chosen_names(list(corpora), with_gold, f"BUCC with gold pairs ({threshold_split})")
        self.split, self.threshold_split = split, threshold_split
        self.mined_pairs: dict[str, list[MinedPair]] = {}
        self.thresholds: dict[str, float] = {}

    @classmethod
    def from_files(
        cls, folder: Path | None, languages: Sequence[str] | None, **options: Any
    ) -> Self:
        """The evaluator of the corpora of one split, with those of the split that the threshold is from."""
        splits = {
            "split": "training" if folder is None else "test",
            "threshold_split": "training",
            **options,
        }
        split, threshold_split = splits["split"], splits["threshold_split"]
        if folder is None:
            chosen_names([split, threshold_split], ["training"], HUB_DATASET)
            return cls(_load_hub_corpora(languages), **splits)
        corpora = load_bucc(folder, languages, split=split)
        training = (
            None
            if split == threshold_split
            else load_bucc(folder, list(corpora), split=threshold_split)
        )
        return cls(corpora, training, **splits)

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Language to precision, recall and F1, for those with gold pairs; what is mined is kept in `mined_pairs`."""
        scores = {}
        for language, corpus in self.corpora.items():
            training = self.training[language]
            candidates = self._mine_pairs(model, training, language)
            threshold = best_threshold(candidates, training.gold or set())
            candidates = (
                candidates if training is corpus else self._mine_pairs(model, corpus, language)
            )
            extracted = [pair for pair in candidates if pair.score >= threshold]
            self.mined_pairs[language], self.thresholds[language] = extracted, threshold
            if corpus.gold:
                right = sum(pair[1:] in corpus.gold for pair in extracted)
                scores[language] = {
                    "precision": right / max(1, len(extracted)),
                    "recall": right / len(corpus.gold),
                    "f1": 2 * right / (len(extracted) + len(corpus.gold)),
                }
        return scores

    def _mine_pairs(
        self, model: SentenceTransformer, corpus: BUCCCorpus, language: str
    ) -> list[MinedPair]:
        """One-to-one pairs of the two sides, best first, without those of a sentence that is repeated."""
        names, vectors = [], []
        for side, code in ((corpus.source, language), (corpus.target, "en")):
            names_of = defaultdict[str, list[str]](list)
            for name, text in side.items():
                names_of[text].append(name)
            names.append(list(names_of.values()))
            vectors.append(self.embed_texts(model, list(names_of), [code] * len(names_of)))
        return [
            MinedPair(score, names[0][i][0], names[1][j][0])
            for score, i, j in mine_bitext(
                vectors[0], vectors[1], show_progress_bar=self.show_progress_bar
            )
            if len(names[0][i]) == len(names[1][j]) == 1
        ]

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        sizes = (
            f"{code} {len(corpus.source)} x {len(corpus.target)} with {len(corpus.gold or ())} pairs"
            for code, corpus in self.corpora.items()
        )
        is_itself = all(self.training[code] is corpus for code, corpus in self.corpora.items())
        itself = f"evaluated split ({self.split}) itself, which is optimistic"
        return {
            "task": "mining of translations, ratio margin over 4 neighbours, greedy one-to-one; pairs with a repeated "
            "sentence dropped",
            "split": self.split,
            "direction": "both, merged",
            **super().protocol(model),
            "threshold": f"best F1 on the {itself if is_itself else f'{self.threshold_split} split'}",
            "languages": str(len(self.corpora)),
            "corpus_size": "; ".join(sizes),
            "thresholds": ", ".join(
                f"{code} {threshold:.4f}" for code, threshold in self.thresholds.items()
            ),
        }


def best_threshold(candidates: Sequence[MinedPair], gold: AbstractSet[tuple[str, str]]) -> float:
    """The threshold on the score that gives the candidates the highest F1 against the gold pairs."""
    best, threshold, right = 0.0, float("-inf"), 0
    for count, pair in enumerate(candidates, start=1):
        right += pair[1:] in gold
        following = candidates[count].score if count < len(candidates) else None
        if following == pair.score:
            continue  # no threshold separates equal scores
        if (f1 := 2 * right / (count + len(gold))) > best:
            best, threshold = f1, pair.score if following is None else (pair.score + following) / 2
    return threshold


def load_bucc(
    folder: PathLike, languages: Sequence[str] | None = None, *, split: str = "training"
) -> dict[str, BUCCCorpus]:
    """Read one split, `"sample"`, `"training"` or `"test"`, of the files of the shared task, wherever in the folder."""
    files = [
        file for file in sorted(files_below(Path(folder))[1]) if file.match(f"*-en.{split}.en")
    ]
    folder_of = {file.name.partition("-en.")[0]: file.parent for file in files}
    corpora = {}
    for code in chosen_names(languages, dict(sorted(folder_of.items())), f"{folder} ({split})"):
        source, target = (
            _read_sentences_by_id(folder_of[code] / f"{code}-en.{split}.{side}")
            for side in (code, "en")
        )
        gold, file = None, folder_of[code] / f"{code}-en.{split}.gold"
        if file.is_file():
            gold = set[tuple[str, str]]()
            for number, line in read_lines(file):
                with name_file_in_errors(file, number):
                    one, other = line.split("\t")
                    _ = source[one], target[other]  # a KeyError unless both are ids
                gold.add((one, other))
        corpora[code] = BUCCCorpus(source, target, gold)
    return corpora


def _read_sentences_by_id(file: Path) -> dict[str, str]:
    sentences: dict[str, str] = {}
    for number, line in read_lines(file):
        name, tab, sentence = line.partition("\t")
        if not tab or name in sentences:
            raise DataError(
                f"expected a new id, a tab and a sentence, got {line[:60]!r}",
                file=str(file),
                line=number,
            )
        sentences[name] = sentence.strip()
    return sentences


def _load_hub_corpora(languages: Sequence[str] | None) -> dict[str, BUCCCorpus]:
    """The training split, which is named "test" there; its gold pairs are row numbers from 1."""
    from datasets import load_dataset

    corpora = {}
    for code in chosen_names(languages, ["de", "fr", "ru", "zh"], HUB_DATASET):
        row = load_dataset(HUB_DATASET, f"{code}-en", split="test")[0]
        with name_file_in_errors(
            HUB_DATASET
        ):  # a KeyError where its rows are aligned pairs: nothing is to be mined
            gold = {(f"{code}-{one:09d}", f"en-{other:09d}") for one, other in row["gold"]}
        source, target = (
            {
                f"{side}-{number:09d}": text.strip()
                for number, text in enumerate(row[f"sentence{place}"], start=1)
            }
            for place, side in enumerate((code, "en"), start=1)
        )
        corpora[code] = BUCCCorpus(source, target, gold)
    return corpora
