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


def apply(maps: Maps, rows: NDArray, number: int) -> NDArray:
    matrix, offset = maps.of_language(number)
    return rows + offset + (0 if matrix is None else rows @ matrix.T)


def test_moments_equal_the_definitions_and_follow_maps() -> None:
    generator = np.random.default_rng(1)
    maps = Maps(generator.normal(size=(4, 12, 12)), generator.normal(size=(4, 12)))
    for i, rows in enumerate(ROWS.values()):
        for moments, vectors in ((MOMENTS, rows), (MOMENTS.after(maps), apply(maps, rows, i))):
            np.testing.assert_allclose(moments.means[i], vectors.mean(axis=0), atol=1e-9)
            np.testing.assert_allclose(
                moments.covariances[i], np.cov(vectors.T, bias=True), atol=1e-9
            )


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_steps_equal_their_formulas(strength: float) -> None:
    maps = {
        "shift": shift(MOMENTS, strength, COMMON, 0.25),
        "to_pivot": to_pivot(MOMENTS, strength, 1),
        "scale": scale(MOMENTS, strength),
        "lir": lir(MOMENTS, strength, 2),
    }
    for i, rows in enumerate(ROWS.values()):
        mean, top = rows.mean(axis=0), np.linalg.svd(rows)[2][:2]
        expected = {
            "shift": rows - strength * (mean - 0.25 * COMMON),
            "to_pivot": rows + strength * (ROWS["en"].mean(axis=0) - mean),
            "scale": rows / rows.std(axis=0) ** strength,
            "lir": rows - strength * rows @ top.T @ top,
        }
        for step, formula in expected.items():
            np.testing.assert_allclose(
                apply(maps[step], rows, i), formula, atol=1e-10, err_msg=step
            )


def published_lsar(means: NDArray, rank: int) -> NDArray:
    """The published algorithm, step by step: means (d, L) to a basis (d, rank) of the subspace."""
    ones = np.ones((means.shape[1], 1))
    centre = means @ ones / means.shape[1]
    left, singular, right = np.linalg.svd(means - centre @ ones.T, full_matrices=False)
    low_rank = centre @ ones.T + left[:, :rank] * singular[:rank] @ right[:rank]
    foot = np.linalg.pinv(low_rank, rcond=1e-10).T @ ones
    return np.linalg.svd(low_rank - foot / np.linalg.norm(foot) ** 2 @ ones.T, full_matrices=False)[
        0
    ][:, :rank]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_lsar_equals_the_published_algorithm(rank: int) -> None:
    basis = published_lsar(MOMENTS.means.T, rank)
    maps = lsar(MOMENTS, 1.0, COMMON, 1.0, rank)
    for i, rows in enumerate(ROWS.values()):
        np.testing.assert_allclose(apply(maps, rows, i), rows - rows @ basis @ basis.T, atol=1e-10)


def test_lsar_of_equal_means_changes_nothing() -> None:
    same = lsar(Moments(np.ones((4, 12))), 1.0, np.ones(12), 1.0).matrix
    assert same is not None and not same.any()


@pytest.mark.parametrize(("ridge", "shrink"), [(1.0, 0.5), (1e-9, 0.0)])
def test_coral_gives_the_ridged_and_shrunk_covariance_and_keeps_the_mean(
    ridge: float, shrink: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "RIDGE", ridge)
    monkeypatch.setattr(steps, "SHRINK", shrink)
    every = MOMENTS.covariances.mean(axis=0)
    added = ridge * np.trace(every) / 12 * np.eye(12)
    whole = recolouring_matrices(MOMENTS.covariances)
    for i, rows in enumerate(ROWS.values()):
        shrunk = (1 - shrink) * MOMENTS.covariances[i] + shrink * every + added
        np.testing.assert_allclose(whole[i] @ shrunk @ whole[i].T, every + added, atol=1e-8)
        centred = rows - rows.mean(axis=0)
        expected = rows.mean(axis=0) + 0.6 * centred + 0.4 * centred @ whole[i].T
        np.testing.assert_allclose(apply(coral(MOMENTS, 0.4, whole), rows, i), expected, atol=1e-10)


def test_a_constant_dimension_is_not_divided_by_zero() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows[:, 1] = 7
    matrix = scale(
        Moments.of_rows({"en": rows, "fr": np.ones((4, 3))}, covariances=True), 1.0
    ).matrix
    typical = np.sqrt(rows.var(axis=0).mean())
    assert (
        matrix is not None
        and 1 + matrix[0, 1, 1] == pytest.approx(1 / (0.01 * typical))
        and not matrix[1].any()
    )
