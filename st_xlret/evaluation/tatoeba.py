"""Accuracy of the nearest neighbour between translations: Tatoeba's 112 languages and English, or any other pairs."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Self

from st_xlret.columns import Role
from st_xlret.data.reading import find_file
from st_xlret.evaluation.base import BenchmarkEvaluator, chosen_names, name_file_in_errors
from st_xlret.files import PathLike
from st_xlret.search import neighbours_both_ways, unit_rows

HUB_DATASET = "mteb/tatoeba-bitext-mining"
CCP_PAIRS = (
    *("de-el", "de-it", "ru-nl", "fr-de", "it-ru", "ar-ru", "zh-es", "zh-ja"),
    *("ja-fr", "es-pt", "it-ro", "sv-da", "da-no", "nl-de", "ur-ru"),
)
"""The pairs of Table 2 of the CCP paper, as it names them."""
_CODES = {"no": "nb"}  # Tatoeba's Norwegian

SentencePairs = dict[str, tuple[list[str], list[str]]]
Text = TypeVar("Text")


class BilingualRetrievalEvaluator(BenchmarkEvaluator):
    """Accuracy of the nearest neighbour by cosine between translations, in both directions, for each pair of languages.

    Metrics: `average_accuracy` (primary), `average_accuracy_forward`, `average_accuracy_backward`; the same per pair.

    Args:
        sentences: Pair, such as `"de-el"`, to (sentences in the first language, their translations in the second).
        origin: Where the pairs are from, for the result.
        max_sentences: Only as many of each pair of languages, from the start: the task is easier then.
        role: Embed all texts as a "query" or as a "document". By default as `encode` does.
        **options: Those of [`BenchmarkEvaluator`][st_xlret.evaluation.BenchmarkEvaluator].
    """

    benchmark = "bilingual"
    primary = "accuracy"
    directions = ("accuracy_forward", "accuracy_backward")
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
        self.role = role
        counts = {name: (len(one), len(other)) for name, (one, other) in sentences.items()}
        if not counts or (
            uneven := {name: of for name, of in counts.items() if of[0] != of[1] or not of[0]}
        ):
            raise ValueError(
                f"give as many sentences as translations of each pair, got {uneven if counts else 'none'}"
            )
        cut = slice(max_sentences)
        self.sentences = {
            name: (list(one)[cut], list(other)[cut]) for name, (one, other) in sentences.items()
        }
        self.origin = (
            origin if max_sentences is None else f"the first {max_sentences} of each language"
        )

    @classmethod
    def of_parallel(cls, sentences: Mapping[str, Sequence[str]], **options: Any) -> Self:
        """Every two languages of a set of translations, of which the i-th sentences belong together."""
        pairs = combinations(sentences, 2)
        return cls(
            {f"{one}-{other}": (sentences[one], sentences[other]) for one, other in pairs},
            **options,
        )

    @staticmethod
    def language_pair(name: str) -> tuple[str, str]:
        """The two languages of a pair."""
        one, other = name.split("-", 1)
        return one, other

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Accuracies per pair; each text of a language is embedded once, in however many pairs it stands."""
        row_of = defaultdict[str, dict[str, int]](dict)
        for name, sides in self.sentences.items():
            for code, texts in zip(self.language_pair(name), sides, strict=True):
                for text in texts:
                    row_of[code].setdefault(text, len(row_of[code]))
        embed = partial(self.embed_texts, model, role=self.role)
        vectors = {code: embed(list(rows), [code] * len(rows)) for code, rows in row_of.items()}
        scores: dict[str, dict[str, float]] = {}
        for name, sides in self.sentences.items():
            coded = zip(self.language_pair(name), sides, strict=True)
            both = [vectors[code][[row_of[code][text] for text in texts]] for code, texts in coded]
            accuracies = retrieval_accuracy(*both)
            scores[name] = {
                "accuracy": sum(accuracies) / 2,
                **dict(zip(self.directions, accuracies, strict=True)),
            }
            if self.mteb_f1:
                scores[name]["f1_to_en"] = weighted_f1(*both)
        return scores

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        counts = {name: len(one) for name, (one, _) in self.sentences.items()}
        each = ", ".join(f"{name} {count}" for name, count in counts.items())
        lengths = sorted(counts.values())
        return {
            "task": "nearest neighbour by cosine within the language pair, equal cosines to the lower row",
            "direction": self.direction,
            **super().protocol(model),
            **({} if self.role is None else {"texts": f"embedded as a {self.role}"}),
            "languages": str(len(counts)),
            "sentences": self.origin,
            "sentences_per_language": each
            if len(counts) < 20
            else f"{lengths[0]} to {lengths[-1]}",
        }


class TatoebaEvaluator(BilingualRetrievalEvaluator):
    """Accuracy of the nearest neighbour by cosine between each language and English, in both directions.

    The test set (Artetxe and Schwenk, 2019) has up to 1 000 sentences of each of 112 languages with their English
    translations. CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 1) reports the mean of both
    directions, `accuracy`, of layer 14 of a large model, XTREME `accuracy_from_en`, and mteb a weighted F1 of X to
    English, `f1_to_en` with `mteb_f1=True`. Languages are ISO 639-1 codes (`fr`) or the files' ISO 639-3 codes (`fra`).

    Metrics: `average_accuracy` (primary), `average_accuracy_to_en`, `average_accuracy_from_en`; the same per language.
    """

    benchmark = "tatoeba"
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
    """Accuracy of the nearest neighbour by cosine between languages other than English, in both directions.

    CCP ([Wu et al., 2022](https://arxiv.org/abs/2206.03281), Table 2) reports the mean of both directions for 15 pairs
    (the default) with up to 1 000 linked sentences of each, which are not published: they are drawn anew from Tatoeba's
    export, or two languages of the English-centric test set are joined where they have the same English sentence, which
    is easier and leaves few sentences for most pairs. The languages to choose are pairs, such as `["de-el", "zh-ja"]`.
    """

    benchmark = "tatoeba-pairs"
    published_metrics = ("accuracy",)
    layout = "sentences.csv and links.csv (Tatoeba's export), or files such as tatoeba.fra-eng.fra (LASER)"
    languages_in_all = 15
    is_on_hub = True

    @classmethod
    def from_files(
        cls, folder: Path | None, languages: Sequence[str] | None, **options: Any
    ) -> Self:
        """The evaluator of CCP's pairs or others, drawn from the export or joined on English."""
        codes_of = {
            name: [_CODES.get(one, one) for one in cls.language_pair(name)]
            for name in languages or CCP_PAIRS
        }
        if folder is not None and any(folder.glob("sentences.csv*")):
            origin = "drawn from the linked sentences of Tatoeba's export"
            return cls(_draw_export_pairs(folder, codes_of), origin=origin, **options)
        english_of = load_tatoeba(folder, [code for codes in codes_of.values() for code in codes])
        pairs: dict[str, list[tuple[str, str]]] = {}
        for name, (one, other) in codes_of.items():
            translation_of: dict[str, str] = {}
            for text, english in zip(*english_of[other], strict=True):
                translation_of.setdefault(english, text)
            both = (
                (text, translation_of.pop(english, None))
                for text, english in zip(*english_of[one], strict=True)
            )
            pairs[name] = _distinct_pairs(
                (text, translation) for text, translation in both if translation is not None
            )
        return cls(
            _side_texts(pairs), origin="English-centric test sets joined on English", **options
        )


def retrieval_accuracy(source_embeddings: Tensor, target_embeddings: Tensor) -> tuple[float, float]:
    """Accuracy of the nearest neighbour by cosine of row-aligned translations (n, d): to the target, and to the source.

    Of equal cosines, the lower row is the nearest, as in Tatoeba's protocol: the second of two equal texts is wrong.
    """
    forward, backward = _nearest_rows(source_embeddings, target_embeddings)
    expected = torch.arange(len(forward))
    return float((forward == expected).double().mean()), float(
        (backward == expected).double().mean()
    )


def weighted_f1(source_embeddings: Tensor, target_embeddings: Tensor) -> float:
    """F1 of the nearest neighbour by cosine, source to target: what mteb reports as `f1` for Tatoeba.

    Each target row is a class of the source rows that are nearest to it: the mean of the F1 of all classes, which
    scikit-learn calls weighted. The arguments are those of `retrieval_accuracy`.
    """
    nearest, _ = _nearest_rows(source_embeddings, target_embeddings)
    predicted = torch.bincount(nearest, minlength=len(nearest))
    return float((2 * (nearest == torch.arange(len(nearest))).double() / (1 + predicted)).mean())


def _nearest_rows(source: Any, target: Any) -> tuple[Tensor, Tensor]:
    """The nearest rows of both directions."""

    def first_equal_rows(rows: Tensor) -> Tensor:
        seen: dict[bytes, int] = {}
        return torch.tensor(
            [
                seen.setdefault(row.tobytes(), number)
                for number, row in enumerate(rows.cpu().numpy())
            ]
        )

    x, y = unit_rows(torch.as_tensor(source)), unit_rows(torch.as_tensor(target))
    _, forward, _, backward = neighbours_both_ways(x, y, 1, cosine=False)
    # Rounding must not decide between equal rows: the first of them is the nearest.
    return first_equal_rows(y)[forward[:, 0].cpu()], first_equal_rows(x)[backward[:, 0].cpu()]


@cache
def tatoeba_language(code: str) -> str:
    """The ISO 639-1 code of an ISO 639-3 code of Tatoeba, or the code itself if there is none."""
    import langcodes

    tag = (
        "tl" if code == "tgl" else langcodes.standardize_tag(code, macro=True)
    )  # CLDR prefers "fil"
    return tag if len(tag) == 2 else code


def load_tatoeba(folder: PathLike | None, languages: Sequence[str] | None = None) -> SentencePairs:
    """Language (by default all) to its sentences and the English ones, of LASER's files or, without one, of the Hub."""
    if folder is None:
        from datasets import load_dataset

        rows = load_dataset(HUB_DATASET, split="test").to_pandas().groupby("lang")
        rows_of = {pair.removesuffix("-eng"): of_pair for pair, of_pair in rows}
        codes = _choose_codes(rows_of, languages, HUB_DATASET)
        # The rows still end with the newline of LASER's files.
        sides = [
            [rows_of[code][f"sentence{side}"].str.rstrip("\r\n").tolist() for side in (1, 2)]
            for code in codes
        ]
    else:
        there = [file.name.split(".")[1][:-4] for file in Path(folder).glob("tatoeba.*-eng.eng")]
        codes = _choose_codes(there, languages, str(folder))
        files = [
            [Path(folder, f"tatoeba.{code}-eng.{side}") for side in (code, "eng")] for code in codes
        ]
        sides = [[_read_sentences(file) for file in both] for both in files]
    return {
        tatoeba_language(code): (one, english)
        for code, (one, english) in zip(codes, sides, strict=True)
    }


def _choose_codes(codes: Iterable[str], languages: Sequence[str] | None, where: str) -> list[str]:
    """Those of the codes (ISO 639-3) that name the languages, by either code; by default all, sorted."""
    code_of = {name: code for code in sorted(codes) for name in (tatoeba_language(code), code)}
    names = [tatoeba_language(code) for code in sorted(codes)] if languages is None else languages
    return [code_of[name] for name in chosen_names(names, code_of, where)]


def _read_sentences(file: Path) -> list[str]:
    with name_file_in_errors(file):
        # Not splitlines(), which also splits at characters that end no line; blank lines count, as positions do.
        lines = file.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def _draw_export_pairs(folder: Path, codes_of: Mapping[str, Sequence[str]]) -> SentencePairs:
    """Up to 1 000 linked sentences of each pair, drawn at random from Tatoeba's export."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    def export_table(name: str, *columns: str) -> pa.Table:
        read = csv.ReadOptions(column_names=columns, block_size=1 << 24)
        return csv.read_csv(
            find_file(folder, name), read, csv.ParseOptions(delimiter="\t", quote_char=False)
        )

    sentences = export_table("sentences.csv", "id", "language", "text")
    codes = sentences["language"].dictionary_encode().combine_chunks()
    # An unknown language is \N there.
    names = [
        tatoeba_language(code) if code.isalpha() else code for code in codes.dictionary.to_pylist()
    ]
    names = [_CODES.get(code, code) for code in names]
    sentences = sentences.set_column(1, "language", pa.array(names).take(codes.indices))
    wanted = pa.array(sorted({code for both in codes_of.values() for code in both}))
    sentences = sentences.filter(pc.is_in(sentences["language"], wanted))
    languages = sentences.drop_columns(["text"])
    linked = export_table("links.csv", "id", "other").join(languages, "id", join_type="inner")
    linked = linked.join(languages, "other", "id", join_type="inner", right_suffix="_other")
    drawn: dict[str, list[tuple[int, int]]] = {}
    for name, (one, other) in codes_of.items():
        part = linked.filter(
            pc.and_(pc.equal(linked["language"], one), pc.equal(linked["language_other"], other))
        )
        order = sorted({*zip(part["id"].to_pylist(), part["other"].to_pylist(), strict=True)})
        random.Random(0).shuffle(order)
        drawn[name] = _distinct_pairs(order)[:1_000]
    ids = pa.array(
        {identifier for pairs in drawn.values() for pair in pairs for identifier in pair},
        pa.int64(),
    )
    drawn_sentences = sentences.filter(pc.is_in(sentences["id"], ids))
    text = dict(
        zip(drawn_sentences["id"].to_pylist(), drawn_sentences["text"].to_pylist(), strict=True)
    )
    return _side_texts(
        {name: [(text[one], text[other]) for one, other in pairs] for name, pairs in drawn.items()}
    )


def _side_texts(pairs: Mapping[str, Sequence[tuple[str, str]]]) -> SentencePairs:
    return {
        name: ([one for one, _ in of], [other for _, other in of]) for name, of in pairs.items()
    }


def _distinct_pairs(pairs: Iterable[tuple[Text, Text]]) -> list[tuple[Text, Text]]:
    """The pairs of which neither side occurs earlier."""
    seen: tuple[set[Text], set[Text]] = (set(), set())
    distinct = []
    for one, other in pairs:
        if one not in seen[0] and other not in seen[1]:
            seen[0].add(one)
            seen[1].add(other)
            distinct.append((one, other))
    return distinct
