from __future__ import annotations

import pytest
import torch

from st_xlret.calibration.statistics import Affine, distance_between_means, moments_of, scale_map, shift_map


def test_moments_equal_the_definitions_in_any_chunks() -> None:
    rows = torch.randn(37, 3) + 100
    moments = moments_of(rows, "en", chunk_size=5)
    exact = rows.double()
    mean = exact.sum(0) / 37
    torch.testing.assert_close(moments.mean, mean)
    torch.testing.assert_close(moments.standard_deviation, ((exact - mean) ** 2).mean(0).sqrt())
    torch.testing.assert_close(
        moments.second_moment, sum(torch.outer(row, row) for row in exact) / 37, rtol=1e-9, atol=1e-9
    )


def test_moments_follow_an_affine_map() -> None:
    rows = torch.randn(50, 3, dtype=torch.float64)
    step = Affine(torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    predicted, measured = moments_of(rows, "en").after(step), moments_of(step(rows), "en")
    torch.testing.assert_close(predicted.mean, measured.mean)
    torch.testing.assert_close(predicted.covariance, measured.covariance)


def test_maps_compose() -> None:
    first, second = (
        Affine(torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)) for _ in range(2)
    )
    rows = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(first.then(second)(rows), second(first(rows)))


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_shift_moves_by_part_of_the_mean(strength: float) -> None:
    rows = torch.randn(20, 3).double() + 2
    torch.testing.assert_close(shift_map(moments_of(rows, "en"), strength)(rows), rows - strength * rows.mean(dim=0))


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_scale_divides_by_the_population_s_spread(strength: float) -> None:
    rows = torch.randn(20, 3).double() * torch.tensor([1.0, 5.0, 0.1])
    moments = moments_of(rows, "en")
    deviation = rows.std(dim=0, correction=0)
    torch.testing.assert_close(scale_map(moments, "en", strength)(rows), rows / deviation**strength)
    torch.testing.assert_close(
        scale_map(moments, "en", strength, scale_by="variance")(rows), rows / (deviation**2) ** strength
    )


def test_a_constant_dimension_does_not_explode() -> None:
    rows = torch.randn(200, 3)
    rows[:, 1] = 7.0
    step = scale_map(moments_of(rows, "en"), "en", floor=0.01)
    typical = float((rows.double().var(dim=0, correction=0).mean()).sqrt())
    assert float(step.weight[1, 1]) == pytest.approx(1 / (0.01 * typical))
    assert torch.isfinite(step(rows)).all()


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="'sw' has 3 sentences.*at least 50"):
        moments_of(torch.ones(3, 2), "sw", min_sentences=50)
    with pytest.raises(ValueError, match="'sw' contain NaN"):
        moments_of(torch.tensor([[1.0], [float("nan")]]), "sw")
    with pytest.raises(ValueError, match=r"'sw' must be .*\(4,\)"):
        moments_of(torch.ones(4), "sw")
    same = moments_of(torch.ones(4, 2), "sw")
    with pytest.raises(ValueError, match="all 4 embeddings of 'sw' are the same"):
        scale_map(same, "sw")
    with pytest.raises(ValueError, match="got 'range'"):
        scale_map(same, "sw", scale_by="range")  # type: ignore[arg-type]


def test_distance_between_means_is_the_mean_over_pairs() -> None:
    means = {"a": torch.tensor([0.0]), "b": torch.tensor([1.0]), "c": torch.tensor([4.0])}
    assert distance_between_means(means) == pytest.approx((1 + 4 + 3) / 3)
    assert distance_between_means({"a": torch.tensor([3.0])}) == 0.0
