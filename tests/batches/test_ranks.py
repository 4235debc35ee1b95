"""Batches depend on the seed and the epoch alone, not on the number of processes: each takes a share of the same."""

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
from st_xlret.batches.blocks import row_ranges_by_rank
from st_xlret.batches.lengths import LengthGroupedBatchSampler
from tests import tiny

GLOBAL_BATCH = 12
RAGGED = tiny.documents_of(
    {"en": [8, 3, 23, 2, 5, 9, 4, 4, 6, 7] * 3, "fr": [5, 4, 9, 2, 2, 3, 12, 6] * 2}
)


def interleaved(size: int, **options: Any) -> BatchSampler:
    parts = [tiny.documents(30, 5), tiny.texts(60)]
    return InterleavedBatchSampler(
        ConcatDataset(parts), [Windows()(parts[0], size), Rows()(parts[1], size)], **options
    )


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "rows": lambda size: Rows()(tiny.texts(100), size),
    "rows, one language": lambda size: Rows(language_mixing=0.0)(tiny.texts(100), size),
    "about one length": lambda size: LengthGroupedBatchSampler(
        tiny.texts(100), size, True, lengths=np.random.default_rng(0).integers(1, 9, 100)
    ),
    "windows": lambda size: Windows()(tiny.documents(30, 5), size),
    "blocks": lambda size: Blocks(block_size=4)(RAGGED, size),
    "interleaved": interleaved,
    "in turn": lambda size: interleaved(size, in_turn=True),
}


def batches_of(name: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """For every step, the share of each rank as accelerate hands it out, over two epochs."""
    for module in (blocks, interleaving, lengths, sampling):
        monkeypatch.setattr(module, "get_world_size", lambda: ranks)
    sampler, steps = SAMPLERS[name](GLOBAL_BATCH // ranks), []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        shards = [
            BatchSamplerShard(sampler, ranks, rank, even_batches=False) for rank in range(ranks)
        ]
        shares = list(zip(*(list(shard) for shard in shards), strict=True))
        assert {len(shard) for shard in shards} == {len(shares)}
        steps += [list(step) for step in shares]
    return steps


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_shares_of_all_ranks_are_the_batch_of_one(
    name: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    single, several = (batches_of(name, number, monkeypatch) for number in (1, ranks))
    assert len(single) == len(several) > 4
    for (whole,), shares in zip(single, several, strict=True):
        assert sorted(row for share in shares for row in share) == sorted(whole) and all(shares)


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_are_new_in_every_epoch_and_the_same_for_one_seed(name: str) -> None:
    def batches(seed: int, epoch: int) -> str:
        sampler = SAMPLERS[name](4)
        sampler.seed = seed
        sampler.set_epoch(epoch)
        drawn = list(sampler)
        assert len(drawn) == len(sampler)
        return str(drawn)

    seeds = (
        (0,) if name == "in turn" else (0, 1)
    )  # there the samplers of the data sets alone have seeds
    assert batches(0, 3) == batches(0, 3)
    assert len({batches(seed, epoch) for seed in seeds for epoch in (0, 1, 2)}) == 3 * len(seeds)


@pytest.mark.parametrize("ranks", [2, 3])
def test_windows_and_blocks_stay_together_and_ranks_read_about_as_much(
    ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = np.array(tiny.documents(30, 5)["document"])
    for share in (
        share for shares in batches_of("windows", ranks, monkeypatch) for share in shares
    ):
        centres, contexts = np.split(np.array(share), 2)
        assert (document[centres] == document[contexts]).all() and (centres != contexts).all()
    document, position = np.array(RAGGED["document"]), np.array(RAGGED["position"])
    for shares in batches_of("blocks", ranks, monkeypatch):
        assert max(map(len, shares)) - min(map(len, shares)) <= 2 * 4
        documents = [set(document[share]) for share in shares]
        assert sum(map(len, documents)) == len(set.union(*documents))
        for share, numbers in zip(shares, documents, strict=True):
            blocks_of_share = [
                np.sort(position[share][document[share] == number]) for number in numbers
            ]
            assert all(
                (np.diff(block) == 1).all() and 2 <= len(block) <= 4 for block in blocks_of_share
            )


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
    assert row_ranges_by_rank(np.array(lengths), 3) == shares
