"""Affine maps, the means and covariances of embeddings under them, and shift and scale (CCP, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Affine(NamedTuple):
    """The map `x -> W x + b` on rows.

    Attributes:
        weight: W (d, d).
        bias: b (d,).

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
    """Mean and covariance of one language's embeddings.

    An affine map changes them in closed form, so the embeddings are read once however many steps follow.

    Attributes:
        sentences: Number of sentences.
        mean: Mean (d,), float64.
        covariance: Covariance of the population (divided by the count), (d, d) float64.

    Example:
        >>> moments = moments_of(torch.tensor([[0.0, 2.0], [2.0, 2.0]]), "en")
        >>> moments.mean.tolist(), moments.standard_deviation.tolist()
        ([1.0, 2.0], [1.0, 0.0])
    """

    sentences: int
    mean: Tensor
    covariance: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each dimension (d,)."""
        return self.covariance.diagonal().clamp_min(0.0)

    @property
    def standard_deviation(self) -> Tensor:
        """Standard deviation of each dimension, of the population (d,)."""
        return self.variance.sqrt()

    @property
    def second_moment(self) -> Tensor:
        """Mean of `x x^T`, not centred (d, d)."""
        return self.covariance + torch.outer(self.mean, self.mean)

    def after(self, step: Affine) -> Moments:
        """Moments of the embeddings after an affine map."""
        return Moments(
            self.sentences,
            step.weight @ self.mean + step.bias,
            step.weight @ self.covariance @ step.weight.T,
        )


def moments_of(embeddings: Tensor, language: str, *, min_sentences: int = 2, chunk_size: int = 8192) -> Moments:
    """Compute the mean and covariance of one language in float64, a chunk of rows at a time.

    Args:
        embeddings: Rows (n, d).
        language: Language code, for error messages.
        min_sentences: Minimum number of rows. The statistics of a few sentences describe their topics.
        chunk_size: Rows converted to float64 at a time.

    Returns:
        The moments.

    Raises:
        ValueError: If there are fewer than `min_sentences` rows, or a value is NaN or infinite; the message names the
            language.
    """
    if embeddings.ndim != 2:
        shape = tuple(embeddings.shape)
        raise ValueError(f"embeddings of {language!r} must be (sentences, dimensions), got {shape}")
    count = len(embeddings)
    if count < min_sentences:
        raise ValueError(
            f"language {language!r} has {count} sentences, and a calibration needs at least {min_sentences}: "
            "give it more text, leave it out, or lower min_sentences"
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

    Args:
        moments: Moments of the embeddings that go in.
        language: Language code, for error messages.
        strength: Exponent of the spread: 0 leaves the dimensions as they are, 1 gives them equal spreads.
        scale_by: "std" divides by standard deviations, "variance" by variances, as the paper words it.
        floor: Smallest standard deviation of a dimension, as a fraction of the root mean square over all dimensions. A
            constant dimension is divided by it instead of by zero.

    Returns:
        A linear map (d, d).

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
        raise ValueError(
            f"all {moments.sentences} embeddings of {language!r} are the same: there is nothing to scale by"
        )
    spread = moments.standard_deviation.clamp_min(floor * float(typical))
    if scale_by == "variance":
        spread = spread.square()
    return Affine.linear(torch.diag(spread**-strength))


def distance_between_means(means: Mapping[str, Tensor]) -> float:
    """Mean Euclidean distance between the means of every two languages; 0 for a single language.

    Example:
        >>> distance_between_means({"en": torch.zeros(2), "fr": torch.tensor([3.0, 4.0])})
        5.0
    """
    distances = [float((left - right).norm()) for left, right in combinations(means.values(), 2)]
    return sum(distances) / len(distances) if distances else 0.0
