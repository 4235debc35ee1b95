"""Each step against the formula of its paper."""

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import steps
from st_xlret.calibration.steps import (
    Maps,
    Moments,
    coral,
    lir,
    lsar,
    recolouring_matrices,
    scale,
    shift,
    to_pivot,
)
from tests.calibration.clouds import clouds

ROWS = clouds()
MOMENTS = Moments.of_rows(ROWS, covariances=True)
COMMON = MOMENTS.means.mean(axis=0)
STRENGTHS = [0.0, 0.3, 1.0]


def apply(maps: Maps, rows: NDArray, number: int) -> NDArray:
    matrix, offset = maps.of_language(number)
    mapped = rows + offset
    if matrix is not None:
        mapped = mapped + rows @ matrix.T
    return mapped


def check_moments(moments: Moments, number: int, vectors: NDArray) -> None:
    covariance = np.cov(vectors.T, bias=True)
    np.testing.assert_allclose(moments.means[number], vectors.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(moments.covariances[number], covariance, atol=1e-9)


def test_moments_equal_the_definitions_and_follow_maps() -> None:
    generator = np.random.default_rng(1)
    matrix = generator.normal(size=(4, 12, 12))
    maps = Maps(matrix, generator.normal(size=(4, 12)))
    for number, rows in enumerate(ROWS.values()):
        check_moments(MOMENTS, number, rows)
        check_moments(MOMENTS.after(maps), number, apply(maps, rows, number))


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shift_takes_the_mean_but_for_a_part_of_the_common_one(strength: float) -> None:
    maps = shift(MOMENTS, strength, COMMON, 0.25)
    for number, rows in enumerate(ROWS.values()):
        expected = rows - strength * (rows.mean(axis=0) - 0.25 * COMMON)
        np.testing.assert_allclose(apply(maps, rows, number), expected, atol=1e-10)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_to_pivot_moves_to_the_mean_of_the_pivot(strength: float) -> None:
    maps = to_pivot(MOMENTS, strength, 1)
    for number, rows in enumerate(ROWS.values()):
        difference = ROWS["en"].mean(axis=0) - rows.mean(axis=0)
        expected = rows + strength * difference
        np.testing.assert_allclose(apply(maps, rows, number), expected, atol=1e-10)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_scale_divides_by_the_standard_deviation(strength: float) -> None:
    maps = scale(MOMENTS, strength)
    for number, rows in enumerate(ROWS.values()):
        expected = rows / rows.std(axis=0) ** strength
        np.testing.assert_allclose(apply(maps, rows, number), expected, atol=1e-10)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_lir_takes_the_top_components(strength: float) -> None:
    maps = lir(MOMENTS, strength, 2)
    for number, rows in enumerate(ROWS.values()):
        top = np.linalg.svd(rows)[2][:2]
        expected = rows - strength * rows @ top.T @ top
        np.testing.assert_allclose(apply(maps, rows, number), expected, atol=1e-10)


def published_lsar(means: NDArray, rank: int) -> NDArray:
    """The published algorithm, step by step: means (d, L) to a basis (d, rank) of the subspace."""
    languages = means.shape[1]
    ones = np.ones((languages, 1))
    centre = means @ ones / languages
    left, singular, right = np.linalg.svd(means - centre @ ones.T, full_matrices=False)
    low_rank = centre @ ones.T + left[:, :rank] * singular[:rank] @ right[:rank]
    foot = np.linalg.pinv(low_rank, rcond=1e-10).T @ ones
    nearest = foot / np.linalg.norm(foot) ** 2
    basis = np.linalg.svd(low_rank - nearest @ ones.T, full_matrices=False)[0]
    return basis[:, :rank]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lsar_equals_the_published_algorithm(rank: int) -> None:
    basis = published_lsar(MOMENTS.means.T, rank)
    maps = lsar(MOMENTS, 1.0, COMMON, 1.0, rank)
    for number, rows in enumerate(ROWS.values()):
        expected = rows - rows @ basis @ basis.T
        np.testing.assert_allclose(apply(maps, rows, number), expected, atol=1e-10)


def test_lsar_of_equal_means_changes_nothing() -> None:
    same = lsar(Moments(np.ones((4, 12))), 1.0, np.ones(12), 1.0).matrix
    assert same is not None
    assert not same.any()


@pytest.mark.parametrize(("ridge", "shrink"), [(1.0, 0.5), (1e-9, 0.0)])
def test_coral_gives_the_ridged_and_shrunk_covariance_and_keeps_the_mean(
    ridge: float, shrink: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RIDGE", ridge)
    monkeypatch.setattr(steps, "SHRINK", shrink)
    average = MOMENTS.covariances.mean(axis=0)
    added = ridge * np.trace(average) / 12 * np.eye(12)
    recoloured = recolouring_matrices(MOMENTS.covariances)
    maps = coral(MOMENTS, 0.4, recoloured)
    for number, rows in enumerate(ROWS.values()):
        matrix = recoloured[number]
        shrunk = (1 - shrink) * MOMENTS.covariances[number] + shrink * average
        coloured = matrix @ (shrunk + added) @ matrix.T
        np.testing.assert_allclose(coloured, average + added, atol=1e-8)

        centred = rows - rows.mean(axis=0)
        expected = rows.mean(axis=0) + 0.6 * centred + 0.4 * centred @ matrix.T
        np.testing.assert_allclose(apply(maps, rows, number), expected, atol=1e-10)


def test_a_constant_dimension_is_not_divided_by_zero() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[:, 1] = 7
    moments = Moments.of_rows({"en": rows, "fr": np.ones((4, 3))}, covariances=True)
    matrix = scale(moments, 1.0).matrix
    assert matrix is not None
    typical = np.sqrt(rows.var(axis=0).mean())
    assert 1 + matrix[0, 1, 1] == pytest.approx(1 / (0.01 * typical))
    assert not matrix[1].any()
