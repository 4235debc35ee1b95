"""Maps that remove a language's identity from its embeddings: LIR, LSAR and CORAL."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from st_xlret.calibration.statistics import Affine, Moments


def lir_map(moments: Moments, components: int = 1, strength: float = 1.0) -> Affine:
    """Remove the top principal components of one language (LIR, Yang et al. 2021).

    The map is `x - strength * C C^T x`, where the columns of C are the leading right singular vectors of the language's
    embeddings. They are not centred, as in that paper: without a shift before it, the first component is close to the
    language's mean.

    Args:
        moments: Moments of the embeddings that go in.
        components: Number of components to remove; 0 removes nothing.
        strength: Fraction of each component to remove.

    Returns:
        A linear map (d, d).

    Raises:
        ValueError: If `components` is negative or leaves no dimension.

    Example:
        >>> from st_xlret.calibration.statistics import moments_of
        >>> moments = moments_of(torch.tensor([[2.0, 1.0], [2.0, -1.0]]), "en")
        >>> lir_map(moments)(torch.tensor([[2.0, 1.0]])).tolist()
        [[0.0, 1.0]]
    """
    dimension = len(moments.mean)
    if not 0 <= components < dimension:
        raise ValueError(f"components must lie between 0 and {dimension - 1}, got {components}")
    directions = torch.linalg.eigh(moments.second_moment).eigenvectors[:, dimension - components :]
    return _removal(directions, strength)


def lsar_map(
    means: Sequence[Tensor],
    rank: int | None = None,
    strength: float = 1.0,
    keep_mean: float = 1.0,
    common_mean: Tensor | None = None,
) -> Affine:
    """Project out the subspace in which the languages' means differ (LSAR, Xie et al. 2022).

    The map is `x - strength * M M^T x`, where the columns of M are the leading left singular vectors of the means,
    centred on their average. (The paper re-centres on a vector orthogonal to the subspace. That changes the vector, not
    the subspace.) One map serves all languages, so that the language of a text need not be known.

    Args:
        means: The mean (d,) of each language; all have equal weight.
        rank: Number of dimensions to remove. None removes all in which the means differ, at most languages - 1.
        strength: Fraction of each dimension to remove.
        keep_mean: Fraction of the mean of all languages to keep; the paper keeps it all. What all texts have in common
            hides how they differ: on a contrastive encoder, 0.25 finds more than 1.
        common_mean: The mean (d,) of which `keep_mean` is kept. Default: the average of `means`. For a map of queries
            it is that of the documents, so that queries keep their offset from documents.

    Returns:
        A map (d, d); the identity for a single language and `keep_mean=1`.

    Raises:
        ValueError: If `rank` is negative, exceeds languages - 1, or would leave no dimension.

    Example:
        >>> means = [torch.tensor([1.0, 3.0]), torch.tensor([5.0, 3.0])]
        >>> lsar_map(means)(torch.tensor([[7.0, 4.0]])).tolist()
        [[0.0, 4.0]]
    """
    matrix = torch.stack(list(means)).double()
    most = len(matrix) - 1
    if rank is not None and not 0 <= rank <= most:
        raise ValueError(f"rank must lie between 0 and languages - 1 = {most}, got {rank}")
    _, singular, directions = torch.linalg.svd(matrix - matrix.mean(dim=0), full_matrices=False)
    differing = int((singular > 1e-10 * matrix.norm()).sum())
    kept = min(differing, most if rank is None else rank)
    if kept >= matrix.shape[1]:
        raise ValueError(
            f"the means of {len(matrix)} languages differ in all {matrix.shape[1]} dimensions: "
            f"pass a rank below {matrix.shape[1]}"
        )
    common = matrix.mean(dim=0) if common_mean is None else common_mean
    centre = Affine.translation(-(1 - keep_mean) * strength * common)
    return centre.then(_removal(directions[:kept].T, strength))


def coral_map(
    moments: Moments, covariance: Tensor, ridge: float = 1.0, shrink: float = 0.5, strength: float = 1.0
) -> Affine:
    """Give one language the covariance of all of them (CORAL: correlation alignment, Sun et al. 2016).

    With the language's mean m and covariance S, the covariance T of all languages, a = `shrink` and
    r = `ridge` * trace(T) / d, the map is `m + (T + r I)^(1/2) ((1 - a) S + a T + r I)^(-1/2) (x - m)`. The mean stays
    where it is. Without enough shrinkage and ridge, what the texts of a language are about is taken for the language.

    Args:
        moments: Moments of the embeddings that go in.
        covariance: The covariance to give them (d, d).
        ridge: How much of the average variance is added to every direction first. Fewer texts need more.
        shrink: How far the language's covariance is first drawn to that of all languages, from 0 to 1.
        strength: 0 leaves the language as it is; 1 is the whole map.

    Returns:
        An affine map (d, d).

    Raises:
        ValueError: If `ridge` is not positive.

    Example:
        >>> from st_xlret.calibration.statistics import moments_of
        >>> moments = moments_of(torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0], [2.0, -1.0]]), "en")
        >>> map_ = coral_map(moments, 4 * moments.covariance, ridge=1e-9, shrink=0)
        >>> [round(value, 4) for value in map_(torch.tensor([[3.0, 1.0]]))[0].tolist()]
        [4.0, 2.0]
    """
    if ridge <= 0:
        raise ValueError(f"ridge must be positive, got {ridge}")
    added = ridge * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=covariance.dtype)
    own = torch.lerp(moments.covariance, covariance, shrink)
    map_ = _power(covariance + added, 0.5) @ _power(own + added, -0.5)
    weight = torch.lerp(torch.eye(len(map_), dtype=map_.dtype), map_, strength)
    return Affine(weight, moments.mean - weight @ moments.mean)


def _power(symmetric: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(symmetric)
    return (vectors * values.clamp_min(torch.finfo(values.dtype).tiny) ** exponent) @ vectors.T


def _removal(directions: Tensor, strength: float) -> Affine:
    """The map `x - strength * D D^T x` for orthonormal columns D."""
    identity = torch.eye(len(directions), dtype=directions.dtype)
    return Affine.linear(identity - strength * directions @ directions.T)
