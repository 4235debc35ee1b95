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
    return tiny.epochs(Blocks(**{"block_size": 4, **options})(documents_of(lengths), 3), count)


def cut_naively(length: int, size: int, offset: int) -> list[tuple[int, int]]:
    borders = sorted({0, length, *range(offset, length, size)})
    return [(a, b - a) for a, b in zip(borders, borders[1:], strict=False)]


def test_long_documents_are_cut_at_every_border_from_a_random_one_on() -> None:
    lengths = np.array([1, 4, 5, 8, 9, 31])
    offsets: dict[int, set[int]] = {i: set() for i in range(len(lengths))}
    for seed in range(200):
        document, begin, length = cut_into_blocks(lengths, 4, np.random.default_rng(seed))
        for i, whole in enumerate(lengths.tolist()):
            blocks = list(
                zip(begin[document == i].tolist(), length[document == i].tolist(), strict=True)
            )
            offset = blocks[0][1] % 4 if whole > 4 else 0
            assert blocks == cut_naively(whole, 4, offset)
            offsets[i].add(offset)
    assert [len(drawn) for drawn in offsets.values()] == [1, 1, 4, 4, 4, 4]


def test_a_batch_has_whole_blocks_of_one_language_and_one_of_a_document() -> None:
    dataset = documents_of(LENGTHS)
    lengths = Counter(dataset["document"][:])
    for batch in epochs(LENGTHS):
        rows = dataset.select(sorted(batch)).to_list()
        assert len({row["language"] for row in rows}) == 1 and len(set(batch)) == len(batch) <= 12
        positions: dict[int, list[int]] = {}
        for row in rows:
            positions.setdefault(row["document"], []).append(row["position"])
        for document, block in positions.items():
            assert block == list(range(block[0], block[0] + len(block))) and 2 <= len(block) <= 4
            assert len(block) == lengths[document] or lengths[document] > 4


def test_a_pass_has_every_sentence_once_but_the_rest_of_a_batch() -> None:
    # Batches are filled to 12 sentences: 8 documents of 4 are two and a rest; in one language an epoch is a pass.
    assert {len(batch) for batch in epochs({"en": [2] * 40, "fr": [4] * 40})} == {12}
    passes = np.array(epochs({"en": [4] * 8})).reshape(10, 24)
    assert all(len(set(each)) == 24 for each in passes.tolist()) and set(passes.flatten()) == set(
        range(32)
    )


def test_small_languages_come_again_by_smoothing() -> None:
    lengths = {"en": [4] * 90, "fr": [4] * 9}
    shares = [
        np.mean([batch[0] >= 360 for batch in epochs(lengths, 40, language_smoothing=s)])
        for s in (0.0, 1.0)
    ]
    assert 0.4 < shares[0] < 0.6 and 0.05 < shares[1] < 0.14


def test_rows_come_in_a_random_order() -> None:
    # The order is what CROP and ICT are drawn by: two passes over the same documents must differ.
    batches = epochs({"en": [4, 4]}, 20)
    assert {tuple(sorted(batch)) for batch in batches} == {tuple(range(8))} and len(
        set(map(tuple, batches))
    ) == 20


def test_single_sentences_and_those_without_text_are_left_out() -> None:
    rows = documents_of({"en": [5, 2, 3, 1]}).to_list()
    for empty in (1, 5):
        rows[empty]["sentence"] = ""
    assert sorted(next(iter(Blocks(block_size=4)(Dataset.from_list(rows), 3)))) == [
        0,
        2,
        3,
        4,
        7,
        8,
        9,
    ]
    for chosen, options, named in (
        ([11], {}, "two sentences"),
        ([0, 1, 2], {"block_size": 1}, "block_size=1"),
    ):
        with pytest.raises(ValueError, match=named):
            Blocks(**options)(documents_of(LENGTHS).select(chosen), 2)


def test_a_document_alone_in_its_language_makes_batches_of_its_own() -> None:
    batches = epochs({"en": [4] * 6, "fr": [13]}, language_smoothing=0.0)
    french = [batch for batch in batches if min(batch) >= 24]
    assert french and all(2 <= len(batch) <= 4 for batch in french)
