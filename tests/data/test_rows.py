"""Rows that are held out, and sentences that are packed into units."""

from collections import Counter

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
from tests import tiny
from tests.data.files import pair
from tests.tiny import word_tokenizer

COUNTS = {("en", "fr"): 400, ("en", "de"): 55, ("en", "sw"): 9, ("fr", "en"): 50}


@pytest.mark.parametrize("distinct", [20, 200, 10**6])
def test_at_most_a_tenth_of_each_language_pair_and_no_text_in_both_parts(distinct: int) -> None:
    dice = np.random.default_rng(0)
    codes = dice.permutation(
        [both for both, count in COUNTS.items() for _ in range(count)]
    ).tolist()
    rows = [pair(*(f"{code} {dice.integers(distinct)}" for code in both), *both) for both in codes]
    pairs = Dataset.from_list(rows)
    for most, french in ((1000, 40), (30, 30)):
        rest, held_out = hold_out_pairs(pairs, most)
        assert Counter(held_out["target_language"]) == {"fr": french, "de": 5, "en": 5}
        texts = {*held_out["source"], *held_out["target"]}
        assert rest.to_list() == [row for row in rows if not {row["source"], row["target"]} & texts]
    first, again, other = (hold_out_pairs(pairs, 10, seed=seed)[1].to_list() for seed in (1, 1, 2))
    assert first == again != other and len(hold_out_pairs(pairs.select([]), 5)[0]) == 0


def test_questions_are_held_out_with_their_passages() -> None:
    # Every passage has two questions, and is the negative of two others.
    rows = {"query": [f"q{i}" for i in range(60)], "positive": [f"p{i // 2}" for i in range(60)]}
    table = Dataset.from_dict({**rows, "negative_1": [f"p{(i // 2 + 1) % 30}" for i in range(60)]})
    rest, held_out = hold_out_questions(table, 3, seed=3)
    assert (len(held_out), len(rest)) == (4, 60 - 4 - 4)
    assert not set(held_out["positive"]) & {*rest["positive"], *rest["negative_1"]}
    assert held_out.to_list() == hold_out_questions(table, 3, seed=3)[1].to_list()
    assert len(hold_out_questions(table.select(range(9)), 5)[1]) == 0


def test_a_pivot_on_either_side_is_found() -> None:
    rows = [
        ("a", "b", "fr", "en"),
        ("c", "d", "de", "en"),
        ("e", "f", "en", "fr"),
        ("g", "h", "ja", "ko"),
    ]
    pairs = Dataset.from_list([pair(*row) for row in rows])
    assert by_language(pairs) == {"fr": (["a", "f"], ["b", "e"]), "de": (["c"], ["d"])}
    # Of two languages in equally many rows, the source is the pivot.
    assert by_language(pairs.select([2])) == {"fr": (["f"], ["e"])}
    assert by_language(pairs.select([])) == {}


def test_units_are_as_long_as_they_may_be() -> None:
    sentences = ["sun moon", "star", "rain wind snow", "", "tree", "leaf root", " "]
    rows = {"sentence": sentences, "language": ["en"] * 7, "document": [0, 0, 0, 0, 0, 1, 2]}
    documents = Dataset.from_dict({**rows, "position": list(range(7))})
    # Five tokens and two special ones; a document's units are its own, and empty sentences are gone.
    packed = pack_documents(documents, word_tokenizer(), max_tokens=7)
    texts = ["sun moon star", "rain wind snow tree", "leaf root"]
    assert packed.to_dict() == {
        "sentence": texts,
        "language": ["en"] * 3,
        "document": [0, 0, 1],
        "position": [0, 1, 0],
    }
    # A static encoder reads no special tokens.
    assert (
        pack_documents(documents, word_tokenizer().backend_tokenizer, max_tokens=5).to_list()
        == packed.to_list()
    )
    # The table is taken again, with a tokenizer on which a truncating call left its mark.
    tokenizer = word_tokenizer()
    tokenizer(["sun"], truncation=True, max_length=3, padding=True)
    assert pack_documents(documents, tokenizer, max_tokens=7).cache_files == packed.cache_files
    # A sentence that is too long stays a unit.
    packed = pack_documents(documents, word_tokenizer(), max_tokens=4)
    assert packed["sentence"][:] == ["sun moon", "star", "rain wind snow", "tree", "leaf root"]
    assert len(pack_documents(documents.select([3, 6]), word_tokenizer())) == 0


def test_every_pair_has_another_sentence_beside_it() -> None:
    pairs, texts = tiny.pairs(12), tiny.texts(5)
    table = pairs_and_others(pairs.select(range(11)), texts, seed=1)
    assert table.column_names == [
        "source",
        "target",
        "source_language",
        "target_language",
        "other",
        "other_language",
    ]
    assert table["source"][:] == pairs["source"][:11]
    beside = list(zip(table["other"][:], table["other_language"][:], strict=True))
    known = list(zip(texts["sentence"][:], texts["language"][:], strict=True))
    assert (
        sorted(beside[:5]) == sorted(beside[5:10]) == sorted(known) and beside[:5] != beside[5:10]
    )
    assert pairs_and_others(pairs, texts, seed=2)["other"][:5] != table["other"][:5]
    assert pairs_and_others(pairs, None).column_names[-1] == "target_language"
