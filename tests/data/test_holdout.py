"""Pairs and questions that are held out."""

from __future__ import annotations

import random

import pytest
from datasets import Dataset

from st_xlret.data import by_language, hold_out_pairs, hold_out_questions

Row = tuple[str, str, str, str]


def dataset(rows: list[Row]) -> Dataset:
    names = ("source", "target", "source_language", "target_language")
    return Dataset.from_list([dict(zip(names, row, strict=True)) for row in rows])


def many(counts: dict[tuple[str, str], int], *, distinct: int = 10**6, seed: int = 0) -> Dataset:
    """Rows of each language pair in random order, of so many different texts per language."""
    dice = random.Random(seed)
    rows = [
        (f"{source} {dice.randrange(distinct)}", f"{target} {dice.randrange(distinct)}", source, target)
        for (source, target), count in counts.items()
        for _ in range(count)
    ]
    dice.shuffle(rows)
    return dataset(rows)


def texts(part: Dataset) -> set[str]:
    return {*part["source"], *part["target"]}


def count(part: Dataset) -> dict[str, int]:
    languages = part["target_language"][:]
    return {language: languages.count(language) for language in sorted(set(languages))}


COUNTS = {("en", "fr"): 400, ("en", "de"): 55, ("en", "sw"): 9}


def test_at_most_a_tenth_of_each_language_pair() -> None:
    pairs = many(COUNTS)
    assert count(hold_out_pairs(pairs, 30)[1]) == {"de": 5, "fr": 30}
    assert count(hold_out_pairs(pairs, 1000)[1]) == {"de": 5, "fr": 40}
    rest, held_out = hold_out_pairs(pairs, 30)
    assert len(rest) + len(held_out) == len(pairs)
    assert count(rest)["sw"] == 9


@pytest.mark.parametrize("distinct", [20, 200])
def test_no_text_is_in_both_parts(distinct: int) -> None:
    pairs = many({**COUNTS, ("fr", "en"): 50}, distinct=distinct)
    rest, held_out = hold_out_pairs(pairs, 5)
    assert len(held_out) and not texts(rest) & texts(held_out)
    # Nothing else is lost.
    lost = [row for row in pairs if not {row["source"], row["target"]} & texts(held_out)]
    assert rest.to_list() == lost


def test_the_choice_depends_on_the_seed_alone() -> None:
    pairs = many(COUNTS)
    first, again, other = (hold_out_pairs(pairs, 10, seed=seed)[1].to_list() for seed in (1, 1, 2))
    assert first == again != other


def test_questions_are_held_out_with_their_passages() -> None:
    rows = {"query": [str(i) for i in range(60)], "positive": [f"p{i // 3}" for i in range(60)]}
    rest, held_out = hold_out_questions(Dataset.from_dict(rows), 5, seed=3)
    assert len(held_out) == 6 and len(rest) == 54
    assert not set(rest["positive"]) & set(held_out["positive"])
    assert held_out.to_list() == hold_out_questions(Dataset.from_dict(rows), 5, seed=3)[1].to_list()
    assert len(hold_out_questions(Dataset.from_dict(rows).select(range(9)), 5)[1]) == 0


def test_a_pivot_on_the_target_side_is_found() -> None:
    grouped = by_language(
        dataset([("a", "b", "fr", "en"), ("c", "d", "de", "en"), ("e", "f", "en", "fr"), ("g", "h", "ja", "ko")])
    )
    assert grouped == {"fr": (["a", "f"], ["b", "e"]), "de": (["c"], ["d"])}


def test_no_held_out_passage_is_a_negative_of_a_row_to_train_on() -> None:
    # Every passage is the negative of the next question.
    rows = {"query": [f"q{i}" for i in range(60)], "positive": [f"p{i // 2}" for i in range(60)]}
    rows["negative_1"] = [f"p{(i // 2 + 1) % 30}" for i in range(60)]
    rest, held_out = hold_out_questions(Dataset.from_dict(rows), 4)
    assert len(held_out) == 4 and len(rest) == 60 - 4 - 4
    assert not set(held_out["positive"]) & {*rest["positive"], *rest["negative_1"]}
