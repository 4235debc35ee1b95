"""mine_bitext against a mining program written pair by pair from the definition, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from st_xlret.search import csls_scores, mine_bitext, mine_pairs

Pairs = list[tuple[float, int, int]]


def naive_mining(source: Any, target: Any, k: int, margin: str) -> Pairs:
    x, y = (np.asarray(side, dtype=np.float64) for side in (source, target))
    cosine = [[float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))) for b in y] for a in x]

    def nearest(similarities: list[float]) -> list[int]:
        return sorted(range(len(similarities)), key=lambda other: (-similarities[other], other))[:k]

    columns = [[row[j] for row in cosine] for j in range(len(y))]
    forward, backward = [nearest(row) for row in cosine], [nearest(column) for column in columns]
    forward_mean = [sum(cosine[i][j] for j in near) / len(near) for i, near in enumerate(forward)]
    backward_mean = [sum(cosine[i][j] for i in near) / len(near) for j, near in enumerate(backward)]

    def score(i: int, j: int) -> float:
        mean = (forward_mean[i] + backward_mean[j]) / 2
        cos = cosine[i][j]
        return {"ratio": cos / mean, "distance": cos - mean, "absolute": cos, "csls": 2 * cos - 2 * mean}[margin]

    candidates = [max((score(i, j), i, -j) for j in near) for i, near in enumerate(forward)]
    candidates += [max((score(i, j), -i, -j) for i in near) for j, near in enumerate(backward)]
    used_source, used_target, pairs = set(), set(), []
    for value, i, j in sorted(((v, abs(i), abs(j)) for v, i, j in candidates), key=lambda c: (-c[0], c[1], c[2])):
        if i not in used_source and j not in used_target:
            used_source.add(i)
            used_target.add(j)
            pairs.append((value, i, j))
    return pairs


def bitext(rows: int, others: int, dimension: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Translations among sentences without one, on either side."""
    generator = torch.manual_seed(seed)
    shared = torch.randn(rows, dimension, generator=generator) + 0.5
    extra = torch.randn(2 * others, dimension, generator=generator) + 0.5
    source = torch.cat([shared, extra[:others]])
    target = torch.cat([shared + noise * torch.randn(rows, dimension, generator=generator), extra[others:]])
    return source[torch.randperm(len(source), generator=generator)], target * torch.rand(len(target), 1) * 5


@pytest.mark.parametrize("margin", ["ratio", "distance", "absolute", "csls"])
@pytest.mark.parametrize(("k", "dimension"), [(1, 5), (4, 24), (4, 768), (200, 24)])
def test_equals_mining_pair_by_pair(margin: Any, k: int, dimension: int) -> None:
    source, target = bitext(60, 17, dimension, 0.8, seed=k)
    expected = naive_mining(source, target, k, margin)
    found = {(i, j): score for score, i, j in mine_bitext(source, target, k=k, margin=margin, block_size=32)}
    assert len(found) == len(expected) and list(found.values()) == sorted(found.values(), reverse=True)
    for score, i, j in expected:
        assert found[i, j] == pytest.approx(score, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (9, 1), (3, 40)])
def test_uneven_sides(sizes: tuple[int, int]) -> None:
    generator = torch.manual_seed(3)
    source, target = (torch.rand(rows, 6, generator=generator) for rows in sizes)
    found, expected = mine_bitext(source, target), naive_mining(source, target, 4, "ratio")
    assert [(i, j) for _, i, j in found] == [(i, j) for _, i, j in expected]
    assert len(found) <= min(sizes)


def test_each_row_is_in_one_pair_and_the_best_come_first() -> None:
    found = mine_bitext(*bitext(100, 60, 12, 1.5, seed=1))
    scores, rows, columns = zip(*found, strict=True)
    assert list(scores) == sorted(scores, reverse=True)
    assert len(set(rows)) == len(rows) and len(set(columns)) == len(columns)
    assert isinstance(scores[0], float) and isinstance(rows[0], int) and isinstance(columns[0], int)


def test_translations_are_found_among_others() -> None:
    generator = torch.manual_seed(0)
    shared = torch.randn(50, 64, generator=generator)
    source = torch.cat([shared, torch.randn(150, 64, generator=generator)])
    target = torch.cat([shared + 0.3 * torch.randn(50, 64, generator=generator), torch.randn(150, 64)])
    assert sorted((i, j) for _, i, j in mine_bitext(source, target)[:50]) == [(i, i) for i in range(50)]


def test_csls_is_the_csls_of_the_neighbours_module() -> None:
    source, target = bitext(20, 5, 8, 0.5, seed=2)
    every = torch.cat([scores for _, scores in csls_scores(source, target, 4)])
    for score, i, j in mine_bitext(source, target, margin="csls"):
        assert score == pytest.approx(float(every[i, j]), abs=1e-5)


def test_copies_are_rows_of_their_own() -> None:
    source = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = mine_bitext(source, source.flip(0), k=1)
    assert [(i, j) for _, i, j in found] == [(0, 1), (2, 0)]  # the other copy's only candidate is taken
    assert [score for score, _, _ in found] == [1.0, 1.0]


def test_equal_scores_go_to_the_lower_rows() -> None:
    found = mine_bitext(torch.eye(4)[[3, 1, 0, 2]], torch.eye(4), k=2)
    assert [(i, j) for _, i, j in found] == [(0, 3), (1, 1), (2, 0), (3, 2)]


def test_threshold_leaves_out_what_scores_below_it() -> None:
    source, target = bitext(30, 10, 12, 1.0, seed=4)
    everything = mine_bitext(source, target)
    limit = everything[12][0]
    assert mine_bitext(source, target, threshold=limit) == everything[:13]


@pytest.mark.parametrize("shape", [((0, 3), (5, 3)), ((5, 3), (0, 3)), ((0, 3), (0, 3))])
def test_nothing_is_mined_from_nothing(shape: Any) -> None:
    assert mine_bitext(torch.ones(shape[0]), torch.ones(shape[1])) == []


def test_rows_of_zeros_score_zero() -> None:
    assert mine_bitext(torch.zeros(2, 3), torch.zeros(1, 3)) == [(0.0, 0, 0)]


def test_half_precision_memory_maps(tmp_path: Path) -> None:
    source, target = (side.numpy().astype(np.float16) for side in bitext(40, 10, 16, 0.5, seed=5))
    for name, side in (("source", source), ("target", target)):
        np.save(tmp_path / f"{name}.npy", side)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("source", "target")]
    found, expected = mine_bitext(*mapped, block_size=16), naive_mining(source, target, 4, "ratio")
    assert [(i, j) for _, i, j in found] == [(i, j) for _, i, j in expected]
    np.testing.assert_allclose([score for score, _, _ in found], [score for score, _, _ in expected], atol=1e-6)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="margin must be one of .*'ratio'.*, got 'rato'"):
        mine_bitext(torch.ones(1, 1), torch.ones(1, 1), margin="rato")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="target row 1 holds NaN"):
        mine_bitext(torch.ones(1, 1), torch.tensor([[1.0], [float("nan")]]))
    with pytest.raises(ValueError, match="source row 0 holds NaN"):
        mine_bitext(torch.full((1, 1), float("nan")), torch.ones(2, 1))


class OnDisk:
    """A matrix that can be read by slices only, as the embeddings of a cache."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.shape = rows.half().numpy(), tuple(rows.shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> np.ndarray:
        assert part.step is None and part.stop - part.start <= 65_536
        return self.rows[part]


@pytest.mark.parametrize("approximate", [False, True])
def test_rows_on_disk_give_the_pairs_of_rows_in_memory(approximate: bool) -> None:
    source, target = bitext(60, 30, 24, 0.8, seed=5)
    expected = mine_bitext(source.half(), target.half())
    found = mine_pairs(OnDisk(source), OnDisk(target), approximate=approximate, block_size=16)
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == [(i, j) for _, i, j in expected]
    torch.testing.assert_close(found.scores, torch.tensor([score for score, _, _ in expected]))


def test_candidates_are_the_same_in_any_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = bitext(60, 30, 24, 0.8, seed=6)
    expected = mine_bitext(*sides)
    monkeypatch.setattr("st_xlret.search.mining._BLOCK", 7)
    assert mine_bitext(*sides) == expected


@pytest.mark.parametrize("approximate", [False, True])
def test_an_empty_side_has_no_pairs(approximate: bool) -> None:
    found = mine_pairs(torch.rand(3, 4), torch.empty(0, 4), approximate=approximate)
    assert [len(column) for column in found] == [0, 0, 0]


@pytest.mark.parametrize("rows", [[[1.0]], torch.rand(3), OnDisk(torch.rand(3))])
def test_what_is_no_matrix_is_refused(rows: Any) -> None:
    for approximate in (False, True):
        with pytest.raises(ValueError, match="source"):
            mine_pairs(rows, torch.rand(3, 2), approximate=approximate)
