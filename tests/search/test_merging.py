from __future__ import annotations

import pytest
import torch

from st_xlret.search import merge_top_k, merge_top_k_across_ranks, top_k

from .test_top_k import small_integers


@pytest.mark.parametrize("bounds", [[0, 60], [0, 1, 59, 60], [0, 20, 40, 60], [0, 3, 6, 9, 60]])
def test_shards_merge_into_the_whole(bounds: list[int]) -> None:
    queries, corpus = small_integers(8, 3, seed=1), small_integers(60, 3, seed=2)
    parts = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        parts.append(top_k(queries, corpus[start:end], min(7, end - start), first_row=start))
    for order in (parts, parts[::-1]):
        scores, indices = merge_top_k(order, 7)
        expected_scores, expected = top_k(queries, corpus, 7)
        assert torch.equal(scores, expected_scores) and torch.equal(indices, expected)


def test_a_shard_without_rows_gives_nothing() -> None:
    nothing = torch.empty(2, 0), torch.empty(2, 0, dtype=torch.int64)
    part = top_k(torch.ones(2, 1), torch.ones(3, 1), 2)
    assert merge_top_k([nothing, part], 2)[1].tolist() == [[0, 1], [0, 1]]


def test_without_a_process_group_it_is_the_result_itself() -> None:
    part = top_k(torch.ones(2, 1), torch.ones(3, 1), 3)
    assert merge_top_k_across_ranks(*part, 2)[1].tolist() == [[0, 1], [0, 1]]


def test_bad_parts_are_named() -> None:
    part = top_k(torch.ones(2, 1), torch.ones(3, 1), 2)
    with pytest.raises(ValueError, match="k=5 of 4 results from 2 shards"):
        merge_top_k([part, part], 5)
    with pytest.raises(ValueError, match=r"\[1, 2\] queries"):
        merge_top_k([part, (part[0][:1], part[1][:1])], 1)
    with pytest.raises(ValueError, match="k=1 of 0 results"):
        merge_top_k([], 1)
