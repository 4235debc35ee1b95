"""Projection head of the masked sentence model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ProjectionHead(nn.Module):
    """Linear, batch normalisation, ReLU, Linear, batch normalisation without affine part; no biases (MSM).

    Statistics are those of the batch while training, and the running ones without gradients (evaluation):
    the host keeps ``training`` on while it evaluates a loss.

    Args:
        features: Size of the input.
        hidden_features: Size between the two linear layers; ``features`` by default.
        out_features: Size of the output; ``features`` by default.
        momentum: Weight of the newest batch in the running statistics.

    Example:
        >>> tuple(ProjectionHead(16, out_features=8)(torch.randn(4, 16)).shape)
        (4, 8)
    """

    def __init__(
        self,
        features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        *,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        hidden_features = hidden_features or features
        self.in_features, self.out_features = features, out_features or features
        self.linear_in = nn.Linear(features, hidden_features, bias=False)
        self.norm = nn.BatchNorm1d(hidden_features, momentum=momentum)
        self.linear_out = nn.Linear(hidden_features, self.out_features, bias=False)
        self.norm_out = nn.BatchNorm1d(self.out_features, momentum=momentum, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        """Project vectors (N, features) to (N, out_features).

        Raises:
            ValueError: If batch statistics are wanted of a single row.
        """
        if self._uses_batch_statistics and len(x) < 2:
            raise ValueError(
                f"batch normalisation needs at least 2 rows to take statistics from, got {len(x)}: "
                "use a larger batch, or no projection heads"
            )
        x = F.relu(self._normalize(self.norm, self.linear_in(x)))
        return self._normalize(self.norm_out, self.linear_out(x))

    @property
    def _uses_batch_statistics(self) -> bool:
        return self.training and torch.is_grad_enabled()

    def _normalize(self, norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
        if self._uses_batch_statistics:
            return norm(x)
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
