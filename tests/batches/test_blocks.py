"""BlockBatchSampler: whole blocks of documents of one language, cut afresh."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.batches import Blocks
from st_xlret.batches.blocks import BlockBatchSampler, cut_into_blocks
from st_xlret.data import load_documents
from tests.tiny import documents_of

LENGTHS = {"en": [8, 3, 1, 23, 2, 5], "fr": [5, 1, 4, 9], "sw": [2, 3]}


def documents(lengths: dict[str, list[int]] | None = None) -> Dataset:
    return documents_of(lengths or LENGTHS)


def sampler_of(lengths: dict[str, list[int]] | None = None, batch_size: int = 3, **options: Any) -> BlockBatchSampler:
    return Blocks(**{"block_size": 4, **options})(documents(lengths), batch_size)


def epochs(sampler: BlockBatchSampler, count: int = 10) -> list[list[int]]:
    batches = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        batches += list(sampler)
    return batches


def blocks_of(batch: list[int], dataset: Dataset) -> dict[int, list[int]]:
    """Positions of each document in a batch, in order."""
    found: dict[int, list[int]] = {}
    for row in sorted(batch):
        found.setdefault(dataset[row]["document"], []).append(dataset[row]["position"])
    return found


def cut_naively(length: int, size: int, offset: int) -> list[tuple[int, int]]:
    borders = [0, length, *range(offset, length, size)]
    ordered = sorted(set(borders))
    return [(a, b - a) for a, b in zip(ordered, ordered[1:], strict=False)]


def test_long_documents_are_cut_at_every_border_from_a_random_one_on() -> None:
    lengths = np.array([1, 4, 5, 8, 9, 31])
    offsets: dict[int, set[int]] = {i: set() for i in range(len(lengths))}
    for seed in range(200):
        document, begin, length = cut_into_blocks(lengths, 4, np.random.default_rng(seed))
        for i, whole in enumerate(lengths.tolist()):
            found = list(zip(begin[document == i].tolist(), length[document == i].tolist(), strict=True))
            offset = found[0][1] % 4 if whole > 4 else 0
            assert found == cut_naively(whole, 4, offset)
            offsets[i].add(offset)
    assert [len(found) for found in offsets.values()] == [1, 1, 4, 4, 4, 4]


def test_a_batch_has_whole_blocks_of_one_language_and_one_of_a_document() -> None:
    dataset = documents()
    sampler = sampler_of()
    lengths = Counter(dataset["document"][:])
    for batch in epochs(sampler):
        assert len({dataset[row]["language"] for row in batch}) == 1
        assert len(batch) == len(set(batch))
        found = blocks_of(batch, dataset)
        for document, positions in found.items():
            assert positions == list(range(positions[0], positions[0] + len(positions)))
            assert 2 <= len(positions) <= 4
            assert len(positions) == lengths[document] or lengths[document] > 4
        assert len(batch) <= 12


def test_batches_are_filled_to_a_number_of_sentences() -> None:
    short = {"en": [2] * 40, "fr": [4] * 40}
    assert {len(batch) for batch in epochs(sampler_of(short))} == {12}


def test_a_pass_has_every_sentence_once_but_the_rest_of_a_batch() -> None:
    # 8 documents of 4 are two batches of 12 and a rest; in one language an epoch is a pass.
    sampler = sampler_of({"en": [4] * 8})
    assert len(sampler) == len(list(sampler)) == 2
    drawn = Counter(row for batch in sampler for row in batch)
    assert set(drawn.values()) == {1} and len(drawn) == 24
    assert set(row for batch in epochs(sampler) for row in batch) == set(range(32))


def test_small_languages_come_again_by_smoothing() -> None:
    lengths = {"en": [4] * 90, "fr": [4] * 9}
    shares = {}
    for smoothing in (0.0, 1.0):
        batches = epochs(sampler_of(lengths, language_smoothing=smoothing), 40)
        shares[smoothing] = np.mean([batch[0] >= 360 for batch in batches])
    assert 0.4 < shares[0.0] < 0.6 and 0.05 < shares[1.0] < 0.14


def test_rows_come_in_a_random_order() -> None:
    # The order is what CROP and ICT are drawn by: two passes over the same documents must differ.
    batches = epochs(sampler_of({"en": [4, 4]}), 20)
    assert {tuple(sorted(batch)) for batch in batches} == {tuple(range(8))} and len(set(map(tuple, batches))) == 20


def test_single_sentences_and_those_without_text_are_left_out() -> None:
    rows = documents({"en": [5, 2, 3, 1]}).to_list()
    for empty in (1, 5):
        rows[empty]["sentence"] = ""
    sampler = Blocks(block_size=4)(Dataset.from_list(rows), 3)
    assert sorted(next(iter(sampler))) == [0, 2, 3, 4, 7, 8, 9]


def test_a_document_alone_in_its_language_makes_batches_of_its_own() -> None:
    sampler = sampler_of({"en": [4] * 6, "fr": [13]}, language_smoothing=0.0)
    french = [batch for batch in epochs(sampler) if min(batch) >= 24]
    assert french and all(2 <= len(batch) <= 4 for batch in french)


@pytest.mark.parametrize(
    ("rows", "options", "named"),
    [
        (range(30), {"block_size": 1}, "block_size=1"),
        ([11], {}, "two sentences"),
        ([], {}, "two sentences"),
    ],
)
def test_documents_that_will_not_do(rows: Any, options: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Blocks(**options)(documents().select(rows), 2)


def test_rows_are_put_in_order_by_their_positions() -> None:
    ordered, order = documents(), np.random.default_rng(0).permutation(len(documents()))
    batches = [order[batch].tolist() for batch in Blocks(block_size=4)(ordered.select(order), 3)]
    by_document = [ordered.select(batch).sort(["document", "position"]) for batch in batches]
    for rows in by_document:
        same = np.diff(rows["document"]) == 0
        assert (np.diff(rows["position"])[same] == 1).all()


def test_real_documents_make_blocks(real_data: Path, tmp_path: Path) -> None:
    dataset = load_documents([real_data / "tico19"], cache_dir=tmp_path)
    sampler = Blocks()(dataset, 4)
    batches = list(sampler)
    assert len(batches) == len(sampler) > 10 and all(len(batch) <= 128 for batch in batches)


def test_rows_that_are_blocks_already() -> None:
    rows = Dataset.from_dict({"first": ["a"] * 8, "second": ["b"] * 8, "language": ["en"] * 4 + ["fr"] * 4})
    batches = list(Blocks(language_smoothing=1.0)(rows, 2))
    assert len(batches) == 4 and all(len({row // 4 for row in batch}) == 1 for batch in batches)
