"""Projection heads: the asymmetric one of CCP and the one of MSM. Both are discarded after training."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Normalization = Literal["asymmetric", "batch", "none"]


class AsymmetricBNHead(nn.Module):
    """CCP's projection head: Linear, batch normalisation, ReLU, Linear (Wu et al. 2022, section 3.1).

    The paper calls the head non-linear but shows no activation.

    Both sides of a pair share the layers (`g` in Algorithm 1). One side is normalised by the statistics of its
    batch, the other by the running statistics, and the two swap in each step. No row can therefore tell from the
    batch statistics which rows belong together. Only the side with batch statistics updates the running statistics,
    and the other side reads them as they were before the step (Algorithm 1 leaves the order to whichever branch is
    written first).

    Without gradients (evaluation), both sides use the running statistics and nothing changes: the host leaves
    `training` on while it evaluates a loss. Inputs are converted to the type of the weights, so that a head in
    float32 works with an encoder in bfloat16.

    Args:
        in_features: Size of the sentence vectors, and between the two linear layers.
        out_features: Size of the output. Default: `in_features`.
        normalization: "asymmetric" (default), "batch" (both sides together in one batch: the ablation that fails in
            Table 5) or "none".

    Raises:
        ValueError: If the normalization is unknown, or a size is below 1.

    Example:
        >>> head = AsymmetricBNHead(16, out_features=8)
        >>> z_c, z_i = head(torch.randn(4, 16), torch.randn(4, 16))
        >>> tuple(z_c.shape), bool(head.toggle)
        ((4, 8), True)
    """

    toggle: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        *,
        normalization: Normalization = "asymmetric",
    ) -> None:
        super().__init__()
        if normalization not in ("asymmetric", "batch", "none"):
            raise ValueError(f"normalization must be 'asymmetric', 'batch' or 'none', got {normalization!r}")
        self.in_features, self.out_features = in_features, in_features if out_features is None else out_features
        if min(self.in_features, self.out_features) < 1:
            raise ValueError(f"sizes must be at least 1, got {self.in_features} and {self.out_features}")
        self.normalization = normalization
        self.linear_in = nn.Linear(in_features, in_features)
        self.norm = nn.Identity() if normalization == "none" else nn.BatchNorm1d(in_features)
        self.linear_out = nn.Linear(in_features, self.out_features)
        # Which side uses the running statistics in the next step: False for the contexts, True for the centres.
        self.register_buffer("toggle", torch.tensor(False))

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Project both sides of the pairs.

        Args:
            centres: Vectors of the centre sentences (N, in_features).
            contexts: Vectors of their context sentences (M, in_features).

        Returns:
            Projections (N, out_features) and (M, out_features).

        Raises:
            ValueError: If batch statistics are needed and a side has a single row.
        """
        kind = self.linear_in.weight.dtype
        centres, contexts = self.linear_in(centres.to(kind)), self.linear_in(contexts.to(kind))
        if isinstance(self.norm, nn.BatchNorm1d):
            if torch.is_grad_enabled() and self.training:
                centres, contexts = self._normalize_in_training(self.norm, centres, contexts)
            else:
                centres, contexts = (with_running_statistics(self.norm, side) for side in (centres, contexts))
        return self.linear_out(F.relu(centres)), self.linear_out(F.relu(contexts))

    def _normalize_in_training(self, norm: nn.BatchNorm1d, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        if self.normalization == "batch":
            both = with_batch_statistics(norm, torch.cat([centres, contexts]))
            return both[: len(centres)], both[len(centres) :]
        # A tensor, not a Python attribute, so that it is saved and restored; reading it costs one small copy.
        if self.toggle:
            centres = with_running_statistics(norm, centres)
            contexts = with_batch_statistics(norm, contexts)
        else:
            contexts = with_running_statistics(norm, contexts)
            centres = with_batch_statistics(norm, centres)
        self.toggle.logical_not_()
        return centres, contexts


class ProjectionHead(nn.Module):
    """MSM's projection head (Zhang et al. 2023, section 3.2, and the authors' program).

    The layers are Linear, batch normalisation, ReLU, Linear, and batch normalisation without an affine part. The
    linear layers have no bias. Statistics are those of the batch during training, and the running ones without
    gradients (evaluation): the host leaves `training` on while it evaluates a loss. Inputs are converted to the type
    of the weights.

    Args:
        features: Size of the input, of the output and between the two linear layers.

    Example:
        >>> tuple(ProjectionHead(16)(torch.randn(4, 16)).shape)
        (4, 16)
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear_in = nn.Linear(features, features, bias=False)
        self.norm = nn.BatchNorm1d(features)
        self.linear_out = nn.Linear(features, features, bias=False)
        self.norm_out = nn.BatchNorm1d(features, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """Project vectors (N, features) to (N, features).

        Raises:
            ValueError: If batch statistics are needed of a single row.
        """
        in_training = self.training and torch.is_grad_enabled()
        normalize = with_batch_statistics if in_training else with_running_statistics
        x = F.relu(normalize(self.norm, self.linear_in(x.to(self.linear_in.weight.dtype))))
        return normalize(self.norm_out, self.linear_out(x))


def with_batch_statistics(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    """Normalise rows (N, d) by their own statistics, and update the running ones."""
    if len(x) < 2:
        raise ValueError(
            f"batch normalisation needs at least 2 rows to take statistics from, got {len(x)}: use a larger batch, "
            "or a loss without it (AsymmetricBNHead(normalization='none'), MSMLoss(heads='none'))"
        )
    return norm(x)


def with_running_statistics(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    """Normalise rows (N, d) by the running statistics, which stay as they are."""
    assert norm.running_mean is not None and norm.running_var is not None
    # Copies: a later call may update the originals in place, and the backward pass still needs these values.
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    return F.batch_norm(x, mean, variance, norm.weight, norm.bias, training=False, eps=norm.eps)
