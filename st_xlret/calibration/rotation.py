"""Orthogonal maps between the spaces of two languages, and the criterion to judge them by."""

from __future__ import annotations

import torch
from torch import Tensor

from st_xlret.search.neighbours import csls_nearest


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """Compute the orthogonal matrix nearest to a square one (its polar factor), in float64.

    Example:
        >>> nearest_orthogonal(3 * torch.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    left, _, right = torch.linalg.svd(matrix.double())
    return left @ right


def procrustes(source: Tensor, target: Tensor, *, prior: float = 0.0) -> Tensor:
    """Compute the orthogonal W for which `source W^T` is nearest to `target` in squared distance, in closed form.

    The solution is `W = U V^T` with `U S V^T = SVD(target^T source)` (Conneau et al. 2018, Eq. 2).

    Args:
        source: Rows (n, d).
        target: Rows (n, d), aligned with `source`.
        prior: Weight of the identity. The mean singular value times `prior` is added to the diagonal, so that
            directions about which the pairs say little stay as they are. If there are fewer pairs than dimensions, a
            small weight is always added, since some directions would be rotated at random otherwise.

    Returns:
        W (d, d), float64.

    Raises:
        ValueError: If the shapes differ, there is no pair, or `prior` is negative.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> procrustes(source, torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    if source.shape != target.shape or source.ndim != 2 or not len(source):
        raise ValueError(
            f"Procrustes needs row-aligned pairs, got shapes {tuple(source.shape)} and {tuple(target.shape)}"
        )
    if prior < 0:
        raise ValueError(f"prior must not be negative, got {prior}")
    correlation = target.double().T @ source.double()
    singular = torch.linalg.svdvals(correlation)
    if singular[-1] <= 1e-12 * singular[0]:
        prior = max(prior, 1e-6)
    identity = torch.eye(len(correlation), dtype=correlation.dtype, device=correlation.device)
    return nearest_orthogonal(correlation + prior * singular.mean() * identity)


def partial_rotation(rotation: Tensor, strength: float) -> Tensor:
    """Go part of the way from the identity to W: the orthogonal matrix nearest to `(1 - s) I + s W`.

    Half of a plane rotation is the rotation by half of its angle. (A reflection, which no path of rotations reaches,
    switches at s = 1/2.)

    Args:
        rotation: W (d, d), orthogonal.
        strength: s in [0, 1].

    Returns:
        An orthogonal matrix (d, d), float64.

    Example:
        >>> quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> half = partial_rotation(quarter_turn, 0.5)
        >>> torch.allclose(half @ half, quarter_turn.double())
        True
    """
    identity = torch.eye(len(rotation), dtype=torch.float64, device=rotation.device)
    if strength == 0:
        return identity
    if strength == 1:
        return rotation.double()
    return nearest_orthogonal((1 - strength) * identity + strength * rotation.double())


def rotation_agreement(one: Tensor, other: Tensor) -> float:
    """Measure what two rotations have in common beyond the identity: the cosine of their parts off it.

    The part of W off the identity is `W - (tr W / d) I`. Rotations that were fitted to noise give about 0 (0.1 for
    static embeddings of unrelated documents in two languages), and rotations that follow a true one give nearly 1.

    Args:
        one: A rotation (d, d).
        other: Another one (d, d).

    Returns:
        A number in [-1, 1]; 1 if either is the identity.

    Example:
        >>> turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
        >>> round(rotation_agreement(turn, turn), 6), round(rotation_agreement(turn, turn.T), 6)
        (1.0, -1.0)
    """
    parts = [matrix - matrix.diagonal().mean() * torch.eye(len(matrix)).to(matrix) for matrix in (one, other)]
    lengths = float(parts[0].norm() * parts[1].norm())
    return float((parts[0] * parts[1]).sum()) / lengths if lengths else 1.0


def mean_csls_criterion(source: Tensor, target: Tensor, neighbours: int = 10) -> float:
    """Mean cosine of the source rows to the target rows that CSLS matches them with.

    It is the unsupervised criterion of Conneau et al. (2018, section 3.3): it needs no pairs and follows translation
    accuracy. Higher is better between rotations of the same rows.

    Args:
        source: Mapped rows (S, d).
        target: Rows (T, d).
        neighbours: k of CSLS.

    Returns:
        A cosine in [-1, 1].

    Example:
        >>> mean_csls_criterion(torch.eye(3), torch.eye(3).flip(0), neighbours=1)
        1.0
    """
    return float(csls_nearest(source, target, neighbours)[1].mean())
