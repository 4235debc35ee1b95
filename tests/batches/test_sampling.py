"""Languages and rows in turn: proportions, passes, windows."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, Value, concatenate_datasets

from st_xlret.batches import Blocks, Rows, Windows, smoothed_probabilities
from st_xlret.batches.sampling import LanguageBatchSampler, WindowBatchSampler
from tests.tiny import documents_of, epochs

LENGTHS = {"en": [8, 3, 1, 12, 2], "fr": [5, 1, 4], "sw": [2, 3]}
DOCUMENTS = documents_of(LENGTHS)


@pytest.mark.parametrize("language_mixing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("language_smoothing", [0.0, 0.5, 1.0])
def test_languages_come_in_smoothed_proportions(
    language_smoothing: float,
    language_mixing: float,
) -> None:
    powers = np.array([80, 20, 5]) ** language_smoothing
    expected = powers / powers.sum()
    probabilities = smoothed_probabilities(np.array([80, 20, 5]), language_smoothing)
    np.testing.assert_allclose(probabilities, expected)
    rows = documents_of({"en": [80], "fr": [20], "sw": [5]})
    sampler = Rows(language_smoothing, language_mixing)(rows, 4)
    drawn = np.digitize(epochs(sampler, 120), [80, 100])
    assert drawn.shape == (120 * len(sampler), 4) == (120 * 26, 4)
    counts = np.bincount(drawn.flatten(), minlength=3)
    np.testing.assert_allclose(counts / drawn.size, expected, atol=0.03)
    # Two rows of a batch are of its language, or independent of each other.
    of_the_batch = (1 - language_mixing) ** 2
    alike = of_the_batch + (1 - of_the_batch) * np.square(expected).sum()
    np.testing.assert_allclose(np.mean(drawn[:, :2] == drawn[:, 2:]), alike, atol=0.03)


def test_every_row_comes_once_before_any_comes_again() -> None:
    (batch,) = Rows()(documents_of({"en": [10]}), 20)
    first = batch[:10]
    again = batch[10:]
    assert sorted(first) == sorted(again) == list(range(10))
    assert first != again
    (batch,) = Rows()(documents_of({"en": [3]}), 8)
    assert sorted(Counter(batch).values()) == [2, 3, 3]


def groups_of(dataset: Dataset) -> list[list[int]]:
    sampler: Any = Rows()(dataset, 1)
    return sorted(group.tolist() for group in sampler.groups)


def test_rows_of_several_files_are_grouped_by_all_their_languages() -> None:
    columns = {
        "source_language": ["fr", "fr", "sw", "fr", "sw"],
        "target_language": ["en", "sw", "fr", "en", "en"],
    }
    rows = Dataset.from_dict(columns)
    of_two_files = concatenate_datasets([rows.select([0, 1]), rows.select([2, 3, 4])])
    assert groups_of(of_two_files) == [[0, 3], [1], [2], [4]]
    assert groups_of(of_two_files.select([3, 1, 0])) == [[0, 2], [1]]
    assert groups_of(of_two_files.remove_columns("source_language")) == [[0, 3, 4], [1], [2]]


def test_few_rows_many_and_none() -> None:
    one = Dataset.from_dict({"sentence": ["a"]})
    assert list(Rows()(one, 2)) == [[0, 0]]
    batch = next(iter(Rows(batch_scale=2.5)(documents_of({"en": [60]}), 4)))
    assert len(batch) == 10
    with pytest.raises(ValueError, match="0 rows"):
        Rows()(DOCUMENTS.select([]), 2)


# Windows


@pytest.mark.parametrize("window_size", [1, 2, 5, 100])
@pytest.mark.parametrize("language_mixing", [0.0, 1.0])
def test_windows_stay_inside_their_document_and_size(
    window_size: int,
    language_mixing: float,
) -> None:
    document = np.array(DOCUMENTS["document"])
    batches = Windows(window_size=window_size, language_mixing=language_mixing)
    for batch in epochs(batches(DOCUMENTS, 6), 20):
        centres, contexts = np.reshape(batch, (2, 6))
        assert document[centres].tolist() == document[contexts].tolist()
        distances = np.abs(centres - contexts)
        assert distances.min() >= 1
        assert distances.max() <= window_size


def test_contexts_are_drawn_evenly_from_the_window() -> None:
    drawn: list[Counter[int]] = [Counter() for _ in range(12)]
    for batch in epochs(Windows(window_size=3)(documents_of({"en": [12]}), 12), 600):
        for centre, context in zip(batch[:12], batch[12:], strict=True):
            drawn[centre][context] += 1
    for centre, counts in enumerate(drawn):
        near = range(max(0, centre - 3), min(11, centre + 3) + 1)
        window = [place for place in near if place != centre]
        assert sorted(counts) == window
        expected = counts.total() / len(window)
        # 99.99 % of chi-square with five degrees of freedom lie below 26.
        assert sum((counts[place] - expected) ** 2 / expected for place in window) < 26


def test_every_sentence_with_a_context_is_a_centre_once_an_epoch() -> None:
    centres = []
    for batch in Windows()(documents_of({"en": [4, 4, 1, 4]}), 4):
        centres += batch[:4]
    assert sorted(centres) == [*range(8), *range(9, 13)]


WITHOUT_POSITION = DOCUMENTS.remove_columns("position")
BAD_DOCUMENTS: list[tuple[Dataset, dict[str, int], str]] = [
    (documents_of({"en": [1, 1], "fr": [1]}), {}, "Windows"),
    (DOCUMENTS, {"window_size": 0}, "window_size 0"),
    (WITHOUT_POSITION.select([0, 9, 1, 10]), {}, "contiguous.*add_column"),
    (DOCUMENTS.select([0, 1, 2, 0, 1, 2]), {}, "'position'"),  # two documents with one id
    (
        Dataset.from_dict({"document": [1, 1], "position": [0, None]}),
        {},
        "row 1 has no 'position'",
    ),
    (Dataset.from_dict({"document": [None, 1, 1]}), {}, "row 0 has no 'document'"),
]


BAD_OPTIONS: list[dict[str, float]] = [
    {"language_smoothing": -0.5},
    {"language_smoothing": float("nan")},
    {"language_mixing": 1.5},
    {"batch_scale": 0},
]


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} {options[name]}: it has to be"):
        Rows(**options)


def test_a_batch_of_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size 0"):
        Rows()(DOCUMENTS, 0)


@pytest.mark.parametrize(("rows", "options", "said"), BAD_DOCUMENTS)
def test_documents_that_will_not_do(rows: Dataset, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Windows(**options)(rows, 2)


def test_the_options_make_a_sampler_with_the_arguments_of_the_host() -> None:
    batches = Windows(window_size=2, language_smoothing=0.3, language_mixing=0.1)
    sampler = batches(
        DOCUMENTS,
        batch_size=4,
        drop_last=False,
        valid_label_columns=["label"],
        generator=None,
        seed=5,
    )
    assert isinstance(sampler, WindowBatchSampler)
    assert sampler.options == batches
    assert sampler.seed == 5


@pytest.mark.parametrize("batches", [Windows(), Blocks()])
def test_rows_without_documents_are_windows_or_blocks_already(batches: Rows) -> None:
    sampler = batches(DOCUMENTS.remove_columns("document"), 4)
    assert type(sampler) is LanguageBatchSampler
    for batch in sampler:
        of_batch = np.digitize(batch, [26, 36])
        assert len(set(of_batch.tolist())) == 1, "of one language"


def test_documents_need_no_language() -> None:
    batch = next(iter(Windows()(DOCUMENTS.remove_columns("language"), 2)))
    assert len(batch) == 4


@pytest.mark.parametrize("by", ["document", "sentence"])
def test_documents_of_sorted_rows_are_put_in_order_by_their_positions(by: str) -> None:
    # `.sort("document")` leaves the order within documents, whose ids may be names, at random.
    rows = documents_of({"en": [40] * 30}).cast_column("document", Value("string")).sort(by)
    document = np.array(rows["document"])
    position = np.array(rows["position"])
    for batch in Windows(window_size=2)(rows, 16):
        centres, contexts = np.reshape(batch, (2, 16))
        assert document[centres].tolist() == document[contexts].tolist()
        assert np.abs(position[centres] - position[contexts]).max() <= 2
    for batch in Blocks(block_size=4)(rows, 3):
        places = sorted(zip(document[batch].astype(int), position[batch], strict=True))
        document_steps, steps = np.diff(places, axis=0).T
        assert set(steps[document_steps == 0].tolist()) == {1}


@pytest.mark.parametrize("batches", [Rows(), Windows(), Blocks()])
@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (["en", "en", None], "row 2: .* None"),
        (["en", "en", "english"], "row 2: .* 'english'"),
        (["en", "en", ""], "row 2: .* ''"),
        ([0, 0, 0], "row 0: .* 0"),
    ],
)
def test_what_is_no_language_is_named(batches: Rows, codes: list[Any], said: str) -> None:
    rows = documents_of({"en": [3]}).remove_columns("language").add_column("language", codes)
    with pytest.raises(ValueError, match=f"'language', {said}"):
        batches(rows, 2)
