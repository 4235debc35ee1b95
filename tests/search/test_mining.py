"""Mining against a program written from the definitions, pair by pair, in double precision."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from st_xlret.search import MinedPairs, mine_bitext, mine_pairs
from tests.search.integers import best_first, set_blocks

Pair = tuple[float, int, int]


def mean_of_highest(rows: np.ndarray, k: int) -> np.ndarray:
    ascending = np.sort(rows, axis=1)
    return ascending[:, -k:].mean(axis=1)


def naive_margins(cosine: np.ndarray, k: int, margin: str) -> np.ndarray:
    """The score of every source row with every target row."""
    counted = cosine
    if margin == "ratio":
        counted = np.maximum(cosine, 0.0)
    of_rows = mean_of_highest(counted, k)
    of_columns = mean_of_highest(counted.T, k)
    mean = (of_rows[:, None] + of_columns) / 2
    scores = {
        "ratio": cosine / mean,
        "distance": cosine - mean,
        "absolute": cosine,
        "csls": 2 * (cosine - mean),
    }
    return scores[margin]


def unit_rows(rows: Any) -> np.ndarray:
    matrix = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / lengths


def naive_mining(source: Any, target: Any, k: int, margin: str) -> list[Pair]:
    cosine = unit_rows(source) @ unit_rows(target).T
    score = naive_margins(cosine, k, margin)
    candidates = []
    for i, near in enumerate(best_first(cosine)):
        candidates.append(min((-score[i, j], i, j) for j in near[:k]))
    for j, near in enumerate(best_first(cosine.T)):
        candidates.append(min((-score[i, j], i, j) for i in near[:k]))

    sources = set()
    targets = set()
    pairs = []
    for negative, i, j in sorted(candidates):
        if i not in sources and j not in targets:
            sources.add(i)
            targets.add(j)
            pairs.append((-negative, i, j))
    return pairs


def rows_of(pairs: MinedPairs) -> list[tuple[int, int]]:
    sources = pairs.source.tolist()
    targets = pairs.target.tolist()
    return list(zip(sources, targets, strict=True))


def without_scores(pairs: list[Pair]) -> list[tuple[int, int]]:
    return [(i, j) for _, i, j in pairs]


def scores_of(pairs: list[Pair]) -> list[float]:
    return [score for score, _, _ in pairs]


def bitext(
    rows: int, others: int, dimension: int, noise: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Translations among sentences without one, on either side."""
    generator = torch.manual_seed(seed)
    shared = torch.randn(rows, dimension, generator=generator) + 0.5
    extra = torch.randn(2 * others, dimension, generator=generator) + 0.5
    drift = torch.randn(rows, dimension, generator=generator)
    translated = shared + noise * drift
    source = torch.cat([shared, extra[:others]])
    target = torch.cat([translated, extra[others:]])
    order = torch.randperm(len(source), generator=generator)
    lengths = 5 * torch.rand(len(target), 1, generator=generator)
    return source[order], target * lengths


@pytest.mark.parametrize("margin", ["ratio", "distance", "absolute", "csls"])
@pytest.mark.parametrize(
    ("k", "dimension", "block"), [(1, 5, 7), (4, 24, 32), (4, 768, 1000), (200, 24, 16)]
)
def test_mining_equals_mining_pair_by_pair(
    margin: Any, k: int, dimension: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_blocks(monkeypatch, block)
    source, target = bitext(60, 17, dimension, 0.8, seed=k)
    expected = naive_mining(source, target, k, margin)
    mined = mine_bitext(source, target, k=k, margin=margin)
    scores = scores_of(mined)
    assert scores == pytest.approx(scores_of(expected), abs=1e-6, rel=1e-6)
    assert set(without_scores(mined)) == set(without_scores(expected))

    threshold = scores[12]
    above = mine_bitext(source, target, k=k, margin=margin, threshold=threshold)
    assert above == [pair for pair in mined if pair[0] >= threshold]


@pytest.mark.parametrize("seed", range(20))
def test_a_ratio_is_bounded_where_cosines_are_of_either_sign(seed: int) -> None:
    source, target = torch.randn(2, 5, 16, generator=torch.manual_seed(seed))
    scores = mine_pairs(source, target).scores
    assert len(scores) > 0
    assert float(scores.max()) <= 8


@pytest.mark.parametrize(
    ("source", "target", "k"),
    [
        (torch.eye(2), -torch.eye(2), 1),
        (torch.eye(1, 3), -torch.eye(1, 3), 4),
        (torch.zeros(2, 3), torch.zeros(1, 3), 4),
    ],
)
def test_where_the_mean_of_the_cosines_is_not_positive_a_pair_scores_zero(
    source: Tensor, target: Tensor, k: int
) -> None:
    scores = mine_pairs(source, target, k=k).scores
    assert len(scores) == len(target)
    assert not scores.any()


@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (9, 1), (3, 40)])
def test_uneven_sides(sizes: tuple[int, int]) -> None:
    generator = torch.manual_seed(3)
    source = torch.rand(sizes[0], 6, generator=generator)
    target = torch.rand(sizes[1], 6, generator=generator)
    expected = naive_mining(source, target, 4, "ratio")
    mined = mine_pairs(source, target)
    assert rows_of(mined) == without_scores(expected)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_side_has_no_pairs(sizes: tuple[int, int]) -> None:
    source = torch.rand(sizes[0], 6)
    target = torch.rand(sizes[1], 6)
    pairs = mine_pairs(source, target)
    assert rows_of(pairs) == []


def test_equal_scores_go_to_the_lower_rows() -> None:
    target = torch.eye(4)
    source = target[[3, 1, 0, 2]]
    found = mine_pairs(source, target, k=2)
    assert rows_of(found) == [(0, 3), (1, 1), (2, 0), (3, 2)]


def test_a_copy_whose_only_candidate_is_taken_stays_alone() -> None:
    source = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert mine_bitext(source, source.flip(0), k=1) == [(1.0, 0, 1), (1.0, 2, 0)]


def test_a_row_that_is_not_finite_is_named() -> None:
    target = torch.tensor([[1.0], [1.0], [float("nan")]])
    with pytest.raises(ValueError, match="target row 2"):
        mine_pairs(torch.ones(2, 1), target)


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize(
    "option", [{"margin": "ratios"}, {"margin": None}, {"threshold": float("nan")}]
)
def test_an_option_that_there_is_not_is_named(option: dict[str, Any], rows: int) -> None:
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"{name}={value!r} is no"):
        mine_pairs(torch.eye(rows, 3), torch.eye(3), **option)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_mines_what_the_cpu_mines() -> None:
    source, target = bitext(300, 100, 16, 0.5, seed=0)
    on_gpu = mine_pairs(source, target, device="cuda")
    on_cpu = mine_pairs(source, target, device="cpu")
    assert rows_of(on_gpu) == rows_of(on_cpu)
