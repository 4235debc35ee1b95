"""Languages and rows in turn: proportions, streams, purity."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets

from st_xlret.batches import Rows, smoothed_probabilities
from st_xlret.batches.sampling import LanguageStreams
from st_xlret.data.columns import column_codes, rows_by_value

GROUPS = [np.arange(0, 80), np.arange(80, 100), np.empty(0, dtype=np.int64), np.arange(100, 105)]


def group_of(rows: np.ndarray) -> np.ndarray:
    return np.digitize(rows, [80, 100])


@pytest.mark.parametrize("language_smoothing", [0, 0.3, 0.7, 1])
def test_smoothing(language_smoothing: float) -> None:
    sizes = [1000, 10, 1]
    powers = [size**language_smoothing for size in sizes]
    expected = [power / sum(powers) for power in powers]
    np.testing.assert_allclose(smoothed_probabilities(np.array(sizes), language_smoothing), expected)


@pytest.mark.parametrize("language_smoothing", [-0.1, 1.1])
def test_wrong_smoothing(language_smoothing: float) -> None:
    with pytest.raises(ValueError, match=rf"language_smoothing must lie in \[0, 1\], got {language_smoothing}"):
        smoothed_probabilities(np.array([1, 2]), language_smoothing)


@pytest.mark.parametrize("language_mixing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("language_smoothing", [0.0, 0.5, 1.0])
def test_languages_come_in_smoothed_proportions(language_smoothing: float, language_mixing: float) -> None:
    streams = LanguageStreams(GROUPS, language_smoothing=language_smoothing, language_mixing=language_mixing, seed=[0])
    drawn = np.concatenate([streams.draw(4) for _ in range(3000)])
    shares = np.bincount(group_of(drawn), minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, smoothed_probabilities(np.array([80, 20, 5]), language_smoothing), atol=0.03)


def test_every_row_of_a_language_comes_once_before_any_comes_again() -> None:
    streams = LanguageStreams([np.arange(10)], language_smoothing=1, language_mixing=0, seed=[0])
    drawn = [streams.draw(4) for _ in range(10)]
    passes = np.concatenate(drawn).reshape(4, 10)
    assert all(sorted(each) == list(range(10)) for each in passes.tolist())
    assert len({tuple(each) for each in passes.tolist()}) == 4


def test_a_batch_larger_than_its_language_repeats_rows_evenly() -> None:
    streams = LanguageStreams([np.arange(3)], language_smoothing=1, language_mixing=0, seed=[0])
    assert sorted(Counter(streams.draw(8).tolist()).values()) == [2, 3, 3]


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match=r"language_mixing must lie in \[0, 1\], got 2"):
        LanguageStreams(GROUPS, language_smoothing=1, language_mixing=2, seed=[0])
    with pytest.raises(ValueError, match="no rows to sample from"):
        LanguageStreams(GROUPS[2:3], language_smoothing=1, language_mixing=0, seed=[0])


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
    rows = {"source": list("abcd"), "target": list("abcd"), "source_language": ["fr", "fr", "sw", "en"]}
    dataset = Dataset.from_dict({**rows, "target_language": ["en", "sw", "fr", "fr"]})
    sampler = Rows(language_mixing=0.0)(dataset, 1)
    assert sorted(sampler.languages) == [("en", "fr"), ("fr", "en"), ("fr", "sw"), ("sw", "fr")]


def test_datasets_that_will_not_do() -> None:
    assert list(Rows()(Dataset.from_dict({"sentence": ["a"]}), 2)) == [[0, 0]]  # rows of one group
    with pytest.raises(ValueError, match="data set is empty"):
        Rows()(rows_dataset().select([]), 2)


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
