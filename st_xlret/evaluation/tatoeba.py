"""Accuracy of the nearest neighbour between translations: Tatoeba's 112 languages and English, or any other pairs."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.data.lines import DataError, read_lines
from st_xlret.evaluation.base import BenchmarkEvaluator
from st_xlret.evaluation.retrieval_data import find_file
from st_xlret.search import neighbours_both_ways, unit_rows

HUB_DATASET = "mteb/tatoeba-bitext-mining"
_PAIRS = "de-el de-it ru-nl fr-de it-ru ar-ru zh-es zh-ja ja-fr es-pt it-ro sv-da da-no nl-de ur-ru"
CCP_PAIRS = tuple(_PAIRS.split())
"""The pairs of Table 2 of the CCP paper, as it names them."""

SentencePairs = dict[str, tuple[list[str], list[str]]]
Text = TypeVar("Text")

_JOINED = "English-centric test sets joined on English"
_DRAWN = "drawn from the linked sentences of Tatoeba's export"
_SAME_LANGUAGE = {"no": "nb"}  # Tatoeba's Norwegian is Bokmål.
_LARGEST_ID = 1 << 30  # A byte of memory is kept for each id.
_SENTENCES_PER_PAIR = 1_000


class BilingualRetrievalEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between translations, in both directions, for each pair of languages.

    Each text of a language is embedded once, in however many pairs it stands. Metrics: `average_accuracy` (primary),
    `average_accuracy_forward`, `average_accuracy_backward`, and the same per pair.

    Args:
        sentences: Pair, such as `"de-el"`, to (sentences in the first language, their translations in the second).
        origin: Where the pairs are from, for the result.
        max_sentences: Maximum pairs of sentences per pair of languages, taken from the start, which makes the task
            easier.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].

    Raises:
        ValueError: If there are no pairs, a name is no pair of two languages, a pair has no sentences or another number
            of translations, or the calibration does not know a language.
    """

    benchmark = "bilingual"
    primary = "accuracy"
    directions = ("accuracy_forward", "accuracy_backward")
    direction = "forward: first language to second; backward: second to first; accuracy: mean of both"

    def __init__(
        self,
        sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        *,
        origin: str = "given",
        max_sentences: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if max_sentences is not None and max_sentences < 1:
            raise ValueError(f"max_sentences must be at least 1, got {max_sentences}.")
        if not sentences:
            raise ValueError("there are no languages to evaluate.")
        for name, (first, second) in sentences.items():
            if len(first) != len(second) or not len(first):
                raise ValueError(
                    f"{name!r} has {len(first)} sentences and {len(second)} translations: give it the same, positive "
                    "number of both."
                )
        self.embedder.require_languages([code for name in sentences for code in self.languages_of(name)])
        self.sentences = {
            name: (list(first)[:max_sentences], list(second)[:max_sentences])
            for name, (first, second) in sentences.items()
        }
        self.origin = origin
        self.max_sentences = max_sentences

    @classmethod
    def of_parallel(cls, sentences: Mapping[str, Sequence[str]], **options: Any) -> BilingualRetrievalEvaluator:
        """Every two languages of a set of translations, of which the i-th sentences belong together."""
        pairs = combinations(sentences, 2)
        return cls({f"{one}-{other}": (sentences[one], sentences[other]) for one, other in pairs}, **options)

    @staticmethod
    def languages_of(name: str) -> tuple[str, str]:
        """The two languages of a pair."""
        return split_pair(name)

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Accuracies per pair."""
        texts_of: dict[str, dict[str, int]] = {}
        for name, sides in self.sentences.items():
            for code, texts in zip(self.languages_of(name), sides, strict=True):
                rows = texts_of.setdefault(code, {})
                for text in texts:
                    rows.setdefault(text, len(rows))
        bar = tqdm(texts_of.items(), desc=self.name, disable=not self.show_progress_bar)
        embeddings = {code: self.embedder.embed(model, list(rows), code) for code, rows in bar}

        def side(code: str, texts: Sequence[str]) -> Tensor:
            return embeddings[code][[texts_of[code][text] for text in texts]]

        scores: dict[str, dict[str, float]] = {}
        for name, sides in self.sentences.items():
            rows_of_sides = [side(*each) for each in zip(self.languages_of(name), sides, strict=True)]
            accuracies = retrieval_accuracy(*rows_of_sides)
            both = dict(zip(self.directions, accuracies, strict=True))
            scores[name] = {"accuracy": sum(accuracies) / 2, **both, **self.more(*rows_of_sides)}
        return scores

    def more(self, first: Tensor, second: Tensor) -> dict[str, float]:
        """Further metrics of a pair."""
        return {}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        counts = {len(texts) for texts, _ in self.sentences.values()}
        first = f"the first {self.max_sentences} of each language"
        return {
            "task": "nearest neighbour by cosine within the language pair, equal cosines to the lower row",
            "direction": self.direction,
            **self.embedder.describe(model),
            "languages": str(len(self.sentences)),
            "sentences": self.origin if self.max_sentences is None else first,
            "sentences_per_language": f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts)),
        }


class TatoebaEvaluator(BilingualRetrievalEvaluator):
    """Accuracy of the nearest neighbour by cosine between each language and English, in both directions.

    The test set is that of Artetxe and Schwenk (2019): up to 1 000 sentences of each of 112 languages with their
    English translations. CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 1) reports the mean of both
    directions, `accuracy`; XTREME reports English to X alone, `accuracy_from_en`; mteb reports a weighted F1 of X to
    English, `f1_to_en` with `mteb_f1=True`. For large models CCP averages the hidden states of layer 14: `layer=14`.
    The folder has LASER's layout, such as its `data/tatoeba/v1`. Languages are ISO 639-1 codes (`fr`) or the files' own
    ISO 639-3 codes (`fra`).

    Metrics: `average_accuracy` (primary), `average_accuracy_to_en`, `average_accuracy_from_en`, and the same per
    language.

    Args:
        sentences: Language to (sentences, their English translations), row-aligned.
        mteb_f1: Whether to add `f1_to_en`, see `weighted_f1`.
        **options: Those of `BilingualRetrievalEvaluator`.
    """

    benchmark = "tatoeba"
    published_metrics = ("accuracy",)
    layout = "files such as tatoeba.fra-eng.fra and tatoeba.fra-eng.eng (LASER's data/tatoeba/v1)"
    languages_in_all = 112
    is_on_hub = True
    directions = ("accuracy_to_en", "accuracy_from_en")
    direction = "to_en: X to English; from_en: English to X; accuracy: mean of both"

    def __init__(
        self, sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]], *, mteb_f1: bool = False, **options: Any
    ) -> None:
        super().__init__(sentences, **{"origin": "all", **options})
        self.mteb_f1 = mteb_f1

    @staticmethod
    def languages_of(name: str) -> tuple[str, str]:
        """The language, and English."""
        return name, "en"

    @classmethod
    def read(cls, folder: Path | None, languages: list[str] | None, **_: Any) -> dict[str, Any]:
        """Language to sentences and their English translations."""
        found = load_tatoeba_hub(languages) if folder is None else load_tatoeba_directory(folder, languages)
        return {"sentences": found}

    def more(self, first: Tensor, second: Tensor) -> dict[str, float]:
        """The F1 of mteb, if it is asked for."""
        return {"f1_to_en": weighted_f1(first, second)} if self.mteb_f1 else {}


class TatoebaPairsEvaluator(BilingualRetrievalEvaluator):
    """Accuracy of the nearest neighbour by cosine between languages other than English, in both directions.

    CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 2) reports the mean of both directions for 15 pairs,
    with up to 1 000 linked sentences of each. The sentences that the authors drew are not published: they are drawn
    anew from Tatoeba's export (`sentences.csv` and `links.csv`), or two languages of the English-centric test set of
    LASER or of the Hub are joined where they have the same English sentence, which leaves few sentences for most pairs
    and is easier. The result has the numbers. The languages to choose are pairs, such as `["de-el", "zh-ja"]`; default:
    the 15 of the paper.
    """

    benchmark = "tatoeba-pairs"
    published_metrics = ("accuracy",)
    layout = "sentences.csv and links.csv (Tatoeba's export), or files such as tatoeba.fra-eng.fra (LASER)"
    languages_in_all = 15
    is_on_hub = True

    @classmethod
    def read(cls, folder: Path | None, languages: list[str] | None, **_: Any) -> dict[str, Any]:
        """Pair to the sentences of both sides, and where they are from."""
        pairs = list(CCP_PAIRS) if languages is None else languages
        codes = dict.fromkeys(_canonical(code) for pair in pairs for code in split_pair(pair))
        if folder is None:
            return {"sentences": join_on_english(load_tatoeba_hub(), pairs), "origin": _JOINED}
        if any((folder / f"sentences.csv{ending}").is_file() for ending in ("", ".gz")):
            return {"sentences": load_pairs_of_export(folder, pairs), "origin": _DRAWN}
        return {"sentences": join_on_english(load_tatoeba_directory(folder, list(codes)), pairs), "origin": _JOINED}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        counts = ", ".join(f"{pair} {len(first)}" for pair, (first, _) in self.sentences.items())
        return {**super().protocol(model), "sentences_per_language": counts}


def retrieval_accuracy(source_embeddings: Tensor, target_embeddings: Tensor) -> tuple[float, float]:
    """Accuracy of the nearest neighbour by cosine, in both directions, for row-aligned translations.

    Of equal cosines, the lower row is the nearest: the second of two identical sentences is counted wrong, as in the
    published protocol of Tatoeba.

    Args:
        source_embeddings: Shape (n, d), tensor or NumPy array, not necessarily normalised.
        target_embeddings: Shape (n, d), row-aligned with the source.

    Returns:
        `(forward, backward)`: source to target and target to source, fractions in [0, 1].

    Raises:
        ValueError: If the shapes differ, there are no rows, or a row holds NaN or infinite values.
    """
    (forward, target), (backward, source) = _nearest(source_embeddings, target_embeddings)
    expected = torch.arange(len(forward))
    # Rounding must not decide between equal rows: the first of them is the nearest.
    return _share(_first_equal_row(target)[forward] == expected), _share(_first_equal_row(source)[backward] == expected)


def weighted_f1(source_embeddings: Tensor, target_embeddings: Tensor) -> float:
    """F1 of the nearest neighbour by cosine, source to target: what mteb reports as `f1` for Tatoeba.

    Each target row is a class, and the source rows whose nearest neighbour it is are predicted to belong to it. The
    mean of the F1 of all classes, which scikit-learn calls weighted, is at most the accuracy. The arguments and errors
    are those of `retrieval_accuracy`.

    Example:
        >>> round(weighted_f1(torch.tensor([[1.0, 0.0], [0.9, 0.1]]), torch.eye(2)), 4)
        0.3333
    """
    (nearest, _), _ = _nearest(source_embeddings, target_embeddings)
    found = torch.bincount(nearest, minlength=len(nearest))
    right = (nearest == torch.arange(len(nearest))).double()
    return float((2 * right / (1 + found)).mean())


def _nearest(source: Any, target: Any) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """For each direction, the nearest rows and the unit rows that they are of, on the CPU."""
    source, target = torch.as_tensor(source), torch.as_tensor(target)
    if source.shape != target.shape or not len(source):
        shapes = f"{tuple(source.shape)} and {tuple(target.shape)}"
        raise ValueError(f"source and target must be row-aligned and not empty, got shapes {shapes}.")
    x, y = unit_rows(source, "source"), unit_rows(target, "target", device=source.device)
    _, forward, _, backward = neighbours_both_ways(x, y, 1, cosine=False)
    return (forward[:, 0].cpu(), y.cpu()), (backward[:, 0].cpu(), x.cpu())


def _first_equal_row(embeddings: Tensor) -> Tensor:
    """For every row, the lowest row with the same values."""
    seen: dict[bytes, int] = {}
    return torch.tensor([seen.setdefault(row.tobytes(), index) for index, row in enumerate(embeddings.numpy())])


def _share(hits: Tensor) -> float:
    return int(hits.sum()) / len(hits)


@cache
def tatoeba_language(code: str) -> str:
    """The ISO 639-1 code of an ISO 639-3 code of Tatoeba, or the code itself if there is none."""
    import langcodes

    if code == "tgl":  # CLDR prefers "fil", which is no ISO 639-1 code
        return "tl"
    tag = langcodes.standardize_tag(code, macro=True)
    return tag if len(tag) == 2 else code


def load_tatoeba_directory(path: str | os.PathLike[str], languages: Sequence[str] | None = None) -> SentencePairs:
    """Read `tatoeba.<xxx>-eng.<xxx>` and `tatoeba.<xxx>-eng.eng`, see `TatoebaEvaluator`.

    Returns:
        ISO 639-1 code (639-3 where there is none) to (sentences, English sentences).
    """
    folder = Path(path)
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


def load_pairs_of_export(path: str | os.PathLike[str], pairs: Sequence[str]) -> SentencePairs:
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
    drawn = {pair: _draw(found[numbers]) for pair, numbers in numbers_of.items()}
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
        both = ((text, translation_of.pop(english, None)) for text, english in zip(*first, strict=True))
        taken = _distinct((text, other) for text, other in both if other is not None)
        if not taken:
            raise ValueError(
                f"{pair}: the two languages share no English sentence in the English-centric test set. "
                "Give a folder with sentences.csv and links.csv of Tatoeba's own export instead."
            )
        joined[pair] = ([text for text, _ in taken], [other for _, other in taken])
    return joined


def _canonical(code: str) -> str:
    return _SAME_LANGUAGE.get(code, code)


def _draw(links: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Links between distinct sentences, drawn at random."""
    order = sorted(set(links))
    random.Random(0).shuffle(order)
    return _distinct(order)[:_SENTENCES_PER_PAIR]


def _distinct(pairs: Iterable[tuple[Text, Text]]) -> list[tuple[Text, Text]]:
    """The pairs of which neither side occurs earlier."""
    seen: tuple[set[Text], set[Text]] = (set(), set())
    chosen = []
    for first, second in pairs:
        if first not in seen[0] and second not in seen[1]:
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
