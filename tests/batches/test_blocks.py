"""BlockBatchSampler: whole blocks of documents of one language, cut afresh."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.batches import Blocks
from st_xlret.batches.blocks import cut_into_blocks
from tests import tiny
from tests.tiny import documents_of

LENGTHS = {"en": [8, 3, 1, 23, 2, 5], "fr": [5, 1, 4, 9], "sw": [2, 3]}


def epochs(lengths: dict[str, list[int]], count: int = 10, **options: Any) -> list[list[int]]:
    sampler = Blocks(block_size=4, **options)(documents_of(lengths), 3)
    return tiny.epochs(sampler, count)


def cut_naively(length: int, size: int, offset: int) -> list[tuple[int, int]]:
    borders = sorted({0, length, *range(offset, length, size)})
    return [(a, b - a) for a, b in zip(borders, borders[1:], strict=False)]


def test_long_documents_are_cut_at_every_border_from_a_random_one_on() -> None:
    lengths = [1, 4, 5, 8, 9, 31]
    offsets: list[set[int]] = [set() for _ in lengths]
    for seed in range(200):
        blocks = cut_into_blocks(np.array(lengths), 4, np.random.default_rng(seed))
        for number, length in enumerate(lengths):
            is_of_document = blocks.document == number
            begins = blocks.begin[is_of_document].tolist()
            sizes = blocks.length[is_of_document].tolist()
            offset = sizes[0] % 4 if length > 4 else 0
            assert list(zip(begins, sizes, strict=True)) == cut_naively(length, 4, offset)
            offsets[number].add(offset)
    assert list(map(len, offsets)) == [1, 1, 4, 4, 4, 4]


def test_a_batch_has_whole_blocks_of_one_language_and_one_of_a_document() -> None:
    dataset = documents_of(LENGTHS)
    lengths = Counter(dataset["document"][:])
    for batch in epochs(LENGTHS):
        assert len(set(batch)) == len(batch) <= 12
        rows = dataset.select(sorted(batch)).to_list()
        assert len({row["language"] for row in rows}) == 1
        positions: dict[int, list[int]] = {}
        for row in rows:
            positions.setdefault(row["document"], []).append(row["position"])
        for document, block in positions.items():
            assert block == list(range(block[0], block[0] + len(block)))
            assert 2 <= len(block) <= 4
            assert len(block) == lengths[document] or lengths[document] > 4


def test_batches_are_filled() -> None:
    # 8 documents of 4 sentences are two batches of 12 sentences and a rest.
    batches = epochs({"en": [2] * 40, "fr": [4] * 40})
    assert set(map(len, batches)) == {12}


def test_a_pass_has_every_sentence_once_but_the_rest_of_a_batch() -> None:
    batches = epochs({"en": [4] * 8})  # in one language an epoch is a pass
    seen = set()
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        of_pass = {*first, *second}
        assert len(of_pass) == 24
        seen |= of_pass
    assert seen == set(range(32))


@pytest.mark.parametrize(
    ("smoothing", "least", "most"),
    [(0.0, 0.4, 0.6), (1.0, 0.05, 0.14)],
)
def test_small_languages_come_again_by_smoothing(
    smoothing: float,
    least: float,
    most: float,
) -> None:
    lengths = {"en": [4] * 90, "fr": [4] * 9}
    batches = epochs(lengths, 40, language_smoothing=smoothing)
    french = [batch for batch in batches if batch[0] >= 360]
    assert least < len(french) / len(batches) < most


def test_rows_come_in_a_random_order() -> None:
    # The order is what CROP and ICT are drawn by: two passes over the same documents must differ.
    batches = epochs({"en": [4, 4]}, 20)
    for batch in batches:
        assert sorted(batch) == list(range(8))
    assert len(set(map(tuple, batches))) == 20


def test_single_sentences_and_those_without_text_are_left_out() -> None:
    rows = documents_of({"en": [5, 2, 3, 1]}).to_list()
    rows[1]["sentence"] = ""
    rows[5]["sentence"] = ""
    sampler = Blocks(block_size=4)(Dataset.from_list(rows), 3)
    assert sorted(next(iter(sampler))) == [0, 2, 3, 4, 7, 8, 9]


@pytest.mark.parametrize(
    ("rows", "block_size", "said"),
    [
        ([11], 32, "two sentences"),
        ([0, 1, 2], 1, "block_size 1"),
    ],
)
def test_documents_without_blocks_are_refused(rows: list[int], block_size: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Blocks(block_size=block_size)(documents_of(LENGTHS).select(rows), 2)


def test_a_document_alone_in_its_language_makes_batches_of_its_own() -> None:
    batches = epochs({"en": [4] * 6, "fr": [13]}, language_smoothing=0.0)
    french = [len(batch) for batch in batches if min(batch) >= 24]
    assert set(french) <= {2, 3, 4}
    assert french
