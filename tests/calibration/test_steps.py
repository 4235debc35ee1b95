from __future__ import annotations

import pytest
import torch

from st_xlret.calibration.steps import Affine, coral_map, lir_map, lsar_map, moments_of, scale_map, shift_map


def test_moments_equal_the_definitions_in_any_chunks() -> None:
    rows = torch.randn(37, 3) + 100
    moments = moments_of(rows, "en", chunk_size=5)
    exact = rows.double()
    mean = exact.sum(0) / 37
    torch.testing.assert_close(moments.mean, mean)
    torch.testing.assert_close(moments.variance, ((exact - mean) ** 2).mean(0))
    covariance = sum(torch.outer(row - mean, row - mean) for row in exact) / 37
    torch.testing.assert_close(moments.covariance, covariance, rtol=1e-9, atol=1e-9)


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
    with pytest.raises(ValueError, match="'sw' has 3 texts.*at least 50"):
        moments_of(torch.ones(3, 2), "sw", min_texts=50)
    with pytest.raises(ValueError, match="'sw' contain NaN"):
        moments_of(torch.tensor([[1.0], [float("nan")]]), "sw")
    with pytest.raises(ValueError, match=r"'sw' must be .*\(4,\)"):
        moments_of(torch.ones(4), "sw")
    same = moments_of(torch.ones(4, 2), "sw")
    with pytest.raises(ValueError, match="all 4 embeddings of 'sw' are the same"):
        scale_map(same, "sw")
    with pytest.raises(ValueError, match="got 'range'"):
        scale_map(same, "sw", scale_by="range")  # type: ignore[arg-type]


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
def test_lir_removes_the_leading_singular_vectors(components: int, strength: float) -> None:
    rows = torch.randn(40, 5, dtype=torch.float64) * torch.tensor([5.0, 3.0, 1.0, 1.0, 1.0]) + 0.5
    right = torch.linalg.svd(rows).Vh[:components]
    expected = rows.clone()
    for direction in right:
        for i in range(len(rows)):
            expected[i] -= strength * (rows[i] @ direction) * direction
    mapped = lir_map(moments_of(rows, "en"), components, strength)(rows)
    torch.testing.assert_close(mapped, expected)


def test_lir_without_components_is_the_identity() -> None:
    rows = torch.randn(40, 5)
    torch.testing.assert_close(lir_map(moments_of(rows, "en"), 0)(rows), rows)


def naive_lsar(means: torch.Tensor, rank: int) -> torch.Tensor:
    """The published algorithm, step by step: means (d, L) to a basis (d, rank) of the subspace."""
    ones = torch.ones(means.shape[1], 1, dtype=means.dtype)
    centre = means @ ones / means.shape[1]
    left, singular, right = torch.linalg.svd(means - centre @ ones.T, full_matrices=False)
    low_rank = centre @ ones.T + left[:, :rank] @ torch.diag(singular[:rank]) @ right[:rank]
    pseudo = torch.linalg.pinv(low_rank, rtol=1e-10)
    foot = pseudo.T @ ones
    foot = foot / (foot.norm() ** 2)
    return torch.linalg.svd(low_rank - foot @ ones.T, full_matrices=False).U[:, :rank]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lsar_equals_the_published_algorithm(rank: int) -> None:
    means = torch.randn(6, 4, dtype=torch.float64) + 1
    basis = naive_lsar(means, rank)
    rows = torch.randn(9, 6, dtype=torch.float64)
    torch.testing.assert_close(lsar_map(list(means.T), rank)(rows), rows - rows @ basis @ basis.T)


def test_after_lsar_all_languages_have_one_mean() -> None:
    means = list(torch.randn(4, 6, dtype=torch.float64))
    mapped = lsar_map(means)(torch.stack(means))
    torch.testing.assert_close(mapped, mapped[:1].expand(4, 6))


def test_lsar_of_one_language_is_the_identity() -> None:
    rows = torch.randn(3, 6)
    torch.testing.assert_close(lsar_map([torch.randn(6)])(rows), rows)


def test_lsar_of_equal_means_is_the_identity() -> None:
    rows = torch.randn(3, 6)
    torch.testing.assert_close(lsar_map([torch.ones(6)] * 4)(rows), rows)


def test_bad_sizes_of_removals_are_named() -> None:
    with pytest.raises(ValueError, match="between 0 and 2, got 3"):
        lir_map(moments_of(torch.randn(9, 3), "en"), 3)
    with pytest.raises(ValueError, match="= 1, got 2"):
        lsar_map([torch.ones(3), torch.zeros(3)], 2)
    with pytest.raises(ValueError, match="5 languages differ in all 3 dimensions"):
        lsar_map(list(torch.randn(5, 3)))


def test_lsar_keeps_a_share_of_the_common_mean() -> None:
    rows = {"en": torch.randn(50, 6, dtype=torch.float64) + 2, "fr": torch.randn(50, 6, dtype=torch.float64) - 1}
    means = [cloud.mean(dim=0) for cloud in rows.values()]
    mapped = lsar_map(means, keep_mean=0.25)
    common = torch.stack(means).mean(dim=0)
    plain = lsar_map(means)
    torch.testing.assert_close(mapped(rows["en"]), plain(rows["en"] - 0.75 * common))
    torch.testing.assert_close(lsar_map(means, strength=0.0, keep_mean=0.25)(rows["en"]), rows["en"])


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_coral_gives_the_covariance_asked_for_and_keeps_the_mean(strength: float) -> None:
    rows = torch.randn(200, 4, dtype=torch.float64) @ torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0]).double()) + 5
    moments, target = moments_of(rows, "en"), torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0]).double())
    mapped = coral_map(moments, target, ridge=1e-9, shrink=0, strength=strength)(rows)
    torch.testing.assert_close(mapped.mean(dim=0), rows.mean(dim=0))
    if strength == 1:
        torch.testing.assert_close(torch.cov(mapped.T, correction=0), target, rtol=1e-6, atol=1e-6)
    if strength == 0:
        torch.testing.assert_close(mapped, rows)


def test_coral_with_much_ridge_changes_little() -> None:
    rows = torch.randn(50, 4, dtype=torch.float64) * 3
    moments = moments_of(rows, "en")
    torch.testing.assert_close(
        coral_map(moments, torch.eye(4, dtype=torch.float64), ridge=1e9)(rows), rows, rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="ridge must be positive, got 0"):
        coral_map(moments, torch.eye(4, dtype=torch.float64), ridge=0)
