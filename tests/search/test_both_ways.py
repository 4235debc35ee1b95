from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from st_xlret.search import neighbours_both_ways


def naive(source: torch.Tensor, target: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    cosines = F.normalize(source.double(), dim=1) @ F.normalize(target.double(), dim=1).T
    order = cosines.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return cosines.gather(1, order), order


@pytest.mark.parametrize("block_size", [5, 32, 64, None])
@pytest.mark.parametrize("k", [1, 4, 10, 100])
def test_equals_two_sorts(block_size: int | None, k: int) -> None:
    generator = torch.manual_seed(k)
    source, target = 3 * torch.randn(53, 6, generator=generator), torch.randn(131, 6, generator=generator)
    found = neighbours_both_ways(source, target, k, block_size=block_size)
    for (one, other), scores, rows in (
        ((source, target), found.forward_scores, found.forward),
        ((target, source), found.backward_scores, found.backward),
    ):
        expected_scores, expected = naive(one, other, k)
        assert torch.equal(rows, expected)
        torch.testing.assert_close(scores.double(), expected_scores, atol=1e-6, rtol=0)


def test_one_product_serves_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[int] = []
    multiply = np.matmul

    def counted(one: np.ndarray, other: np.ndarray, *, out: np.ndarray) -> np.ndarray:
        products.append(out.size)
        return multiply(one, other, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    neighbours_both_ways(torch.randn(130, 4), torch.randn(50, 4), 3, block_size=20)
    assert sum(products) == 130 * 50 and max(products) == 40 * 20


def test_equal_cosines_go_to_the_lower_row() -> None:
    source = torch.eye(3).repeat(40, 1)
    found = neighbours_both_ways(source, torch.eye(3).repeat(50, 1), 5, block_size=32)
    assert found.forward[1].tolist() == [1, 4, 7, 10, 13]
    assert found.backward[2].tolist() == [2, 5, 8, 11, 14]


def test_memory_maps_of_half_precision_and_rows_of_zeros(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float16)
    vectors[7] = 0
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    found = neighbours_both_ways(mapped, mapped, 1, block_size=9)
    others = [row for row in range(40) if row != 7]
    assert found.forward[others, 0].tolist() == others
    assert found.forward_scores[7].tolist() == [0.0] and found.forward[7].tolist() == [0]


def test_sides_without_rows() -> None:
    found = neighbours_both_ways(torch.ones(0, 3), torch.ones(5, 3), 2)
    assert [tuple(part.shape) for part in found] == [(0, 2), (0, 2), (5, 0), (5, 0)]
    assert found.backward.dtype == torch.int64


def test_very_long_and_very_short_vectors_have_cosines_too() -> None:
    source, target = torch.tensor([[3e38, 3e38], [1e-20, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    found = neighbours_both_ways(source, target, 1)
    assert found.forward.T.tolist() == [[0, 1]]
    torch.testing.assert_close(found.forward_scores, torch.ones(2, 1))


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 4), {}, r"\(2, 3\) and \(2, 4\)"),
        (torch.ones(2), torch.ones(2, 4), {}, "source must have shape"),
        (torch.ones(2, 3), [[1.0]], {}, "target must be a NumPy array or a tensor, got list"),
        (torch.ones(2, 3), torch.ones(2, 3), {"k": 0}, "k must be at least 1, got 0"),
        (torch.ones(2, 3), torch.ones(2, 3), {"block_size": 0}, "block_size must be at least 1, got 0"),
        (torch.ones(2, 1), torch.tensor([[1.0], [1.0], [float("nan")]]), {"block_size": 2}, "target row 2 holds NaN"),
        (torch.tensor([[1.0], [float("inf")]]), torch.ones(2, 1), {}, "source row 1 holds NaN or infinite"),
    ],
)
def test_bad_input_is_named(source, target, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        neighbours_both_ways(source, target, **{"k": 1, **options})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_what_the_cpu_gives() -> None:
    generator = torch.manual_seed(0)
    source, target = torch.randn(300, 16, generator=generator), torch.randn(400, 16, generator=generator)
    on_cpu, on_gpu = (neighbours_both_ways(source, target, 4, device=device) for device in ("cpu", "cuda"))
    assert torch.equal(on_gpu.forward.cpu(), on_cpu.forward) and torch.equal(on_gpu.backward.cpu(), on_cpu.backward)
