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
CLOUDS = list(ROWS.values())
MOMENTS = Moments.of_rows(ROWS, covariances=True)
COMMON = MOMENTS.means.mean(axis=0)
STRENGTHS = [0.0, 0.3, 1.0]


def assert_close(found: NDArray, expected: NDArray) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-9)


def apply(maps: Maps, rows: NDArray, number: int) -> NDArray:
    matrix, offset = maps.of_language(number)
    mapped = rows + offset
    if matrix is not None:
        mapped = mapped + rows @ matrix.T
    return mapped


def check_mapped(maps: Maps, number: int, expected: NDArray) -> None:
    """The vectors of a language after its map."""
    mapped = apply(maps, CLOUDS[number], number)
    assert_close(mapped, expected)


def check_moments(moments: Moments, number: int, vectors: NDArray) -> None:
    covariance = np.cov(vectors.T, bias=True)
    assert_close(moments.means[number], vectors.mean(axis=0))
    assert_close(moments.covariances[number], covariance)


def test_moments_equal_the_definitions_and_follow_maps() -> None:
    generator = np.random.default_rng(1)
    matrix = generator.normal(size=(4, 12, 12))
    offset = generator.normal(size=(4, 12))
    maps = Maps(matrix, offset)
    after = MOMENTS.after(maps)
    for number, rows in enumerate(CLOUDS):
        mapped = apply(maps, rows, number)
        check_moments(MOMENTS, number, rows)
        check_moments(after, number, mapped)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_shift_takes_the_mean_but_for_a_part_of_the_common_one(strength: float) -> None:
    maps = shift(MOMENTS, strength, COMMON, 0.25)
    for number, rows in enumerate(CLOUDS):
        taken = rows.mean(axis=0) - 0.25 * COMMON
        check_mapped(maps, number, rows - strength * taken)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_to_pivot_moves_to_the_mean_of_the_pivot(strength: float) -> None:
    maps = to_pivot(MOMENTS, strength, 1)
    of_pivot = ROWS["en"].mean(axis=0)
    for number, rows in enumerate(CLOUDS):
        difference = of_pivot - rows.mean(axis=0)
        check_mapped(maps, number, rows + strength * difference)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_scale_divides_by_the_standard_deviation(strength: float) -> None:
    maps = scale(MOMENTS, strength)
    for number, rows in enumerate(CLOUDS):
        deviations = rows.std(axis=0)
        check_mapped(maps, number, rows / deviations**strength)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_lir_takes_the_top_components(strength: float) -> None:
    maps = lir(MOMENTS, strength, 2)
    for number, rows in enumerate(CLOUDS):
        _, _, components = np.linalg.svd(rows)
        top = components[:2]
        projected = rows @ top.T @ top
        check_mapped(maps, number, rows - strength * projected)


def published_lsar(means: NDArray, rank: int) -> NDArray:
    """The published algorithm, step by step: means (d, L) to a basis (d, rank) of the subspace."""
    languages = means.shape[1]
    ones = np.ones((languages, 1))
    centre = means @ ones / languages
    centred = means - centre @ ones.T
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    largest = left[:, :rank] * singular[:rank] @ right[:rank]
    low_rank = centre @ ones.T + largest
    inverse = np.linalg.pinv(low_rank, rcond=1e-10)
    foot = inverse.T @ ones
    nearest = foot / np.linalg.norm(foot) ** 2
    recentred = low_rank - nearest @ ones.T
    basis, _, _ = np.linalg.svd(recentred, full_matrices=False)
    return basis[:, :rank]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lsar_equals_the_published_algorithm(rank: int) -> None:
    basis = published_lsar(MOMENTS.means.T, rank)
    maps = lsar(MOMENTS, 1.0, COMMON, 1.0, rank)
    for number, rows in enumerate(CLOUDS):
        projected = rows @ basis @ basis.T
        check_mapped(maps, number, rows - projected)


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
    covariances = MOMENTS.covariances
    average = covariances.mean(axis=0)
    added = ridge * np.trace(average) / 12 * np.eye(12)
    recoloured = recolouring_matrices(covariances)
    maps = coral(MOMENTS, 0.4, recoloured)
    for number, rows in enumerate(CLOUDS):
        matrix = recoloured[number]
        shrunk = (1 - shrink) * covariances[number] + shrink * average
        coloured = matrix @ (shrunk + added) @ matrix.T
        assert_close(coloured, average + added)

        mean = rows.mean(axis=0)
        centred = rows - mean
        recoloured_rows = centred @ matrix.T
        check_mapped(maps, number, mean + 0.6 * centred + 0.4 * recoloured_rows)


def test_a_constant_dimension_is_not_divided_by_zero() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[:, 1] = 7
    equal_rows = np.ones((4, 3))
    moments = Moments.of_rows({"en": rows, "fr": equal_rows}, covariances=True)
    matrix = scale(moments, 1.0).matrix
    assert matrix is not None
    variances = rows.var(axis=0)
    least = 0.01 * np.sqrt(variances.mean())
    factor = 1 + matrix[0, 1, 1]
    assert factor == pytest.approx(1 / least)
    assert not matrix[1].any()
