"""Affine maps, the means and covariances of embeddings under them, and the map of each step of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Affine(NamedTuple):
    """The map `x -> W x + b` on rows.

    Example:
        >>> half = Affine(torch.eye(2) / 2, torch.ones(2))
        >>> half(torch.tensor([[4.0, 0.0]]))
        tensor([[3., 1.]])
        >>> half.then(half)(torch.tensor([[4.0, 0.0]]))
        tensor([[2.5000, 1.5000]])
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def identity(cls, dimension: int) -> Affine:
        """The map that changes nothing, in float64."""
        return cls.linear(torch.eye(dimension, dtype=torch.float64))

    @classmethod
    def linear(cls, weight: Tensor) -> Affine:
        """The map `x -> W x`."""
        return cls(weight, torch.zeros_like(weight[0]))

    @classmethod
    def translation(cls, offset: Tensor) -> Affine:
        """The map `x -> x + offset`."""
        return cls(torch.eye(len(offset), dtype=offset.dtype, device=offset.device), offset)

    def then(self, following: Affine) -> Affine:
        """This map followed by another one."""
        return Affine(following.weight @ self.weight, following.weight @ self.bias + following.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows (n, d), in their own type and on their device."""
        return rows @ self.weight.T.to(rows) + self.bias.to(rows)


class Moments(NamedTuple):
    """Number, mean (d,) and population covariance (d, d) of one language's embeddings, in float64.

    An affine map changes them in closed form: the embeddings are read once however many steps follow.
    """

    texts: int
    mean: Tensor
    covariance: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each dimension (d,)."""
        return self.covariance.diagonal().clamp_min(0.0)

    def after(self, step: Affine) -> Moments:
        """Moments of the embeddings after an affine map."""
        return Moments(self.texts, step.weight @ self.mean + step.bias, step.weight @ self.covariance @ step.weight.T)


def moments_of(embeddings: Tensor, language: str, *, min_texts: int = 2, chunk_size: int = 8192) -> Moments:
    """Compute the mean and covariance of one language in float64, a chunk of rows at a time.

    Raises:
        ValueError: If there are fewer than `min_texts` rows, or a value is NaN or infinite; the message names the
            language.
    """
    if embeddings.ndim != 2:
        raise ValueError(f"embeddings of {language!r} must be (texts, dimensions), got {tuple(embeddings.shape)}")
    count = len(embeddings)
    if count < min_texts:
        raise ValueError(
            f"language {language!r} has {count} texts, and a calibration needs at least {min_texts}: "
            "give it more text, leave it out, or lower min_texts"
        )
    total = torch.zeros(embeddings.shape[1], dtype=torch.float64)
    for chunk in embeddings.split(chunk_size):
        total += chunk.double().sum(dim=0).cpu()
    mean = total / count
    if not bool(torch.isfinite(mean).all()):
        raise ValueError(f"embeddings of {language!r} contain NaN or infinite values")
    scatter = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for chunk in embeddings.split(chunk_size):
        centred = chunk.double().cpu() - mean
        scatter += centred.T @ centred
    return Moments(count, mean, scatter / count)


def shift_map(moments: Moments, strength: float = 1.0) -> Affine:
    """The map `x - strength * mean`: at full strength, the language's mean becomes the origin (CCP, section 3.2).

    Example:
        >>> shift_map(moments_of(torch.tensor([[1.0], [3.0]]), "en"))(torch.tensor([[2.0]]))
        tensor([[0.]])
    """
    return Affine.translation(-strength * moments.mean)


def scale_map(
    moments: Moments,
    language: str,
    strength: float = 1.0,
    *,
    scale_by: Literal["std", "variance"] = "std",
    floor: float = 0.01,
) -> Affine:
    """The map `x / spread ** strength` in each dimension (CCP, section 3.2).

    The spread is the standard deviation, or the variance as the paper words it. `floor` is the smallest standard
    deviation of a dimension, as a fraction of the root mean square over all dimensions: a constant dimension is divided
    by it instead of by zero.

    Raises:
        ValueError: If no dimension varies, or `scale_by` is unknown.

    Example:
        >>> moments = moments_of(torch.tensor([[0.0, 2.0], [4.0, 0.0]]), "en")
        >>> scale_map(moments, "en")(torch.tensor([[4.0, 2.0]]))
        tensor([[2., 2.]])
    """
    if scale_by not in ("std", "variance"):
        raise ValueError(f"scale_by must be 'std' or 'variance', got {scale_by!r}")
    typical = moments.variance.mean().sqrt()
    if not typical > 0:
        raise ValueError(f"all {moments.texts} embeddings of {language!r} are the same: there is nothing to scale by")
    spread = moments.variance.sqrt().clamp_min(floor * float(typical))
    if scale_by == "variance":
        spread = spread.square()
    return Affine.linear(torch.diag(spread**-strength))


def lir_map(moments: Moments, components: int = 1, strength: float = 1.0) -> Affine:
    """Remove the top principal components of one language (LIR, Yang et al. 2021).

    The map is `x - strength * C C^T x`, where the columns of C are the leading right singular vectors of the language's
    embeddings. They are not centred, as in that paper: without a shift before it, the first component is close to the
    language's mean.

    Raises:
        ValueError: If `components` is negative or leaves no dimension.

    Example:
        >>> moments = moments_of(torch.tensor([[2.0, 1.0], [2.0, -1.0]]), "en")
        >>> lir_map(moments)(torch.tensor([[2.0, 1.0]])).tolist()
        [[0.0, 1.0]]
    """
    dimension = len(moments.mean)
    if not 0 <= components < dimension:
        raise ValueError(f"components must lie between 0 and {dimension - 1}, got {components}")
    second_moment = moments.covariance + torch.outer(moments.mean, moments.mean)
    return _removal(torch.linalg.eigh(second_moment).eigenvectors[:, dimension - components :], strength)


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
    the subspace.) One map serves all languages: the language of a text need not be known.

    Args:
        means: The mean (d,) of each language; all have equal weight.
        rank: Number of dimensions to remove. None removes all in which the means differ, at most languages - 1.
        strength: Fraction of each dimension to remove.
        keep_mean: Fraction of the mean of all languages to keep; the paper keeps it all. What all texts have in common
            hides how they differ: on a contrastive encoder, 0.25 finds more than 1.
        common_mean: The mean (d,) of which `keep_mean` is kept. Default: the average of `means`. For a map of queries
            it is that of the documents: queries keep their offset from documents.

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
    kept = min(int((singular > 1e-10 * matrix.norm()).sum()), most if rank is None else rank)
    if kept >= matrix.shape[1]:
        raise ValueError(
            f"the means of {len(matrix)} languages differ in all {matrix.shape[1]} dimensions, so that lsar leaves "
            "nothing: take fewer languages, or the step shift"
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

    Raises:
        ValueError: If `ridge` is not positive.

    Example:
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
