"""WindowBatchSampler: centres and contexts of one document, drawn afresh."""

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.batches import LanguageBatchSampler, WindowBatchSampler, Windows
from tests.tiny import documents_of

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


def test_a_language_smaller_than_a_batch_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Windows()(documents({"en": [3] * 9, "fr": [4, 4], "sw": [1, 1]}), 8)
    assert "language 'fr' has 2 documents for batches of 8 windows" in caplog.text
    assert "language 'sw' has no document of two sentences" in caplog.text
    assert "'en'" not in caplog.text


def test_datasets_and_options_that_will_not_do() -> None:
    with pytest.raises(ValueError, match="no document has two sentences"):
        Windows()(documents({"en": [1, 1], "fr": [1]}), 2)
    with pytest.raises(ValueError, match="window_size must be at least 1, got 0"):
        Windows(window_size=0)(documents(), 2)
    with pytest.raises(ValueError, match="sentences of a document must be contiguous"):
        Windows()(documents().select([0, 9, 1, 10]), 2)
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
    with pytest.raises(ValueError, match="must be contiguous"):
        Windows()(named.select([0, 9, 1, 10]), 2)
