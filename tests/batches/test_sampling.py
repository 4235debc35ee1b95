"""Languages and rows in turn: proportions, streams, windows, lengths."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets

from st_xlret.batches import Blocks, LengthGroupedBatches, Rows, Windows, pairs_and_others, smoothed_probabilities
from st_xlret.batches.sampling import (
    LanguageBatchSampler,
    LengthGroupedBatchSampler,
    WindowBatchSampler,
    endless_draws,
)
from st_xlret.data.rows import column_codes, rows_by_value
from tests import tiny
from tests.tiny import documents_of

GROUPS = [np.arange(0, 80), np.arange(80, 100), np.empty(0, dtype=np.int64), np.arange(100, 105)]


def group_of(rows: np.ndarray) -> np.ndarray:
    return np.digitize(rows, [80, 100])


def draws(count: int, groups: list[np.ndarray], rows: int, smoothing: float = 1, mixing: float = 0) -> list[np.ndarray]:
    return list(islice(endless_draws(groups, Rows(smoothing, mixing), rows, np.random.default_rng(0)), count))


@pytest.mark.parametrize("language_smoothing", [0, 0.3, 0.7, 1])
def test_smoothing(language_smoothing: float) -> None:
    sizes = [1000, 10, 1]
    powers = [size**language_smoothing for size in sizes]
    expected = [power / sum(powers) for power in powers]
    np.testing.assert_allclose(smoothed_probabilities(np.array(sizes), language_smoothing), expected)


@pytest.mark.parametrize("language_mixing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("language_smoothing", [0.0, 0.5, 1.0])
def test_languages_come_in_smoothed_proportions(language_smoothing: float, language_mixing: float) -> None:
    drawn = np.concatenate(draws(3000, GROUPS, 4, language_smoothing, language_mixing))
    shares = np.bincount(group_of(drawn), minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, smoothed_probabilities(np.array([80, 20, 5]), language_smoothing), atol=0.03)


def test_every_row_of_a_language_comes_once_before_any_comes_again() -> None:
    passes = np.concatenate(draws(10, [np.arange(10)], 4)).reshape(4, 10)
    assert all(sorted(each) == list(range(10)) for each in passes.tolist())
    assert len({tuple(each) for each in passes.tolist()}) == 4


def test_a_batch_larger_than_its_language_repeats_rows_evenly() -> None:
    (rows,) = draws(1, [np.arange(3)], 8)
    assert sorted(Counter(rows.tolist()).values()) == [2, 3, 3]


def rows_dataset() -> Dataset:
    languages = ["en"] * 60 + ["fr"] * 20 + ["sw"] * 4
    return Dataset.from_dict({"sentence": [str(i) for i in range(84)], "language": languages})


def test_row_batches_of_one_language_or_of_all() -> None:
    dataset = rows_dataset()
    for language_mixing, expected in ((0.0, 1), (1.0, 3)):
        sampler = Rows(language_smoothing=0.0, language_mixing=language_mixing)(dataset, 20)
        batches = list(sampler)
        assert len(batches) == len(sampler) == 4 and {len(batch) for batch in batches} == {20}
        assert {len({dataset[row]["language"] for row in batch}) for batch in batches} == {expected}


def test_pairs_are_grouped_by_both_languages() -> None:
    rows = {"source": list("abcd"), "target": list("abcd"), "source_language": ["fr", "fr", "sw", "fr"]}
    dataset = Dataset.from_dict({**rows, "target_language": ["en", "sw", "fr", "en"]})
    assert sorted(group.tolist() for group in Rows()(dataset, 1).groups) == [[0, 3], [1], [2]]


def test_a_batch_may_have_more_rows_than_the_batch_size_says() -> None:
    assert len(next(iter(Rows(batch_scale=2.5)(rows_dataset(), 4)))) == 10


def test_few_rows_and_none() -> None:
    assert list(Rows()(Dataset.from_dict({"sentence": ["a"]}), 2)) == [[0, 0]]  # rows of one group
    with pytest.raises(ValueError, match="0 rows"):
        Rows()(rows_dataset().select([]), 2)
    for wrong in ({"language_smoothing": -0.1}, {"language_smoothing": 1.1}, {"language_mixing": 2}):
        with pytest.raises(ValueError, match=str(*wrong.values())):
            Rows(**wrong)


def test_every_pair_has_another_sentence_beside_it() -> None:
    pairs, texts = tiny.pairs(12), tiny.texts(5)
    table = pairs_and_others(pairs.select(range(11)), texts, seed=1)
    assert table.column_names == ["source", "target", "source_language", "target_language", "other", "other_language"]
    assert table["source"][:] == pairs["source"][:11]
    beside = list(zip(table["other"][:], table["other_language"][:], strict=True))
    known = list(zip(texts["sentence"][:], texts["language"][:], strict=True))
    assert sorted(beside[:5]) == sorted(beside[5:10]) == sorted(known) and beside[:5] != beside[5:10]
    assert pairs_and_others(pairs, texts, seed=2)["other"][:5] != table["other"][:5]
    assert len(next(iter(Rows()(table, 4)))) == 4
    assert pairs_and_others(pairs, None).column_names[-1] == "target_language"


def test_codes_of_a_table_of_several_files() -> None:
    parts = [Dataset.from_dict({"language": list(codes), "other": list(codes)[::-1]}) for codes in ("ab", "cb", "a")]
    whole = concatenate_datasets(parts)
    for data, columns in ((whole, ["language"]), (whole, ["language", "other"]), (whole.select([3, 0]), ["language"])):
        code, names = column_codes(data, columns)
        assert [names[number] for number in code] == [tuple(row[name] for name in columns) for row in data]
        assert sorted({*code.tolist()}) == list(range(len(names)))
        groups, same = rows_by_value(data, columns)
        assert same == names and [code[group].tolist() for group in groups] == [
            [i] * len(group) for i, group in enumerate(groups)
        ]


LENGTHS = {"en": [8, 3, 1, 12, 2], "fr": [5, 1, 4], "sw": [2, 3]}


def documents(lengths: dict[str, list[int]] | None = None) -> Dataset:
    return documents_of(lengths or LENGTHS)


def halves(batch: list[int]) -> tuple[np.ndarray, np.ndarray]:
    centres, contexts = np.array(batch).reshape(2, -1)
    return centres, contexts


@pytest.mark.parametrize("window_size", [1, 2, 5, 100])
@pytest.mark.parametrize("language_mixing", [0.0, 1.0])
def test_windows_stay_inside_their_document_and_size(window_size: int, language_mixing: float) -> None:
    dataset = documents()
    document = np.array(dataset["document"])
    sampler = Windows(window_size=window_size, language_mixing=language_mixing)(dataset, 6)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for batch in sampler:
            centres, contexts = halves(batch)
            assert len(centres) == 6
            assert (document[centres] == document[contexts]).all()
            assert (centres != contexts).all()
            assert (np.abs(centres - contexts) <= window_size).all()


def test_contexts_are_drawn_evenly_from_the_window() -> None:
    sampler = Windows(window_size=3)(documents({"en": [12]}), 12)
    drawn: dict[int, Counter[int]] = {centre: Counter() for centre in range(12)}
    for epoch in range(600):
        sampler.set_epoch(epoch)
        for centre, context in zip(*halves(next(iter(sampler))), strict=True):
            drawn[int(centre)][int(context)] += 1
    for centre, counts in drawn.items():
        window = [p for p in range(max(0, centre - 3), min(11, centre + 3) + 1) if p != centre]
        assert sorted(counts) == window
        expected = sum(counts.values()) / len(window)
        # 99.99 % of chi-square with five degrees of freedom lie below 26.
        assert sum((counts[p] - expected) ** 2 / expected for p in window) < 26


def test_every_sentence_with_a_context_is_a_centre_once_an_epoch() -> None:
    sampler = Windows()(documents({"en": [4, 4, 1, 4]}), 4)
    centres = np.concatenate([halves(batch)[0] for batch in sampler])
    assert sorted(centres.tolist()) == [*range(8), *range(9, 13)] and len(sampler) == 3


def test_documents_that_will_not_do() -> None:
    for option, lengths in (({}, {"en": [1, 1], "fr": [1]}), ({"window_size": 0}, LENGTHS)):
        with pytest.raises(ValueError, match="Windows"):
            Windows(**option)(documents(lengths), 2)
    with pytest.raises(ValueError, match="contiguous.*add_column"):
        Windows()(documents().remove_columns("position").select([0, 9, 1, 10]), 2)
    with pytest.raises(ValueError, match="'position'"):  # two documents with one id
        Windows()(documents().select([0, 1, 2, 0, 1, 2]), 2)
    assert len(next(iter(Windows()(documents().remove_columns("language"), 2)))) == 4  # one language


def test_the_option_makes_the_sampler() -> None:
    batches = Windows(window_size=2, language_smoothing=0.3, language_mixing=0.1)
    host = {"drop_last": False, "valid_label_columns": ["label"], "generator": None, "seed": 5}
    windows = batches(documents(), batch_size=4, **host)
    assert isinstance(windows, WindowBatchSampler)
    assert windows.options == batches and windows.seed == 5
    # Rows that are windows already.
    rows = batches(documents().remove_columns("document"), batch_size=4, **host)
    assert type(rows) is LanguageBatchSampler
    assert rows.options == batches and rows.batch_size == 4


def test_documents_may_be_named() -> None:
    numbered = documents()
    named = Dataset.from_list([{**row, "document": f"d{row['document']}"} for row in numbered.to_list()])
    assert list(Windows()(named, 4)) == list(Windows()(numbered, 4))


@pytest.mark.parametrize("by", ["document", "sentence"])
def test_windows_of_sorted_rows_are_those_of_their_positions(by: str) -> None:
    """`.sort("document")` leaves the order within documents at random."""
    rows = documents({"en": [40] * 30}).sort(by)
    document, position = np.array(rows["document"]), np.array(rows["position"])
    for batch in Windows(window_size=2)(rows, 16):
        centres, contexts = halves(batch)
        assert (document[centres] == document[contexts]).all()
        assert (abs(position[centres] - position[contexts]) <= 2).all()


@pytest.mark.parametrize("batches", [Rows(), Windows(), Blocks()])
@pytest.mark.parametrize(("language", "said"), [(None, "None"), ("english", "'english'"), (0, "0"), ("", "''")])
def test_what_is_no_language_is_named(batches: Rows, language: Any, said: str) -> None:
    rows = documents().remove_columns("language")
    codes = [language] * len(rows) if language == 0 else ["en", "en", language, *["fr"] * (len(rows) - 3)]
    with pytest.raises(ValueError, match=f"'language', row {0 if language == 0 else 2}: .* {said}"):
        batches(rows.add_column("language", codes), 2)


def texts_of_many_lengths(count: int = 1000, seed: int = 0) -> tuple[Dataset, list[int]]:
    lengths = np.random.default_rng(seed).integers(1, 60, count).tolist()
    return Dataset.from_dict({"text": ["w " * length for length in lengths]}), lengths


def split(texts: list[str]) -> dict[str, list[list[str]]]:
    return {"input_ids": [text.split() for text in texts]}


@pytest.mark.parametrize("drop_last", [True, False])
def test_each_row_once_and_as_many_batches_as_it_says(drop_last: bool) -> None:
    dataset, lengths = texts_of_many_lengths(1003)
    sampler = LengthGroupedBatchSampler(dataset, 8, drop_last, lengths=lengths)
    batches = list(sampler)
    used = [row for batch in batches for row in batch]
    assert len(batches) == len(sampler) and len(set(used)) == len(used) == (1000 if drop_last else 1003)
    assert all(len(batch) == 8 for batch in batches[:-1])


def test_a_batch_needs_little_padding_and_an_epoch_is_mixed() -> None:
    dataset, lengths = texts_of_many_lengths()
    batches = list(LengthGroupedBatchSampler(dataset, 8, True, lengths=lengths))
    padded = sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)
    assert padded < 1.1 * sum(lengths)
    longest = [max(lengths[row] for row in batch) for batch in batches]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_a_batch_counts_texts() -> None:
    dataset = Dataset.from_dict({name: ["a b"] * 40 for name in ("query", "positive", "negative_1", "language")})
    sampler = LengthGroupedBatches(split, texts_per_batch=True)(dataset, batch_size=12, drop_last=True, seed=0)
    assert sampler.batch_size == 4
    assert LengthGroupedBatches(split)(dataset, batch_size=12, drop_last=True).batch_size == 12
    assert sampler.lengths.tolist() == [2] * 40


def test_the_longest_text_of_a_row_counts() -> None:
    dataset = Dataset.from_dict({"query": ["a", "a b c"], "positive": ["a b", "a"], "label": [0, 1]})
    assert LengthGroupedBatches(split)(dataset, 1, False).lengths.tolist() == [2, 3]
