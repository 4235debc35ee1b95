"""Search and mining against programs written from the definitions, in double precision."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import st_xlret.search.exact
from st_xlret import search
from st_xlret.search import merge_top_k, mine_bitext, mine_pairs, top_k, unit_rows


def naive_top_k(queries: np.ndarray, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = queries.astype(np.float64) @ corpus.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def small_integers(rows: int, dimension: int, seed: int) -> np.ndarray:
    # Whole numbers: float32 sums are exact, and a range of five values makes ties by the dozen.
    return np.random.default_rng(seed).integers(-2, 3, size=(rows, dimension)).astype(np.float32)


def set_blocks(monkeypatch, rows: int, queries: int = 512) -> None:
    monkeypatch.setattr(search.exact, "_rows_at_once", lambda *_: rows)
    monkeypatch.setattr(search.exact, "_QUERIES_AT_ONCE", queries)
    monkeypatch.setattr(search.exact, "_BLOCK", rows)


def assert_sorted(
    queries: np.ndarray, corpus: np.ndarray, k: int, results: tuple[Tensor, Tensor]
) -> None:
    """Search results are those of a stable sort, to the bit."""
    scores, order = naive_top_k(queries, corpus, k)
    np.testing.assert_array_equal(results[1].numpy(), order)
    np.testing.assert_array_equal(results[0].numpy(), scores)


@pytest.mark.parametrize("k", [1, 30, 203])
@pytest.mark.parametrize("rows", [1, 2, 8, 9])
@pytest.mark.parametrize(
    ("block", "queries_at_once"), [(1, 100), (5, 4), (32, 1), (130, 100), (1000, 100)]
)
def test_top_k_is_a_stable_sort(
    k: int, rows: int, block: int, queries_at_once: int, monkeypatch
) -> None:
    set_blocks(monkeypatch, block, queries_at_once)
    rising = np.arange(203, dtype=np.float32)[:, None]
    any_order = np.random.default_rng(k).permutation(rising)
    for corpus in (
        small_integers(203, 3, seed=2),
        rising,
        rising[::-1].copy(),
        np.ones_like(rising),
        any_order,
    ):
        queries = small_integers(rows, corpus.shape[1], seed=k)
        assert_sorted(queries, corpus, k, top_k(queries, corpus, k))
        assert_sorted(
            queries, corpus, k, top_k(queries, iter(np.split(corpus, [0, 100, 100, 103])), k)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_summed_in_float32_whatever_the_input(dtype: torch.dtype) -> None:
    # In half precision 2048 + 1 would stay 2048.
    scores, indices = top_k(torch.ones(1, 2049, dtype=dtype), torch.ones(3, 2049, dtype=dtype), 2)
    assert scores.dtype == torch.float32 and indices.dtype == torch.int64
    assert scores.tolist() == [[2049.0, 2049.0]]
    assert top_k(torch.empty(0, 3), torch.ones(5, 3), 2)[0].shape == (0, 2)
    zeros_are_equal = top_k(
        torch.ones(1, 1, dtype=dtype), torch.tensor([[-0.0], [0.0], [-1.0], [0.0]]), 4
    )
    assert zeros_are_equal[1].tolist() == [[0, 1, 3, 2]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_memory_maps_chunks_read_only_arrays_and_tensors_that_need_gradients(
    tmp_path: Path, dtype: type
) -> None:
    queries, corpus = small_integers(5, 30, seed=3), small_integers(70, 30, seed=4)
    np.save(tmp_path / "rows.npy", corpus.astype(dtype))
    stored = np.load(tmp_path / "rows.npy", mmap_mode="r")
    weights = torch.from_numpy(corpus.astype(dtype)).requires_grad_()
    for rows in (stored, iter([stored[:30], stored[30:]]), weights, corpus[::-1][::-1]):
        scores, indices = top_k(queries, rows, 6)
        assert (
            np.array_equal(indices.numpy(), naive_top_k(queries, corpus, 6)[1])
            and not scores.requires_grad
        )


@pytest.mark.parametrize(
    ("queries", "corpus", "k", "named"),
    [
        (torch.ones(1, 2), iter([torch.ones(2, 2), torch.ones(1, 2)]), 4, "k=4.*3 rows"),
        (torch.tensor([[1.0], [float("inf")]]), torch.ones(3, 1), 1, "queries row 1"),
        (
            torch.ones(1, 1),
            [torch.ones(3, 1), torch.tensor([[1.0], [float("nan")]])],
            1,
            "corpus row 4",
        ),
        (torch.full((1, 1), -1e30), torch.tensor([[0.0], [1e30]]), 2, "overflow"),
        (torch.tensor([[1e30, -1e30]]), torch.full((3, 2), 1e30), 1, "overflow"),
        (torch.ones(2, 1), torch.tensor([[1.0], [1.0], [float("nan")]]), None, "target row 2"),
    ],
)
def test_what_cannot_be_searched_or_mined_is_named(
    queries: Any, corpus: Any, k: int | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        (mine_pairs if k is None else partial(top_k, k=k))(queries, corpus)


def test_unit_rows_have_length_one_whatever_their_size() -> None:
    rows = torch.tensor([1e-38, 1e-30, 1e-20, 1.0, 1e20, 3e38, 0.0])[:, None].expand(-1, 2)
    torch.testing.assert_close(unit_rows(rows), torch.tensor([[0.5**0.5] * 2] * 6 + [[0.0] * 2]))


def test_shards_merge_into_the_whole() -> None:
    queries, corpus = small_integers(8, 3, seed=1), small_integers(60, 3, seed=2)
    scores, indices = [], []
    for start, end in ((6, 60), (0, 1), (1, 6)):
        best, rows = top_k(queries, corpus[start:end], min(7, end - start))
        scores.append(best)
        indices.append(rows + start)
    assert_sorted(
        queries, corpus, 7, merge_top_k(torch.cat(scores, dim=1), torch.cat(indices, dim=1), 7)
    )


# Mining


def naive_mining(source: Any, target: Any, k: int, margin: str) -> list[tuple[float, int, int]]:
    x, y = (np.asarray(side, dtype=np.float64) for side in (source, target))
    cosine = (x @ y.T) / (np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(y, axis=1))
    forward, backward = (
        np.argsort(-side, axis=1, kind="stable")[:, :k] for side in (cosine, cosine.T)
    )
    counted = np.maximum(cosine, 0.0) if margin == "ratio" else cosine
    forward_mean = [counted[i, near].mean() for i, near in enumerate(forward)]
    backward_mean = [counted[near, j].mean() for j, near in enumerate(backward)]
    mean = np.add.outer(forward_mean, backward_mean) / 2
    scores = {
        "ratio": cosine / mean,
        "distance": cosine - mean,
        "absolute": cosine,
        "csls": 2 * (cosine - mean),
    }
    score = scores[margin]
    candidates = [min((-score[i, j], i, j) for j in near) for i, near in enumerate(forward)]
    candidates += [min((-score[i, j], i, j) for i in near) for j, near in enumerate(backward)]
    used_source, used_target, pairs = set(), set(), []
    for negative, i, j in sorted(candidates):
        if i not in used_source and j not in used_target:
            used_source.add(i)
            used_target.add(j)
            pairs.append((-negative, i, j))
    return pairs


def rows_of(pairs: search.MinedPairs) -> list[tuple[int, int]]:
    return list(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))


def bitext(
    rows: int, others: int, dimension: int, noise: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Translations among sentences without one, on either side."""
    generator = torch.manual_seed(seed)
    shared = torch.randn(rows, dimension, generator=generator) + 0.5
    extra = torch.randn(2 * others, dimension, generator=generator) + 0.5
    source = torch.cat([shared, extra[:others]])
    target = torch.cat(
        [shared + noise * torch.randn(rows, dimension, generator=generator), extra[others:]]
    )
    return source[torch.randperm(len(source), generator=generator)], target * torch.rand(
        len(target), 1
    ) * 5


@pytest.mark.parametrize("margin", ["ratio", "distance", "absolute", "csls"])
@pytest.mark.parametrize(
    ("k", "dimension", "block"), [(1, 5, 7), (4, 24, 32), (4, 768, 1000), (200, 24, 16)]
)
def test_mining_equals_mining_pair_by_pair(
    margin: Any, k: int, dimension: int, block: int, monkeypatch
) -> None:
    set_blocks(monkeypatch, block)
    source, target = bitext(60, 17, dimension, 0.8, seed=k)
    expected, mined = (
        naive_mining(source, target, k, margin),
        mine_bitext(source, target, k=k, margin=margin),
    )
    assert [score for score, _, _ in mined] == pytest.approx(
        [score for score, _, _ in expected], abs=1e-6, rel=1e-6
    )
    assert {(i, j) for _, i, j in mined} == {(i, j) for _, i, j in expected}
    threshold = mined[12][0]
    above = mine_bitext(source, target, k=k, margin=margin, threshold=threshold)
    assert above == [pair for pair in mined if pair[0] >= threshold]


def test_where_the_mean_of_the_cosines_is_not_positive_a_pair_scores_zero() -> None:
    for seed in range(20):
        source, target = torch.randn(2, 5, 16, generator=torch.manual_seed(seed))
        assert all(score <= 8 for score, _, _ in mine_bitext(source, target))
    assert [score for score, _, _ in mine_bitext(torch.eye(2), -torch.eye(2), k=1)] == [0.0, 0.0]
    assert mine_bitext(torch.eye(1, 3), -torch.eye(1, 3)) == [(0.0, 0, 0)]
    assert mine_bitext(torch.zeros(2, 3), torch.zeros(1, 3)) == [(0.0, 0, 0)]


@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (9, 1), (3, 40), (0, 5), (5, 0), (0, 0)])
def test_uneven_sides(sizes: tuple[int, int]) -> None:
    generator = torch.manual_seed(3)
    source, target = (torch.rand(rows, 6, generator=generator) for rows in sizes)
    expected = naive_mining(source, target, 4, "ratio") if all(sizes) else []
    assert rows_of(mine_pairs(source, target)) == [(i, j) for _, i, j in expected]


def test_equal_scores_and_copies_go_to_the_lower_rows() -> None:
    found = mine_bitext(torch.eye(4)[[3, 1, 0, 2]], torch.eye(4), k=2)
    assert [(i, j) for _, i, j in found] == [(0, 3), (1, 1), (2, 0), (3, 2)]
    source = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = mine_bitext(source, source.flip(0), k=1)
    assert found == [(1.0, 0, 1), (1.0, 2, 0)]  # the other copy's only candidate is taken
    copies = search.neighbours_both_ways(
        torch.eye(3).repeat(400, 1), torch.eye(3).repeat(500, 1), 5
    )
    assert (
        copies[0].eq(1).all()
        and copies[2].eq(1).all()
        and copies[3][2].tolist() == [2, 5, 8, 11, 14]
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_what_the_cpu_gives() -> None:
    queries, corpus = small_integers(40, 16, seed=1), small_integers(3_000, 16, seed=2)
    scores, indices = top_k(queries, corpus.astype(np.float16), 20, device="cuda")
    assert scores.is_cuda and np.array_equal(
        indices.cpu().numpy(), naive_top_k(queries, corpus, 20)[1]
    )
    source, target = bitext(300, 100, 16, 0.5, seed=0)
    assert rows_of(mine_pairs(source, target, device="cuda")) == rows_of(
        mine_pairs(source, target, device="cpu")
    )
