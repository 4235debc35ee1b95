"""Accuracy of the nearest neighbour between translations: Tatoeba's 112 languages, or others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.columns import Role
from st_xlret.evaluation.base import BenchmarkEvaluator, Scores, sizes_in_words
from st_xlret.evaluation.tatoeba_files import (
    CCP_PAIRS,
    SentencePairs,
    draw_export_pairs,
    has_export,
    join_on_english,
    load_tatoeba,
)
from st_xlret.ranges import check_range
from st_xlret.search import neighbours_both_ways, unit_rows

_MANY = 20  # pairs, whose sizes the protocol no longer lists one by one


class BilingualRetrievalEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between translations, for pairs of languages.

    It is measured in both directions. Metrics: `average_accuracy` (primary),
    `average_accuracy_forward`, `average_accuracy_backward`; the same per pair.

    Args:
        sentences: Pair, such as `"de-el"`, to (sentences in the first language, their translations
            in the second).
        origin: Where the pairs are from, for the result.
        max_sentences: Only as many of each pair of languages, from the start: the task is easier
            then.
        role: Embed all texts as a "query" or as a "document". By default as `encode` does.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].
    """

    benchmark = "bilingual"
    primary = "accuracy"
    options = ("max_sentences",)
    directions = ("accuracy_forward", "accuracy_backward")
    """The metrics of first language to second, and of second to first."""
    direction = (
        "forward: first language to second; backward: second to first; accuracy: mean of both"
    )
    mteb_f1 = False

    def __init__(
        self,
        sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        *,
        origin: str = "given",
        max_sentences: int | None = None,
        role: Role | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.check_prompts(role or "query")
        _check_sides(sentences)
        check_range(1, max_sentences=max_sentences)
        self.role = role
        self.origin = origin
        if max_sentences is not None:
            self.origin = f"the first {max_sentences} of each language"
        self.sentences: SentencePairs = {}
        self.languages_of: dict[str, tuple[str, str]] = {}
        for name, (one, other) in sentences.items():
            first = list(one[:max_sentences])
            second = list(other[:max_sentences])
            self.sentences[name] = (first, second)
            self.languages_of[name] = self.language_pair(name)

    @classmethod
    def of_parallel(cls, sentences: Mapping[str, Sequence[str]], **options: Any) -> Self:
        """Every two languages of translations, of which the i-th sentences belong together."""
        pairs = {}
        languages_of = {}
        for one, other in combinations(sentences, 2):
            name = f"{one}-{other}"
            pairs[name] = (sentences[one], sentences[other])
            languages_of[name] = (one, other)
        evaluator = cls(pairs, **options)
        evaluator.languages_of = languages_of  # a code may have hyphens, as `pt-BR` has
        return evaluator

    @staticmethod
    def language_pair(name: str) -> tuple[str, str]:
        """The two languages of a pair.

        A `ValueError` refuses what is no pair.
        """
        one, _, other = name.partition("-")
        if not one or not other or one == other:
            raise ValueError(f"{name!r} is no pair of languages, such as 'de-fr'")
        return one, other

    def evaluated_languages(self) -> list[str]:
        """The pairs, or the languages beside English."""
        return list(self.sentences)

    def score(self, model: SentenceTransformer) -> Scores:
        """Accuracies per pair: the mean, and one for each of `directions`."""
        vectors = _SentenceVectors(self, model)
        scores = {}
        for name, (one, other) in self.sentences.items():
            first, second = self.languages_of[name]
            source = vectors.of(first, one)
            target = vectors.of(second, other)
            forward, backward = retrieval_accuracy(source, target)
            there, back = self.directions
            scores[name] = {
                "accuracy": (forward + backward) / 2,
                there: forward,
                back: backward,
            }
            if self.mteb_f1:
                scores[name]["f1_to_en"] = weighted_f1(source, target)
        return scores

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        entries = {
            "task": "nearest neighbour by cosine within the language pair, equal cosines to the "
            "lower row",
            "direction": self.direction,
        }
        entries.update(super().protocol(model))
        if self.role is not None:
            entries["texts"] = f"embedded as a {self.role}"
        entries["languages"] = str(len(self.sentences))
        entries["sentences"] = self.origin
        entries["sentences_per_language"] = self._sizes_in_words()
        return entries

    def _sizes_in_words(self) -> str:
        """How many sentences the pairs have, for an entry of `COMPARED`."""
        counts = {name: len(sentences) for name, (sentences, _) in self.sentences.items()}
        if len(counts) < _MANY:
            return sizes_in_words(counts)
        return f"{min(counts.values())} to {max(counts.values())}"


def _check_sides(sentences: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
    """Refuse what are no two equally long lists of sentences in each pair."""
    uneven = {}
    for name, (one, other) in sentences.items():
        if isinstance(one, str) or isinstance(other, str):
            raise TypeError(f"{name}: expected two lists of sentences, found a string")
        for text in (*one, *other):
            if not isinstance(text, str):
                raise TypeError(f"{name}: a sentence must be a string, found {text!r:.40}")
        if len(one) != len(other) or len(one) == 0:
            uneven[name] = (len(one), len(other))
    if uneven or not sentences:
        found = uneven or "none"
        raise ValueError(f"give as many sentences as translations of each pair, got {found}")


class _SentenceVectors:
    """Vectors of sentences, each embedded once, in however many pairs it stands."""

    def __init__(self, evaluator: BilingualRetrievalEvaluator, model: SentenceTransformer) -> None:
        self._row_of: dict[str, dict[str, int]] = {}
        for name, sides in evaluator.sentences.items():
            for code, texts in zip(evaluator.languages_of[name], sides, strict=True):
                rows = self._row_of.setdefault(code, {})
                for text in texts:
                    rows.setdefault(text, len(rows))
        self._vectors: dict[str, Tensor] = {}
        for code, rows in self._row_of.items():
            codes = [code] * len(rows)
            self._vectors[code] = evaluator.embed_texts(model, list(rows), codes, evaluator.role)

    def of(self, language: str, texts: Sequence[str]) -> Tensor:
        """The vectors of texts in a language."""
        rows = self._row_of[language]
        return self._vectors[language][[rows[text] for text in texts]]


class TatoebaEvaluator(BilingualRetrievalEvaluator):
    """Accuracy of the nearest neighbour by cosine between each language and English, both ways.

    The test set (Artetxe and Schwenk, 2019) has up to 1 000 sentences of each of 112 languages with
    their English translations. CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 1)
    reports the mean of both directions, `accuracy`, of layer 14 of a large model, XTREME
    `accuracy_from_en`, and mteb a weighted F1 of X to English, `f1_to_en` with `mteb_f1=True`.
    Languages are ISO 639-1 codes (`fr`) or the files' ISO 639-3 codes (`fra`).

    Metrics: `average_accuracy` (primary), `average_accuracy_to_en`, `average_accuracy_from_en`; the
    same per language.
    """

    benchmark = "tatoeba"
    title = "Tatoeba"
    reference = "https://github.com/facebookresearch/LASER/tree/main/data/tatoeba/v1"
    license = "cc-by-2.0"
    published_metrics = ("accuracy",)
    layout = "files such as tatoeba.fra-eng.fra and tatoeba.fra-eng.eng (LASER's data/tatoeba/v1)"
    languages_in_all = 112
    is_on_hub = True
    directions = ("accuracy_to_en", "accuracy_from_en")
    direction = "to_en: X to English; from_en: English to X; accuracy: mean of both"

    def __init__(
        self, sentences: Any, *, mteb_f1: bool = False, origin: str = "all", **options: Any
    ) -> None:
        super().__init__(sentences, origin=origin, **options)
        self.mteb_f1 = mteb_f1

    @classmethod
    def from_files(
        cls, folder: Path | None, languages: Sequence[str] | None, **options: Any
    ) -> Self:
        """The evaluator of the sentences and English translations of each language."""
        return cls(load_tatoeba(folder, languages), **options)

    @staticmethod
    def language_pair(name: str) -> tuple[str, str]:
        """The language, and English."""
        return name, "en"


class TatoebaPairsEvaluator(BilingualRetrievalEvaluator):
    """Accuracy of the nearest neighbour by cosine between languages other than English, both ways.

    CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 2) reports the mean of both
    directions for 15 pairs (the default) with up to 1 000 linked sentences of each, which are not
    published: they are drawn anew from Tatoeba's export, or two languages of the English-centric
    test set are joined where they have the same English sentence, which is easier and leaves few
    sentences for most pairs. The languages to choose are pairs, such as `["de-el", "zh-ja"]`.
    """

    benchmark = "tatoeba-pairs"
    published_metrics = ("accuracy",)
    layout = (
        "sentences.csv and links.csv (Tatoeba's export), or files such as tatoeba.fra-eng.fra "
        "(LASER)"
    )
    languages_in_all = 15
    is_on_hub = True

    @classmethod
    def from_files(
        cls, folder: Path | None, languages: Sequence[str] | None, **options: Any
    ) -> Self:
        """The evaluator of CCP's pairs or others, drawn from the export or joined on English."""
        pairs = {name: cls.language_pair(name) for name in languages or CCP_PAIRS}
        if folder is not None and has_export(folder):
            sentences = draw_export_pairs(folder, pairs)
            origin = "drawn from the linked sentences of Tatoeba's export"
        else:
            sentences = join_on_english(folder, pairs)
            origin = "English-centric test sets joined on English"
        return cls(sentences, origin=origin, **options)


def retrieval_accuracy(source_embeddings: Tensor, target_embeddings: Tensor) -> tuple[float, float]:
    """Accuracy of the nearest neighbour by cosine of row-aligned translations (n, d).

    The first is that of sources to targets, the second the other way. Of equal cosines, the lower
    row is the nearest, as in Tatoeba's protocol: the second of two equal texts is wrong.
    """
    forward, backward = _nearest_rows(source_embeddings, target_embeddings)
    expected = torch.arange(len(forward))
    return _share_of_true(forward == expected), _share_of_true(backward == expected)


def weighted_f1(source_embeddings: Tensor, target_embeddings: Tensor) -> float:
    """F1 of the nearest neighbour by cosine, source to target: what mteb reports for Tatoeba.

    Each target row is a class of the source rows that are nearest to it: the mean of the F1 of all
    classes, which scikit-learn calls weighted. The arguments are those of `retrieval_accuracy`.
    """
    nearest, _ = _nearest_rows(source_embeddings, target_embeddings)
    predicted = torch.bincount(nearest, minlength=len(nearest))
    is_right = (nearest == torch.arange(len(nearest))).double()
    f1 = 2 * is_right / (1 + predicted)
    return float(f1.mean())


def _share_of_true(values: Tensor) -> float:
    """The share that is true."""
    return float(values.double().mean())


def _nearest_rows(source: Any, target: Any) -> tuple[Tensor, Tensor]:
    """The nearest target row of each source row, (S,), and the other way round, (T,)."""
    x = unit_rows(torch.as_tensor(source))
    y = unit_rows(torch.as_tensor(target))
    nearest = neighbours_both_ways(x, y, 1, cosine=False)
    nearest_to_x = nearest.target_rows[:, 0].cpu()
    nearest_to_y = nearest.source_rows[:, 0].cpu()
    # Rounding must not decide between equal rows: the first of them is the nearest.
    return _first_equal_rows(y)[nearest_to_x], _first_equal_rows(x)[nearest_to_y]


def _first_equal_rows(rows: Tensor) -> Tensor:
    """For each row the first one that is equal to it."""
    first: dict[bytes, int] = {}
    numbers = []
    for number, row in enumerate(rows.cpu().numpy()):
        numbers.append(first.setdefault(row.tobytes(), number))
    return torch.tensor(numbers)
