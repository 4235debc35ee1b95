"""Rows that are held out, and sentences that are packed into units."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from datasets import Dataset

from st_xlret.data import by_language, hold_out_pairs, hold_out_questions, pack_documents
from st_xlret.data.rows import token_offsets
from tests.tiny import word_tokenizer

COUNTS = {("en", "fr"): 400, ("en", "de"): 55, ("en", "sw"): 9}


def dataset(rows: list[tuple[str, str, str, str]]) -> Dataset:
    names = ("source", "target", "source_language", "target_language")
    return Dataset.from_list([dict(zip(names, row, strict=True)) for row in rows])


def many(counts: dict[tuple[str, str], int], *, distinct: int = 10**6) -> Dataset:
    """Rows of each language pair in random order, of so many different texts per language."""
    dice = random.Random(0)
    rows = [
        (f"{source} {dice.randrange(distinct)}", f"{target} {dice.randrange(distinct)}", source, target)
        for (source, target), count in counts.items()
        for _ in range(count)
    ]
    dice.shuffle(rows)
    return dataset(rows)


def count(part: Dataset) -> dict[str, int]:
    languages = part["target_language"][:]
    return {language: languages.count(language) for language in sorted(set(languages))}


def test_at_most_a_tenth_of_each_language_pair() -> None:
    pairs = many(COUNTS)
    assert count(hold_out_pairs(pairs, 30)[1]) == {"de": 5, "fr": 30}
    assert count(hold_out_pairs(pairs, 1000)[1]) == {"de": 5, "fr": 40}
    rest, held_out = hold_out_pairs(pairs, 30)
    assert len(rest) + len(held_out) == len(pairs) and count(rest)["sw"] == 9
    first, again, other = (hold_out_pairs(pairs, 10, seed=seed)[1].to_list() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("distinct", [20, 200])
def test_no_text_is_in_both_parts(distinct: int) -> None:
    pairs = many({**COUNTS, ("fr", "en"): 50}, distinct=distinct)
    rest, held_out = hold_out_pairs(pairs, 5)
    texts = {*held_out["source"], *held_out["target"]}
    # Nothing else is lost.
    assert len(held_out) and rest.to_list() == [row for row in pairs if not {row["source"], row["target"]} & texts]


def test_questions_are_held_out_with_their_passages() -> None:
    # Every passage is the negative of the next question.
    rows = {"query": [f"q{i}" for i in range(60)], "positive": [f"p{i // 2}" for i in range(60)]}
    rest, held_out = hold_out_questions(Dataset.from_dict(rows), 3, seed=3)
    assert (len(held_out), len(rest)) == (4, 56) and not set(rest["positive"]) & set(held_out["positive"])
    assert held_out.to_list() == hold_out_questions(Dataset.from_dict(rows), 3, seed=3)[1].to_list()
    rows["negative_1"] = [f"p{(i // 2 + 1) % 30}" for i in range(60)]
    rest, held_out = hold_out_questions(Dataset.from_dict(rows), 4)
    assert (len(held_out), len(rest)) == (4, 60 - 4 - 4)
    assert not set(held_out["positive"]) & {*rest["positive"], *rest["negative_1"]}
    assert len(hold_out_questions(Dataset.from_dict(rows).select(range(9)), 5)[1]) == 0


def test_a_pivot_on_either_side_is_found() -> None:
    rows = [("a", "b", "fr", "en"), ("c", "d", "de", "en"), ("e", "f", "en", "fr"), ("g", "h", "ja", "ko")]
    assert by_language(dataset(rows)) == {"fr": (["a", "f"], ["b", "e"]), "de": (["c"], ["d"])}
    # Of two languages in equally many rows, the source is the pivot.
    assert by_language(dataset(rows[2:3])) == {"fr": (["f"], ["e"])}
    assert by_language(dataset(rows).select([])) == {}


def documents() -> Dataset:
    sentences = [("sun moon", 0), ("star", 0), ("rain wind snow", 0), ("", 0), ("tree", 0), ("leaf root", 1), (" ", 2)]
    rows = [
        {"sentence": sentence, "language": "en", "document": document, "position": i}
        for i, (sentence, document) in enumerate(sentences)
    ]
    return Dataset.from_list(rows)


def test_units_are_as_long_as_they_may_be(tmp_path: Path) -> None:
    # Five tokens and two special ones; a document's units are its own, and empty sentences are gone.
    packed = pack_documents(documents(), word_tokenizer(), max_tokens=7, cache_dir=tmp_path)
    assert packed["sentence"][:] == ["sun moon star", "rain wind snow tree", "leaf root"]
    assert packed["document"][:] == [0, 0, 1] and packed["position"][:] == [0, 1, 0]
    assert packed["language"][:] == ["en"] * 3
    assert all(len(ids) <= 7 for ids in word_tokenizer()(packed["sentence"][:])["input_ids"])
    # A sentence that is too long stays a unit.
    packed = pack_documents(documents(), word_tokenizer(), max_tokens=4, cache_dir=tmp_path)
    assert packed["sentence"][:] == ["sun moon", "star", "rain wind snow", "tree", "leaf root"]
    for rows, limit, named in ((documents(), 2, "got 2"), (documents().select([3, 6]), 64, "no text")):
        with pytest.raises(ValueError, match=named):
            pack_documents(rows, word_tokenizer(), max_tokens=limit, cache_dir=tmp_path)


def test_units_are_taken_again(tmp_path: Path) -> None:
    first = pack_documents(documents(), word_tokenizer(), max_tokens=7, cache_dir=tmp_path)
    # A truncating call in between leaves its mark on the tokenizer, which is no other one for it.
    tokenizer = word_tokenizer()
    tokenizer(["sun"], truncation=True, max_length=3, padding=True)
    assert pack_documents(documents(), tokenizer, max_tokens=7, cache_dir=tmp_path).cache_files == first.cache_files
    assert pack_documents(documents(), tokenizer, max_tokens=8, cache_dir=tmp_path).cache_files != first.cache_files


def test_a_static_encoders_tokenizer_counts_alike(tmp_path: Path) -> None:
    tokenizer, texts = word_tokenizer().backend_tokenizer, ["sun moon", "star"]
    assert token_offsets(tokenizer, texts) == token_offsets(word_tokenizer(), texts) == [[(0, 3), (4, 8)], [(0, 4)]]
    packed = pack_documents(documents(), tokenizer, max_tokens=5, cache_dir=tmp_path)
    assert packed["sentence"][:] == ["sun moon star", "rain wind snow tree", "leaf root"]
