"""Rows by values, rows that are held out, and sentences that are packed into units."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.data import (
    by_language,
    hold_out_pairs,
    hold_out_questions,
    pack_documents,
    pairs_and_others,
)
from st_xlret.data.rows import rows_by_value
from tests import tiny
from tests.data.files import pair
from tests.tiny import word_tokenizer

COUNTS = {("en", "fr"): 400, ("en", "de"): 55, ("en", "sw"): 9, ("fr", "en"): 50}


def pairs_with_repeated_texts(distinct: int) -> list[dict[str, Any]]:
    """Pairs of all languages in a drawn order; a smaller number of texts is repeated more often."""
    dice = np.random.default_rng(0)
    languages = []
    for both, count in COUNTS.items():
        languages += [both] * count
    rows = []
    for source_language, target_language in dice.permutation(languages).tolist():
        source = f"{source_language} {dice.integers(distinct)}"
        target = f"{target_language} {dice.integers(distinct)}"
        rows.append(pair(source, target, source_language, target_language))
    return rows


def test_rows_are_grouped_by_the_values_of_columns() -> None:
    codes = {"one": ["b", "a", "b", "a", "b"], "other": [1, 1, 2, 1, 1]}
    groups = rows_by_value(Dataset.from_dict(codes), ["one", "other"])
    found = {group.values: group.rows.tolist() for group in groups}
    assert found == {("b", 1): [0, 4], ("b", 2): [2], ("a", 1): [1, 3]}
    assert rows_by_value(Dataset.from_dict(codes).select([]), ["one"]) == []


def texts_of(pairs: Dataset) -> set[str]:
    return {*pairs["source"], *pairs["target"]}


@pytest.mark.parametrize(("most", "french"), [(1000, 40), (30, 30)])
def test_at_most_a_tenth_of_each_language_pair_is_held_out(most: int, french: int) -> None:
    pairs = Dataset.from_list(pairs_with_repeated_texts(10**6))
    rest, held_out = hold_out_pairs(pairs, most)
    assert Counter(held_out["target_language"]) == {"fr": french, "de": 5, "en": 5}
    assert len(rest) == len(pairs) - len(held_out)


@pytest.mark.parametrize("distinct", [20, 200, 2000])
def test_a_tenth_is_left_out_at_most_and_no_text_is_in_both_parts(distinct: int) -> None:
    pairs = Dataset.from_list(pairs_with_repeated_texts(distinct))
    rest, held_out = hold_out_pairs(pairs, 1000)
    assert not texts_of(rest) & texts_of(held_out)
    assert len(held_out) > 0
    assert len(pairs) - len(rest) <= len(pairs) / 10


def test_the_same_sentences_are_held_out_of_all_languages() -> None:
    languages = ("ar", "de", "es", "fr", "hi", "ru", "sw", "th", "tr", "zh")
    rows = []
    for number in range(48):
        for code in languages:
            rows.append(pair(f"en {number}", f"{code} {number}", "en", code))
    rest, held_out = hold_out_pairs(Dataset.from_list(rows), 20)
    assert Counter(held_out["target_language"]) == dict.fromkeys(languages, 4)
    assert len(set(held_out["source"])) == 4
    assert len(rest) == 440


@pytest.mark.parametrize("distinct", [20, 200, 10**6])
def test_the_seed_says_which_pairs_are_held_out(distinct: int) -> None:
    pairs = Dataset.from_list(pairs_with_repeated_texts(distinct))
    _, first = hold_out_pairs(pairs, 10, seed=1)
    _, again = hold_out_pairs(pairs, 10, seed=1)
    _, other = hold_out_pairs(pairs, 10, seed=2)
    assert first.to_list() == again.to_list() != other.to_list()


def test_nothing_is_held_out_of_nothing() -> None:
    pairs = Dataset.from_list(pairs_with_repeated_texts(20))
    rest, held_out = hold_out_pairs(pairs.select([]), 5)
    assert len(rest) == len(held_out) == 0


def questions_with_negatives(name: str) -> Dataset:
    """Every passage has two questions, and is the negative of two others."""
    rows = []
    for number in range(120):
        passage = number // 2
        negative = (passage + 1) % 60
        rows.append({"query": f"q{number}", "positive": f"p{passage}", name: f"p{negative}"})
    return Dataset.from_list(rows)


@pytest.mark.parametrize("name", ["negative_1", "negative"])
@pytest.mark.parametrize(
    ("asked", "held_out", "left_out"),
    [
        (3, 4, 8),
        # All twelve would leave 24 questions out, which is more than a tenth.
        (12, 6, 12),
    ],
)
def test_questions_are_held_out_with_their_passages(
    asked: int, held_out: int, left_out: int, name: str
) -> None:
    questions = questions_with_negatives(name)
    rest, held = hold_out_questions(questions, asked, seed=3)
    assert len(held) == held_out
    assert len(rest) == 120 - left_out
    assert not set(held["positive"]) & {*rest["positive"], *rest[name]}
    _, again = hold_out_questions(questions, asked, seed=3)
    assert held.to_list() == again.to_list()


def test_of_nine_questions_none_is_held_out() -> None:
    questions = questions_with_negatives("negative")
    _, held_out = hold_out_questions(questions.select(range(9)), 5)
    assert len(held_out) == 0


def test_a_pivot_on_either_side_is_found() -> None:
    rows = [
        pair("a", "b", "fr", "en"),
        pair("c", "d", "de", "en"),
        pair("e", "f", "en", "fr"),
        pair("g", "h", "ja", "ko"),
    ]
    pairs = Dataset.from_list(rows)
    assert by_language(pairs) == {"fr": (["a", "f"], ["b", "e"]), "de": (["c"], ["d"])}
    # Of two languages in equally many rows, the source is the pivot.
    assert by_language(pairs.select([2])) == {"fr": (["f"], ["e"])}
    assert by_language(pairs.select([])) == {}


def documents_of_words() -> Dataset:
    sentences = ["sun moon", "star", "rain wind snow", "", "tree", "leaf root", " "]
    columns = {
        "sentence": sentences,
        "language": ["en"] * 7,
        "document": [0, 0, 0, 0, 0, 1, 2],
        "position": list(range(7)),
    }
    return Dataset.from_dict(columns)


def test_units_are_as_long_as_they_may_be() -> None:
    # Five tokens and two special ones.
    packed = pack_documents(documents_of_words(), word_tokenizer(), max_tokens=7)
    # A document's units are its own, and empty sentences are gone.
    assert packed.to_dict() == {
        "sentence": ["sun moon star", "rain wind snow tree", "leaf root"],
        "language": ["en"] * 3,
        "document": [0, 0, 1],
        "position": [0, 1, 0],
    }
    # A static encoder reads no special tokens.
    static = pack_documents(documents_of_words(), word_tokenizer().backend_tokenizer, max_tokens=5)
    assert static.to_list() == packed.to_list()
    # A sentence that is too long stays a unit.
    short = pack_documents(documents_of_words(), word_tokenizer(), max_tokens=4)
    assert short["sentence"][:] == ["sun moon", "star", "rain wind snow", "tree", "leaf root"]
    blank = pack_documents(documents_of_words().select([3, 6]), word_tokenizer())
    assert len(blank) == 0


def test_packed_units_are_kept_whatever_the_tokenizer_was_called_with() -> None:
    packed = pack_documents(documents_of_words(), word_tokenizer(), max_tokens=7)
    tokenizer = word_tokenizer()
    tokenizer(["sun"], truncation=True, max_length=3, padding=True)
    again = pack_documents(documents_of_words(), tokenizer, max_tokens=7)
    assert again.cache_files == packed.cache_files


def test_every_pair_has_another_sentence_beside_it() -> None:
    pairs = tiny.pairs(12)
    texts = tiny.texts(5)
    table = pairs_and_others(pairs.select(range(11)), texts, seed=1)
    names = ["source", "target", "source_language", "target_language", "other", "other_language"]
    assert table.column_names == names
    assert table["source"][:] == pairs["source"][:11]
    beside = list(zip(table["other"][:], table["other_language"][:], strict=True))
    known = list(zip(texts["sentence"][:], texts["language"][:], strict=True))
    # Each comes once before any comes again, in another order.
    assert sorted(beside[:5]) == sorted(beside[5:10]) == sorted(known)
    assert beside[:5] != beside[5:10]


def test_other_sentences_are_drawn_by_the_seed_or_left_out() -> None:
    pairs = tiny.pairs(12)
    first = pairs_and_others(pairs, tiny.texts(5), seed=1)
    second = pairs_and_others(pairs, tiny.texts(5), seed=2)
    assert first["other"][:5] != second["other"][:5]
    assert pairs_and_others(pairs, None).column_names[-1] == "target_language"
    assert len(pairs_and_others(pairs.select([]), tiny.texts(5))) == 0


def test_questions_with_several_passages_are_in_one_part() -> None:
    queries = [f"q{row // 2}" for row in range(200)]
    passages = [f"p{row}" for row in range(200)]
    questions = Dataset.from_dict({"query": queries, "positive": passages})
    rest, held = hold_out_questions(questions, 20)
    assert len(held) > 0
    assert not set(rest["query"]) & set(held["query"])
    assert len(questions) - len(rest) <= 20
