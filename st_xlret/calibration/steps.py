"""The steps of a calibration: from the moments of languages to an affine map of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = ("shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot")
"""The steps of a calibration, the first three in the order of the CCP paper."""

OF_MEANS = frozenset({"shift", "lsar", "to_pivot"})
"""The steps that means determine. They change vectors in the span of the languages' means alone."""

FLOOR, RIDGE, SHRINK = 0.01, 1.0, 0.5  # without them coral loses up to ten points on other documents


class Maps(NamedTuple):
    """Maps `x -> x + M x + m` of several languages: M (L or 1, r, r), None for zeros, and m (L or 1, r)."""

    matrix: NDArray[Any] | None
    offset: NDArray[Any]

    def of_language(self, number: int) -> Maps:
        """The map of one language, as M (r, r) and m (r,)."""
        matrix = None if self.matrix is None else self.matrix[min(number, len(self.matrix) - 1)]
        return Maps(matrix, self.offset[min(number, len(self.offset) - 1)])

    def then(self, following: Maps) -> Maps:
        """These maps, followed by others."""
        offset = self.offset + following.offset
        if following.matrix is None:
            return Maps(self.matrix, offset)
        offset = offset + _matrix_vector_products(following.matrix, self.offset)
        if self.matrix is None:
            return Maps(following.matrix, offset)
        return Maps(self.matrix + following.matrix + following.matrix @ self.matrix, offset)


class Moments(NamedTuple):
    """Means (L, r) and population covariances (L, r, r) of languages, float64, in the coordinates of some basis.

    An affine map changes them in closed form: vectors are read once, however many steps and strengths follow.
    """

    means: Floats
    covariances: Any = None  # only where a step needs them

    @classmethod
    def of_rows(cls, rows: Mapping[str, NDArray[Any]], *, covariances: bool = False) -> Moments:
        """The moments of rows (n, d) by language; NaN or infinite numbers are a `ValueError`."""
        means = np.asarray_chkfinite([vectors.mean(axis=0, dtype=np.float64) for vectors in rows.values()])
        if not covariances:
            return cls(means)
        centred = (vectors.astype(np.float64) - mean for vectors, mean in zip(rows.values(), means, strict=True))
        return cls(means, np.stack([vectors.T @ vectors / len(vectors) for vectors in centred]))

    def after(self, maps: Maps) -> Moments:
        """The moments of mapped vectors."""
        means = self.means + maps.offset
        if maps.matrix is None:
            return Moments(means, self.covariances)
        whole = np.eye(self.means.shape[1]) + maps.matrix
        covariances = None if self.covariances is None else whole @ self.covariances @ whole.swapaxes(1, 2)
        return Moments(means + _matrix_vector_products(maps.matrix, self.means), covariances)


def shift(moments: Moments, strength: float, common: Floats, keep_mean: float) -> Maps:
    """Minus the language's mean (CCP, section 3.2); a part of the mean `common` (r,) of all languages is kept."""
    back = moments.means.mean(axis=0) - (1 - keep_mean) * common
    return Maps(None, strength * (back - moments.means))


def to_pivot(moments: Moments, strength: float, pivot: int) -> Maps:
    """Plus the difference of the pivot's mean and the language's ("Shift", arXiv 2606.18801)."""
    return Maps(None, strength * (moments.means[pivot] - moments.means))


def lsar(
    moments: Moments,
    strength: float,
    common: Floats,
    keep_mean: float,
    rank: int | None = None,
    width: int = 0,
    joining_means: Sequence[Floats] = (),
) -> Maps:
    """Minus the projection on the subspace in which the languages' means differ (LSAR, Xie et al. 2022); one map.

    `width` is that of whole vectors, where the moments are in coordinates, and `joining_means` count as languages. (The
    paper re-centres on a vector orthogonal to the subspace, which does not change the subspace.)
    """
    means = np.concatenate([moments.means, *joining_means])
    width, most = width or means.shape[1], len(means) - 1
    rank = most if rank is None else rank
    _, singular, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    removed = min(int((singular > 1e-10 * np.linalg.norm(means)).sum()), rank)
    if removed >= width or not 0 <= rank <= most:  # of the full width: in coordinates of means nothing is left anyway
        problem = f"lsar would remove {removed} of {width} dimensions for {len(means)} languages, rank {rank}"
        raise ValueError(f"{problem}: take a rank from 0 to {most}, fewer languages, or the step shift")
    matrix = -strength * directions[:removed].T @ directions[:removed]
    offset = -(1 - keep_mean) * strength * (common + matrix @ common)
    return Maps(matrix[None], offset[None])


def scale(moments: Moments, strength: float) -> Maps:
    """Divided by the language's standard deviation in each dimension (CCP, section 3.2)."""
    variances = np.diagonal(moments.covariances, axis1=1, axis2=2).clip(0)
    typical = np.sqrt(variances.mean(axis=1, keepdims=True))
    deviations = np.sqrt(variances).clip(FLOOR * typical)  # a constant dimension is not divided by zero
    factors = np.where(typical > 0, deviations, 1) ** -strength - 1
    return Maps(factors[:, :, None] * np.eye(factors.shape[1]), np.zeros_like(moments.means))


def lir(moments: Moments, strength: float, components: int = 1) -> Maps:
    """Minus the projection on the language's top principal components, not centred (LIR, Yang et al. 2021)."""
    second = moments.covariances + moments.means[:, :, None] * moments.means[:, None, :]
    top = np.linalg.eigh(second).eigenvectors[:, :, ::-1][:, :, :components]
    return Maps(-strength * top @ top.swapaxes(1, 2), np.zeros_like(moments.means))


def coral(moments: Moments, strength: float, recoloured: Floats | None = None) -> Maps:
    """The covariance of all languages for each, by its `recolouring_matrices`; means stay (CORAL, Sun et al. 2016)."""
    recoloured = recolouring_matrices(moments.covariances) if recoloured is None else recoloured
    matrix = strength * (recoloured - np.eye(recoloured.shape[1]))
    return Maps(matrix, -_matrix_vector_products(matrix, moments.means))


def recolouring_matrices(covariances: Floats) -> Floats:
    """`(T + r I)^(1/2) ((1 - a) S + a T + r I)^(-1/2)` of each language, for the mean T of the covariances S.

    a is `SHRINK`, and r is `RIDGE` times the mean variance: else the topics of a language are taken for the language.
    """
    every = covariances.mean(axis=0)
    ridge = RIDGE * np.trace(every) / len(every) * np.eye(len(every))
    root = _matrix_power(every + ridge, 0.5)
    shrunk = ((1 - SHRINK) * covariance + SHRINK * every + ridge for covariance in covariances)
    return np.stack([root @ _matrix_power(each, -0.5) for each in shrunk])


def _matrix_vector_products(matrices: NDArray[Any], vectors: NDArray[Any]) -> NDArray[Any]:
    """Each matrix (L or 1, r, r) times its vector (L, r)."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _matrix_power(symmetric: Floats, exponent: float) -> Floats:
    """A positive matrix to a power, such as its root or inverse root, by its eigenvalues."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * values.clip(np.finfo(np.float64).tiny) ** exponent) @ vectors.T)
