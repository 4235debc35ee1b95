"""Tatoeba's sentences: LASER's test sets, the Hub's, and the export of the whole of Tatoeba."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from st_xlret.data.reading import BadLines, decoded_lines
from st_xlret.data.sources import find_file
from st_xlret.evaluation.base import chosen_names
from st_xlret.files import PathLike

if TYPE_CHECKING:
    import pyarrow as pa

_HUB_DATASET = "mteb/tatoeba-bitext-mining"
CCP_PAIRS = (
    "de-el",
    "de-it",
    "ru-nl",
    "fr-de",
    "it-ru",
    "ar-ru",
    "zh-es",
    "zh-ja",
    "ja-fr",
    "es-pt",
    "it-ro",
    "sv-da",
    "da-no",
    "nl-de",
    "ur-ru",
)
"""The pairs of Table 2 of the CCP paper, as it names them."""

_CODES = {"no": "nb"}  # Tatoeba's Norwegian
_MOST_PAIRS = 1_000  # drawn from the export

SentencePairs: TypeAlias = dict[str, tuple[list[str], list[str]]]
"""Name to the sentences of both sides."""
_LanguagePairs: TypeAlias = Mapping[str, tuple[str, str]]
"""Name to the languages of both sides."""
_Side = TypeVar("_Side")


@cache
def tatoeba_language(code: str) -> str:
    """The ISO 639-1 code of an ISO 639-3 code of Tatoeba, or the code itself if there is none."""
    import langcodes

    if code == "tgl":
        return "tl"  # CLDR prefers "fil"
    tag = langcodes.standardize_tag(code, macro=True)
    return tag if len(tag) == 2 else code


def load_tatoeba(folder: PathLike | None, languages: Sequence[str] | None = None) -> SentencePairs:
    """Language (by default all) to its sentences and the English ones.

    They are of LASER's files or, without a folder, of the Hub.
    """
    if folder is None:
        return _load_hub(languages)
    files = Path(folder).glob("tatoeba.*-eng.eng*")
    there = {file.name.split(".")[1].removesuffix("-eng") for file in files}
    pairs = {}
    for code in _choose_codes(there, languages, str(folder)):
        sentences = _read_sentences(folder, f"tatoeba.{code}-eng.{code}")
        english = _read_sentences(folder, f"tatoeba.{code}-eng.eng")
        pairs[tatoeba_language(code)] = (sentences, english)
    return pairs


def _load_hub(languages: Sequence[str] | None) -> SentencePairs:
    """The test sets on the Hub, language to sentences and their translations into English."""
    from datasets import load_dataset

    table = load_dataset(_HUB_DATASET, split="test").to_pandas()
    rows_of = {pair.removesuffix("-eng"): rows for pair, rows in table.groupby("lang")}
    pairs = {}
    for code in _choose_codes(rows_of, languages, _HUB_DATASET):
        rows = rows_of[code]
        # The rows still end with the newline of LASER's files.
        sentences = rows["sentence1"].str.rstrip("\r\n").tolist()
        english = rows["sentence2"].str.rstrip("\r\n").tolist()
        pairs[tatoeba_language(code)] = (sentences, english)
    return pairs


def _choose_codes(codes: Iterable[str], languages: Sequence[str] | None, where: str) -> list[str]:
    """Those of the codes (ISO 639-3) that name the languages, by either code.

    By default all, sorted.
    """
    there = sorted(codes)
    code_of = {}
    for code in there:
        code_of[tatoeba_language(code)] = code
        code_of[code] = code
    if languages is None:
        languages = [tatoeba_language(code) for code in there]
    return [code_of[name] for name in chosen_names(languages, code_of, where)]


def _read_sentences(folder: PathLike, name: str) -> list[str]:
    """All lines of a file, plain or gzip: blank ones count, as positions do."""
    file = find_file(folder, name)
    return [line for _, line in decoded_lines(file, BadLines())]


def join_on_english(folder: PathLike | None, pairs: _LanguagePairs) -> SentencePairs:
    """The sentences of two languages that have the same English one in the test sets.

    An English sentence joins one pair, and no sentence stands in two.
    """
    codes_of = _languages_in_files(pairs)
    languages = dict.fromkeys(code for both in codes_of.values() for code in both)
    with_english = load_tatoeba(folder, list(languages))
    joined = {}
    for name, (one, other) in codes_of.items():
        translations = _translations_by_english(*with_english[other])
        both = []
        for text, english in zip(*with_english[one], strict=True):
            if english in translations:
                both.append((text, translations.pop(english)))
        distinct = _distinct_pairs(both)
        first = [text for text, _ in distinct]
        second = [translation for _, translation in distinct]
        joined[name] = (first, second)
    return joined


def _languages_in_files(pairs: _LanguagePairs) -> _LanguagePairs:
    """The languages of pairs, in ISO 639-1 where there is such a code, `nb` for Norwegian."""
    return {
        name: (_code_in_files(one), _code_in_files(other)) for name, (one, other) in pairs.items()
    }


def _code_in_files(language: str) -> str:
    """The language as tables and test sets have it: in ISO 639-1 where there is such a code."""
    code = tatoeba_language(language.lower())
    return _CODES.get(code, code)


def _translations_by_english(sentences: Sequence[str], english: Sequence[str]) -> dict[str, str]:
    """English sentence to the first translation of it."""
    translations: dict[str, str] = {}
    for text, same in zip(sentences, english, strict=True):
        translations.setdefault(same, text)
    return translations


def has_export(folder: Path) -> bool:
    """Whether a folder has Tatoeba's export."""
    return any(folder.glob("sentences.csv*"))


def draw_export_pairs(folder: Path, pairs: _LanguagePairs) -> SentencePairs:
    """Up to 1 000 linked sentences of each pair, drawn from Tatoeba's export: always the same."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes_of = _languages_in_files(pairs)
    languages = {code for both in codes_of.values() for code in both}
    sentences = _export_sentences(folder, languages)
    linked = _export_links(folder, sentences)
    drawn = {}
    for name, (one, other) in codes_of.items():
        is_one = pc.equal(linked["language"], one)
        is_other = pc.equal(linked["language_other"], other)
        part = linked.filter(pc.and_(is_one, is_other))
        drawn[name] = _draw_links(part["id"].to_pylist(), part["other"].to_pylist())

    ids: set[int] = set()
    for numbers in drawn.values():
        for both in numbers:
            ids.update(both)
    taken = sentences.filter(pc.is_in(sentences["id"], pa.array(ids, pa.int64())))
    text_of = dict(zip(taken["id"].to_pylist(), taken["text"].to_pylist(), strict=True))
    texts = {}
    for name, numbers in drawn.items():
        first = [text_of[one] for one, _ in numbers]
        second = [text_of[other] for _, other in numbers]
        texts[name] = (first, second)
    return texts


def _draw_links(ids: Sequence[int], others: Sequence[int]) -> list[tuple[int, int]]:
    """At most `_MOST_PAIRS` linked ids, no sentence twice: the same ones each time."""
    links = set(zip(ids, others, strict=True))
    order = sorted(links)
    random.Random(0).shuffle(order)
    distinct = _distinct_pairs(order)
    return distinct[:_MOST_PAIRS]


def _export_sentences(folder: Path, wanted: Collection[str]) -> pa.Table:
    """Id, language and text of the sentences in some languages."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sentences = _read_export_table(folder, "sentences.csv", ["id", "language", "text"])
    codes = sentences["language"].dictionary_encode().combine_chunks()
    names = []
    for code in codes.dictionary.to_pylist():
        if code.isalpha():  # an unknown language is \N
            code = tatoeba_language(code)
        names.append(_CODES.get(code, code))
    languages = pa.array(names).take(codes.indices)
    sentences = sentences.set_column(1, "language", languages)
    is_wanted = pc.is_in(languages, pa.array(sorted(wanted)))
    return sentences.filter(is_wanted)


def _export_links(folder: Path, sentences: pa.Table) -> pa.Table:
    """Id and other id of the links between some sentences, with the languages of both."""
    links = _read_export_table(folder, "links.csv", ["id", "other"])
    languages = sentences.select(["id", "language"])
    languages_of_other = languages.rename_columns(["other", "language_other"])
    linked = links.join(languages, "id", join_type="inner")
    return linked.join(languages_of_other, "other", join_type="inner")


def _read_export_table(folder: Path, name: str, columns: list[str]) -> pa.Table:
    """A table of Tatoeba's export, which quotes nothing."""
    from pyarrow import csv

    read = csv.ReadOptions(column_names=columns, block_size=1 << 24)
    parse = csv.ParseOptions(delimiter="\t", quote_char=False)
    return csv.read_csv(find_file(folder, name), read, parse)


def _distinct_pairs(pairs: Iterable[tuple[_Side, _Side]]) -> list[tuple[_Side, _Side]]:
    """The pairs of which neither side occurs earlier."""
    seen_first = set()
    seen_second = set()
    distinct = []
    for one, other in pairs:
        if one not in seen_first and other not in seen_second:
            seen_first.add(one)
            seen_second.add(other)
            distinct.append((one, other))
    return distinct
