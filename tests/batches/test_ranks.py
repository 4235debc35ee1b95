"""Batches depend on the seed and the epoch alone: each process takes a share of the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, ConcatDataset

from st_xlret.batches import (
    Blocks,
    InterleavedBatchSampler,
    Rows,
    Windows,
    blocks,
    interleaving,
    lengths,
    sampling,
)
from st_xlret.batches.blocks import shares_of_ranks
from st_xlret.batches.lengths import LengthGroupedBatchSampler
from tests import tiny

GLOBAL_BATCH = 12
RAGGED = tiny.documents_of(
    {"en": [8, 3, 23, 2, 5, 9, 4, 4, 6, 7] * 3, "fr": [5, 4, 9, 2, 2, 3, 12, 6] * 2}
)


def interleaved(size: int, **options: Any) -> BatchSampler:
    documents = tiny.documents(30, 5)
    texts = tiny.texts(60)
    samplers: list[Any] = [Windows()(documents, size), Rows()(texts, size)]
    return InterleavedBatchSampler(ConcatDataset([documents, texts]), samplers, **options)


def grouped_by_length(size: int) -> BatchSampler:
    lengths_of_rows = np.random.default_rng(0).integers(1, 9, 100)
    return LengthGroupedBatchSampler(tiny.texts(100), size, True, lengths=lengths_of_rows)


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "rows": lambda size: Rows()(tiny.texts(100), size),
    "rows, one language": lambda size: Rows(language_mixing=0.0)(tiny.texts(100), size),
    "about one length": grouped_by_length,
    "windows": lambda size: Windows()(tiny.documents(30, 5), size),
    "blocks": lambda size: Blocks(block_size=4)(RAGGED, size),
    "interleaved": interleaved,
    "in turn": lambda size: interleaved(size, in_turn=True),
}

Shares = list[list[int]]
"""The rows of each rank in a step."""


def steps_of(name: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> list[Shares]:
    """For every step, the share of each rank as accelerate hands it out, over two epochs."""
    for module in (blocks, interleaving, lengths, sampling):
        monkeypatch.setattr(module, "get_world_size", lambda: ranks)
    sampler = SAMPLERS[name](GLOBAL_BATCH // ranks)
    steps = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        of_ranks = []
        for rank in range(ranks):
            shard = BatchSamplerShard(sampler, ranks, rank, even_batches=False)
            batches = list(shard)
            assert len(batches) == len(shard)
            of_ranks.append(batches)
        steps += list(map(list, zip(*of_ranks, strict=True)))
    return steps


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_shares_of_all_ranks_are_the_batch_of_one(
    name: str,
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    single = steps_of(name, 1, monkeypatch)
    several = steps_of(name, ranks, monkeypatch)
    assert len(single) == len(several)
    assert len(single) > 4
    for (whole,), shares in zip(single, several, strict=True):
        assert min(map(len, shares)) > 0
        assert sorted(sum(shares, [])) == sorted(whole)


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_are_new_in_every_epoch_and_the_same_for_one_seed(name: str) -> None:
    def batches(seed: int, epoch: int) -> str:
        sampler = SAMPLERS[name](4)
        sampler.seed = seed
        sampler.set_epoch(epoch)
        drawn = list(sampler)
        assert len(drawn) == len(sampler)
        return str(drawn)

    cases = [(0, 0), (0, 1), (0, 2)]
    if name != "in turn":  # there the samplers of the data sets alone have seeds
        cases += [(1, 0), (1, 1), (1, 2)]
    drawn = [batches(seed, epoch) for seed, epoch in cases]
    assert len(set(drawn)) == len(cases)
    assert batches(0, 2) == drawn[2]


@pytest.mark.parametrize("ranks", [2, 3])
def test_windows_stay_together_in_the_share_of_a_rank(
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = np.array(tiny.documents(30, 5)["document"])
    for shares in steps_of("windows", ranks, monkeypatch):
        for share in shares:
            centres, contexts = np.split(np.array(share), 2)
            assert document[centres].tolist() == document[contexts].tolist()
            assert not (centres == contexts).any()


@pytest.mark.parametrize("ranks", [2, 3])
def test_blocks_stay_together_and_ranks_read_about_as_much(
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = np.array(RAGGED["document"])
    position = np.array(RAGGED["position"])
    for shares in steps_of("blocks", ranks, monkeypatch):
        sizes = list(map(len, shares))
        assert max(sizes) - min(sizes) <= 2 * 4
        seen: set[int] = set()
        for share in shares:
            of_share = set(document[share].tolist())
            assert not seen & of_share, "a document is in one share alone"
            seen |= of_share
            for number in of_share:
                block = sorted(position[share][document[share] == number])
                assert 2 <= len(block) <= 4
                assert block == list(range(block[0], block[0] + len(block)))


@pytest.mark.parametrize(
    ("lengths", "shares"),
    [
        ([3, 2, 2, 4], [(0, 3), (3, 7), (7, 11)]),
        ([2, 4], [(0, 2), (2, 6), (0, 2)]),  # fewer blocks than ranks
        ([1, 1, 9], [(0, 1), (1, 2), (2, 11)]),  # each has one at least
        ([9, 1, 1], [(0, 9), (9, 10), (10, 11)]),
    ],
)
def test_every_rank_has_a_block(lengths: list[int], shares: list[tuple[int, int]]) -> None:
    assert shares_of_ranks(np.array(lengths), 3) == shares
