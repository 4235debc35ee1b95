"""Tatoeba: nearest-neighbour accuracy between 112 languages and English, or between two other languages."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_xlret.data.lines import DataError, read_lines
from st_xlret.evaluation.base import BenchmarkEvaluator
from st_xlret.evaluation.bilingual import retrieval_accuracy, weighted_f1
from st_xlret.evaluation.retrieval import find_file

HUB_DATASET = "mteb/tatoeba-bitext-mining"
_PAIRS = "de-el de-it ru-nl fr-de it-ru ar-ru zh-es zh-ja ja-fr es-pt it-ro sv-da da-no nl-de ur-ru"
CCP_PAIRS = tuple(_PAIRS.split())
"""The pairs of Table 2 of the CCP paper, as it names them."""

SentencePairs = dict[str, tuple[list[str], list[str]]]

_JOINED = "English-centric test sets joined on English"
_DRAWN = "drawn from the linked sentences of Tatoeba's export"
_SAME_LANGUAGE = {"no": "nb"}  # Tatoeba's Norwegian is Bokmål.
_LARGEST_ID = 1 << 30  # A byte of memory is kept for each id.


class TatoebaEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between each language and English, in both directions.

    The test set is that of Artetxe and Schwenk (2019): up to 1 000 sentences of each of 112 languages with their
    English translations. CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 1) reports the mean of both
    directions, `accuracy`; XTREME reports English to X alone, `accuracy_from_en`; mteb reports a weighted F1 of X to
    English, `f1_to_en` with `mteb_f1=True`. For large models CCP averages the hidden states of layer 14: `layer=14`.

    Metrics: `average_accuracy` (primary), `average_accuracy_to_en`, `average_accuracy_from_en`, and the same per
    language.

    Args:
        sentences: Language to (sentences, their English translations), row-aligned.
        max_sentences: Maximum pairs per language, taken from the start, which makes the task easier.
        mteb_f1: Whether to add `f1_to_en`, see `weighted_f1`.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].

    Raises:
        ValueError: If there are no languages, a language has no sentences or another number of translations, or the
            calibration does not know a language.
    """

    benchmark = "tatoeba"
    primary = "accuracy"

    def __init__(
        self,
        sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        *,
        max_sentences: int | None = None,
        mteb_f1: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if max_sentences is not None and max_sentences < 1:
            raise ValueError(f"max_sentences must be at least 1, got {max_sentences}.")
        self.sentences = _checked(sentences, max_sentences)
        self.embedder.require_languages(["en", *self.sentences])
        self.max_sentences = max_sentences
        self.mteb_f1 = mteb_f1

    @classmethod
    def from_directory(
        cls, path: str | os.PathLike[str], languages: Sequence[str] | None = None, **options: Any
    ) -> TatoebaEvaluator:
        """Read LASER's layout: `tatoeba.fra-eng.fra` and `tatoeba.fra-eng.eng` in one directory.

        Args:
            path: The directory, such as LASER's `data/tatoeba/v1`.
            languages: ISO 639-1 codes (`fr`) or the files' own ISO 639-3 codes (`fra`). Default: all there.
            **options: The evaluator's own.
        """
        return cls(load_tatoeba_directory(path, languages), **options)

    @classmethod
    def from_hub(cls, languages: Sequence[str] | None = None, **options: Any) -> TatoebaEvaluator:
        """Load `mteb/tatoeba-bitext-mining` from the Hugging Face Hub, or from its cache when offline."""
        return cls(load_tatoeba_hub(languages), **options)

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Accuracies per language."""
        # Each distinct English sentence is embedded once, as language pairs share them.
        distinct = list(dict.fromkeys(text for _, english in self.sentences.values() for text in english))
        row_of = {text: row for row, text in enumerate(distinct)}
        of_english = self.embedder.embed(model, distinct, "en")
        scores: dict[str, dict[str, float]] = {}
        languages = tqdm(self.sentences.items(), desc="Tatoeba", disable=not self.show_progress_bar)
        for language, (texts, english) in languages:
            sides = self.embedder.embed(model, texts, language), of_english[[row_of[text] for text in english]]
            to_english, from_english = retrieval_accuracy(*sides)
            scores[language] = {
                "accuracy": (to_english + from_english) / 2,
                "accuracy_to_en": to_english,
                "accuracy_from_en": from_english,
            }
            if self.mteb_f1:
                scores[language]["f1_to_en"] = weighted_f1(*sides)
        return scores

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        counts = {len(texts) for texts, _ in self.sentences.values()}
        return {
            "task": "nearest neighbour by cosine within the language pair, equal cosines to the lower row",
            "direction": "to_en: X to English; from_en: English to X; accuracy: mean of both",
            **self.embedder.describe(model),
            "languages": str(len(self.sentences)),
            "sentences": "all" if self.max_sentences is None else f"the first {self.max_sentences} of each language",
            "sentences_per_language": f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts)),
        }


class TatoebaPairsEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between languages other than English, in both directions.

    CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 2) reports the mean of both directions for 15 pairs,
    with up to 1 000 linked sentences of each. The sentences that the authors drew are not published: they are drawn
    anew from Tatoeba's export, or two languages of the English-centric test set are joined where they have the same
    English sentence, which leaves few sentences for most pairs and is easier. The result has the numbers.

    Metrics: `average_accuracy` (primary), `average_accuracy_forward`, `average_accuracy_backward`, and the same per
    pair.

    Args:
        sentences: Pair, such as `"de-el"`, to (sentences in the first language, translations in the second).
        origin: Where the pairs are from, for the result.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].

    Raises:
        ValueError: If there are no pairs, a name is no pair of two languages, a pair has no sentences or another number
            of translations, or the calibration does not know a language.
    """

    benchmark = "tatoeba-pairs"
    primary = "accuracy"

    def __init__(
        self, sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]], *, origin: str = "given", **options: Any
    ) -> None:
        super().__init__(**options)
        self.embedder.require_languages([code for pair in sentences for code in split_pair(pair)])
        self.sentences = _checked(sentences)
        self.origin = origin

    @classmethod
    def from_directory(
        cls, path: str | os.PathLike[str], pairs: Sequence[str] | None = None, **options: Any
    ) -> TatoebaPairsEvaluator:
        """Read Tatoeba's export (`sentences.csv` and `links.csv`), or join the English-centric test sets of LASER.

        Args:
            path: The folder.
            pairs: Such as `["de-el", "zh-ja"]`. Default: the 15 of the CCP paper.
            **options: The evaluator's own.
        """
        chosen = _pairs(pairs)
        if any((Path(path) / f"sentences.csv{ending}").is_file() for ending in ("", ".gz")):
            return cls(load_pairs_of_export(path, chosen), **{"origin": _DRAWN, **options})
        codes = dict.fromkeys(_canonical(code) for pair in chosen for code in split_pair(pair))
        joined = join_on_english(load_tatoeba_directory(path, list(codes)), chosen)
        return cls(joined, **{"origin": _JOINED, **options})

    @classmethod
    def from_hub(cls, pairs: Sequence[str] | None = None, **options: Any) -> TatoebaPairsEvaluator:
        """Join the English-centric test sets of `mteb/tatoeba-bitext-mining` on English; see `from_directory`."""
        return cls(join_on_english(load_tatoeba_hub(), _pairs(pairs)), **{"origin": _JOINED, **options})

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Accuracies per pair."""
        scores: dict[str, dict[str, float]] = {}
        for pair, sides in tqdm(self.sentences.items(), desc="Tatoeba pairs", disable=not self.show_progress_bar):
            codes = split_pair(pair)
            forward, backward = retrieval_accuracy(
                *(self.embedder.embed(model, texts, code) for texts, code in zip(sides, codes, strict=True))
            )
            both = {"accuracy_forward": forward, "accuracy_backward": backward}
            scores[pair] = {"accuracy": (forward + backward) / 2, **both}
        return scores

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {
            "task": "nearest neighbour by cosine within the pair of languages, equal cosines to the lower row",
            "direction": "forward: first language to second; backward: second to first; accuracy: mean of both",
            **self.embedder.describe(model),
            "sentences": self.origin,
            "sentences_per_pair": ", ".join(f"{pair} {len(first)}" for pair, (first, _) in self.sentences.items()),
        }


def _checked(sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]], limit: int | None = None) -> SentencePairs:
    if not sentences:
        raise ValueError("there are no languages to evaluate.")
    for name, (first, second) in sentences.items():
        if len(first) != len(second) or not len(first):
            raise ValueError(
                f"{name!r} has {len(first)} sentences and {len(second)} translations: give it the same, positive "
                "number of both."
            )
    return {name: (list(first)[:limit], list(second)[:limit]) for name, (first, second) in sentences.items()}


@cache
def tatoeba_language(code: str) -> str:
    """The ISO 639-1 code of an ISO 639-3 code of Tatoeba, or the code itself if there is none."""
    import langcodes

    if code == "tgl":  # CLDR prefers "fil", which is no ISO 639-1 code
        return "tl"
    tag = langcodes.standardize_tag(code, macro=True)
    return tag if len(tag) == 2 else code


def load_tatoeba_directory(path: str | os.PathLike[str], languages: Sequence[str] | None = None) -> SentencePairs:
    """Read `tatoeba.<xxx>-eng.<xxx>` and `tatoeba.<xxx>-eng.eng`, see `TatoebaEvaluator.from_directory`.

    Returns:
        ISO 639-1 code (639-3 where there is none) to (sentences, English sentences).
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory: expected one with files such as tatoeba.fra-eng.fra.")
    codes = sorted({file.name.split(".")[1].removesuffix("-eng") for file in folder.glob("tatoeba.*-eng.*")})
    if not codes:
        inner = sorted({file.parent for file in folder.glob("**/tatoeba.*-eng.*")})
        hint = f" There are some in {inner[0]}: give that directory." if inner else ""
        raise FileNotFoundError(f"{folder} holds no files such as tatoeba.fra-eng.fra.{hint}")
    found: SentencePairs = {}
    for code in _choose(codes, languages, where=str(folder)):
        files = [folder / f"tatoeba.{code}-eng.{side}" for side in (code, "eng")]
        for file in files:
            if not file.is_file():
                raise FileNotFoundError(f"{file} is missing: {files[0].name} and {files[1].name} belong together.")
        texts, english = map(_lines, files)
        if len(texts) != len(english):
            raise ValueError(
                f"{files[0]} has {len(texts)} lines and {files[1]} has {len(english)}: "
                "the two must be aligned line by line."
            )
        found[tatoeba_language(code)] = texts, english
    return found


def load_tatoeba_hub(languages: Sequence[str] | None = None) -> SentencePairs:
    """Load the test split of `mteb/tatoeba-bitext-mining`, as `load_tatoeba_directory`."""
    from datasets import load_dataset

    dataset = load_dataset(HUB_DATASET, split="test")
    pairs: SentencePairs = {}
    for row in dataset:
        texts, translations = pairs.setdefault(row["lang"].removesuffix("-eng"), ([], []))
        # The rows still end with the newline of LASER's files.
        texts.append(row["sentence1"].rstrip("\r\n"))
        translations.append(row["sentence2"].rstrip("\r\n"))
    return {tatoeba_language(code): pairs[code] for code in _choose(sorted(pairs), languages, where=HUB_DATASET)}


def _choose(codes: Sequence[str], languages: Sequence[str] | None, *, where: str) -> list[str]:
    """The files' codes of the languages asked for, in the order asked for."""
    if languages is None:
        return list(codes)
    languages = [languages] if isinstance(languages, str) else languages
    code_of = {name: code for code in codes for name in (code, tatoeba_language(code))}
    unknown = [language for language in languages if language not in code_of]
    if unknown:
        raise ValueError(f"{where} has no {unknown}; it has {sorted(map(tatoeba_language, codes))}.")
    return list(dict.fromkeys(code_of[language] for language in languages))


def _lines(path: Path) -> list[str]:
    # splitlines() would also split at characters that end no line of a text file.
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            reason = f"not UTF-8 text ({error.reason} at byte {error.start})"
            raise DataError(reason, file=str(path), line=number) from None
    return texts if lines != [b""] else []


def split_pair(pair: str) -> tuple[str, str]:
    """The two languages of a pair."""
    sides = pair.split("-")
    if len(sides) != 2 or not all(sides) or sides[0] == sides[1]:
        raise ValueError(f"{pair!r} is no pair of two languages: give it as de-fr.")
    return sides[0], sides[1]


def _pairs(pairs: Sequence[str] | None) -> list[str]:
    chosen = [pairs] if isinstance(pairs, str) else list(CCP_PAIRS if pairs is None else pairs)
    for pair in chosen:
        split_pair(pair)
    return chosen


def load_pairs_of_export(
    path: str | os.PathLike[str], pairs: Sequence[str], *, sentences_per_pair: int = 1_000, seed: int = 0
) -> SentencePairs:
    """Draw linked sentences from Tatoeba's own export: `sentences.csv` and `links.csv`, plain or gzip."""
    layout = ": sentences.csv and links.csv belong together"
    sentences, links = (find_file(path, name, layout=layout) for name in ("sentences.csv", "links.csv"))
    codes = [_canonical(code) for pair in pairs for code in split_pair(pair)]
    number_of = {code: number for number, code in enumerate(dict.fromkeys(codes), start=1)}
    language_of = bytearray()
    for identifier, code, _ in _sentences(sentences):
        # An unknown language is \\N there.
        if number := number_of.get(_canonical(tatoeba_language(code) if code.isalpha() else code), 0):
            language_of.extend(bytes(max(0, identifier + 1 - len(language_of))))
            language_of[identifier] = number
    numbers_of = {pair: tuple(number_of[_canonical(code)] for code in split_pair(pair)) for pair in pairs}
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {numbers: [] for numbers in numbers_of.values()}
    for first, second in _links(links):
        if max(first, second) < len(language_of):
            of_pair = found.get((language_of[first], language_of[second]))
            if of_pair is not None:
                of_pair.append((first, second))
    drawn = {pair: _draw(found[numbers], sentences_per_pair, seed) for pair, numbers in numbers_of.items()}
    if empty := [pair for pair, chosen in drawn.items() if not chosen]:
        raise ValueError(f"{links} links no sentences of {', '.join(empty)}.")
    ids = {identifier for chosen in drawn.values() for pair in chosen for identifier in pair}
    text_of = {identifier: text for identifier, _, text in _sentences(sentences) if identifier in ids}
    return {
        pair: ([text_of[first] for first, _ in chosen], [text_of[second] for _, second in chosen])
        for pair, chosen in drawn.items()
    }


def join_on_english(sentences: SentencePairs, pairs: Sequence[str]) -> SentencePairs:
    """Join two languages of the English-centric test set where they have the same English sentence."""
    joined: SentencePairs = {}
    for pair in pairs:
        first, second = (sentences[_canonical(code)] for code in split_pair(pair))
        translation_of: dict[str, str] = {}
        for text, english in zip(*second, strict=True):
            translation_of.setdefault(english, text)
        taken: tuple[dict[str, None], dict[str, None]] = ({}, {})
        for text, english in zip(*first, strict=True):
            other = translation_of.pop(english, None)
            if other is not None and text not in taken[0] and other not in taken[1]:
                taken[0][text] = taken[1][other] = None
        if not taken[0]:
            raise ValueError(
                f"{pair}: the two languages share no English sentence in the English-centric test set. "
                "Give a folder with sentences.csv and links.csv of Tatoeba's own export instead."
            )
        joined[pair] = (list(taken[0]), list(taken[1]))
    return joined


def _canonical(code: str) -> str:
    return _SAME_LANGUAGE.get(code, code)


def _draw(links: list[tuple[int, int]], count: int, seed: int) -> list[tuple[int, int]]:
    """Links between distinct sentences, drawn at random."""
    order = sorted(set(links))
    random.Random(seed).shuffle(order)
    seen: tuple[set[int], set[int]] = (set(), set())
    chosen: list[tuple[int, int]] = []
    for first, second in order:
        if first not in seen[0] and second not in seen[1] and len(chosen) < count:
            seen[0].add(first)
            seen[1].add(second)
            chosen.append((first, second))
    return chosen


def _sentences(file: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in read_lines(file):
        fields = line.split("\t")
        if len(fields) < 3 or not fields[0].isdecimal() or int(fields[0]) > _LARGEST_ID:
            reason = f"expected an id, a language and a sentence with tabs between them, got {line[:60]!r}"
            raise DataError(reason, file=str(file), line=number)
        yield int(fields[0]), fields[1], fields[2]


def _links(file: Path) -> Iterator[tuple[int, int]]:
    for number, line in read_lines(file):
        fields = line.split("\t")
        if len(fields) != 2 or not all(field.isdecimal() for field in fields):
            raise DataError(f"expected two ids with a tab between them, got {line[:60]!r}", file=str(file), line=number)
        yield int(fields[0]), int(fields[1])
