"""Languages and rows in turn: proportions, passes, windows, lengths."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, Value, concatenate_datasets

from st_xlret.batches import (
    Blocks,
    LengthGroupedBatches,
    Rows,
    Windows,
    smoothed_probabilities,
)
from st_xlret.batches.lengths import LengthGroupedBatchSampler
from st_xlret.batches.sampling import (
    LanguageBatchSampler,
    WindowBatchSampler,
)
from tests import tiny
from tests.tiny import documents_of, epochs

LENGTHS = {"en": [8, 3, 1, 12, 2], "fr": [5, 1, 4], "sw": [2, 3]}


@pytest.mark.parametrize("language_mixing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("language_smoothing", [0.0, 0.5, 1.0])
def test_languages_come_in_smoothed_proportions(
    language_smoothing: float, language_mixing: float
) -> None:
    powers = [size**language_smoothing for size in (80, 20, 5)]
    expected = [power / sum(powers) for power in powers]
    np.testing.assert_allclose(
        smoothed_probabilities(np.array([80, 20, 5]), language_smoothing), expected
    )
    sampler = Rows(language_smoothing, language_mixing)(
        documents_of({"en": [80], "fr": [20], "sw": [5]}), 4
    )
    drawn = np.digitize(epochs(sampler, 120), [80, 100])
    assert drawn.shape == (120 * len(sampler), 4) == (120 * 26, 4)
    np.testing.assert_allclose(
        np.bincount(drawn.flatten(), minlength=3) / drawn.size, expected, atol=0.03
    )
    # Two rows of a batch are of its language, or independent of each other.
    of_the_batch = (1 - language_mixing) ** 2
    alike = of_the_batch + (1 - of_the_batch) * np.square(expected).sum()
    np.testing.assert_allclose(np.mean(drawn[:, :2] == drawn[:, 2:]), alike, atol=0.03)


def test_every_row_comes_once_before_any_comes_again() -> None:
    ((first, again),) = [
        np.split(np.array(batch), 2) for batch in Rows()(documents_of({"en": [10]}), 20)
    ]
    assert sorted(first) == sorted(again) == list(range(10)) and first.tolist() != again.tolist()
    (rows,) = Rows()(documents_of({"en": [3]}), 8)
    assert sorted(Counter(rows).values()) == [2, 3, 3]


def test_rows_of_several_files_are_grouped_by_all_their_languages() -> None:
    codes = [("fr", "en"), ("fr", "sw"), ("sw", "fr"), ("fr", "en"), ("sw", "en")]
    columns = dict(
        zip(
            ("source_language", "target_language"), map(list, zip(*codes, strict=True)), strict=True
        )
    )
    dataset = concatenate_datasets(
        [Dataset.from_dict(columns).select(part) for part in ([0, 1], [2, 3, 4])]
    )
    assert sorted(group.tolist() for group in Rows()(dataset, 1).groups) == [[0, 3], [1], [2], [4]]
    assert sorted(group.tolist() for group in Rows()(dataset.select([3, 1, 0]), 1).groups) == [
        [0, 2],
        [1],
    ]
    one = dataset.remove_columns("source_language")
    assert sorted(group.tolist() for group in Rows()(one, 1).groups) == [[0, 3, 4], [1], [2]]


def test_few_rows_many_and_none() -> None:
    assert list(Rows()(Dataset.from_dict({"sentence": ["a"]}), 2)) == [[0, 0]]  # rows of one group
    assert len(next(iter(Rows(batch_scale=2.5)(documents_of({"en": [60]}), 4)))) == 10
    with pytest.raises(ValueError, match="0 rows"):
        Rows()(documents_of(LENGTHS).select([]), 2)


@pytest.mark.parametrize("window_size", [1, 2, 5, 100])
@pytest.mark.parametrize("language_mixing", [0.0, 1.0])
def test_windows_stay_inside_their_document_and_size(
    window_size: int, language_mixing: float
) -> None:
    dataset = documents_of(LENGTHS)
    document = np.array(dataset["document"])
    for batch in epochs(
        Windows(window_size=window_size, language_mixing=language_mixing)(dataset, 6), 20
    ):
        centres, contexts = np.reshape(batch, (2, -1))
        assert len(centres) == 6 and (document[centres] == document[contexts]).all()
        assert (centres != contexts).all() and (np.abs(centres - contexts) <= window_size).all()


def test_contexts_are_drawn_evenly_from_the_window() -> None:
    drawn: dict[int, Counter[int]] = {centre: Counter() for centre in range(12)}
    for batch in epochs(Windows(window_size=3)(documents_of({"en": [12]}), 12), 600):
        for centre, context in zip(batch[:12], batch[12:], strict=True):
            drawn[centre][context] += 1
    for centre, counts in drawn.items():
        window = [p for p in range(max(0, centre - 3), min(11, centre + 3) + 1) if p != centre]
        assert sorted(counts) == window
        expected = sum(counts.values()) / len(window)
        # 99.99 % of chi-square with five degrees of freedom lie below 26.
        assert sum((counts[p] - expected) ** 2 / expected for p in window) < 26


def test_every_sentence_with_a_context_is_a_centre_once_an_epoch() -> None:
    centres = [
        row for batch in Windows()(documents_of({"en": [4, 4, 1, 4]}), 4) for row in batch[:4]
    ]
    assert sorted(centres) == [*range(8), *range(9, 13)]


@pytest.mark.parametrize(
    ("rows", "options", "named"),
    [
        (documents_of({"en": [1, 1], "fr": [1]}), {}, "Windows"),
        (documents_of(LENGTHS), {"window_size": 0}, "Windows"),
        (
            documents_of(LENGTHS).remove_columns("position").select([0, 9, 1, 10]),
            {},
            "contiguous.*add_column",
        ),
        (
            documents_of(LENGTHS).select([0, 1, 2, 0, 1, 2]),
            {},
            "'position'",
        ),  # two documents with one id
        (
            Dataset.from_dict({"document": [1, 1], "position": [0, None]}),
            {},
            "rows without 'position'",
        ),
        (Dataset.from_dict({"document": [None, 1, 1]}), {}, "rows without 'document'"),
    ],
)
def test_documents_that_will_not_do(rows: Dataset, options: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Windows(**options)(rows, 2)


def test_the_option_makes_the_sampler() -> None:
    batches = Windows(window_size=2, language_smoothing=0.3, language_mixing=0.1)
    host = {"drop_last": False, "valid_label_columns": ["label"], "generator": None, "seed": 5}
    windows = batches(documents_of(LENGTHS), batch_size=4, **host)
    assert (
        isinstance(windows, WindowBatchSampler) and windows.options == batches and windows.seed == 5
    )
    for of_documents in (Windows(), Blocks()):  # and rows that are windows or blocks already
        sampler = of_documents(
            documents_of(LENGTHS).remove_columns("document"), batch_size=4, **host
        )
        assert type(sampler) is LanguageBatchSampler
        assert {len(set(np.digitize(batch, [26, 36]))) for batch in sampler} == {1}, (
            "of one language"
        )
    assert len(next(iter(batches(documents_of(LENGTHS).remove_columns("language"), 2)))) == 4


@pytest.mark.parametrize("by", ["document", "sentence"])
def test_documents_of_sorted_rows_are_put_in_order_by_their_positions(by: str) -> None:
    """`.sort("document")` leaves the order within documents, whose ids may be names, at random."""
    rows = documents_of({"en": [40] * 30}).cast_column("document", Value("string")).sort(by)
    document, position = np.array(rows["document"]), np.array(rows["position"])
    for centres, contexts in (
        np.reshape(batch, (2, -1)) for batch in Windows(window_size=2)(rows, 16)
    ):
        assert (document[centres] == document[contexts]).all()
        assert (abs(position[centres] - position[contexts]) <= 2).all()
    for batch in Blocks(block_size=4)(rows, 3):
        places = sorted(zip(document[batch].astype(int), position[batch], strict=True))
        document_steps, steps = np.diff(places, axis=0).T
        assert (steps[document_steps == 0] == 1).all()


@pytest.mark.parametrize("batches", [Rows(), Windows(), Blocks()])
@pytest.mark.parametrize(
    ("language", "said"), [(None, "None"), ("english", "'english'"), (0, "0"), ("", "''")]
)
def test_what_is_no_language_is_named(batches: Rows, language: Any, said: str) -> None:
    rows = documents_of(LENGTHS).remove_columns("language")
    codes = (
        [language] * len(rows)
        if language == 0
        else ["en", "en", language, *["fr"] * (len(rows) - 3)]
    )
    with pytest.raises(ValueError, match=f"'language', row {0 if language == 0 else 2}: .* {said}"):
        batches(rows.add_column("language", codes), 2)


@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_of_about_one_length(drop_last: bool) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 1003).tolist()
    sampler = LengthGroupedBatchSampler(tiny.texts(1003), 8, drop_last, lengths=lengths)
    batches = list(sampler)
    rows = [row for batch in batches for row in batch]
    assert len(batches) == len(sampler) and len(set(rows)) == len(rows) == (
        1000 if drop_last else 1003
    )
    longest = [max(lengths[row] for row in batch) for batch in batches]
    assert 8 * sum(longest) < 1.1 * sum(lengths), "little padding"
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3, "an epoch is mixed"


def test_the_longest_text_of_a_row_counts_and_a_batch_counts_texts() -> None:
    texts = {
        "query": ["a", "a b c"] * 20,
        "positive": ["a b", "a"] * 20,
        "label": [0, 1] * 20,
        "language": ["en"] * 40,
    }

    def split(texts: list[str]) -> dict[str, list[list[str]]]:
        return {"input_ids": [text.split() for text in texts]}

    for texts_per_batch, size in ((True, 6), (False, 12)):
        sampler = LengthGroupedBatches(split, texts_per_batch=texts_per_batch)(
            Dataset.from_dict(texts), 12
        )
        assert sampler.batch_size == size and sampler.lengths.tolist() == [2, 3] * 20
