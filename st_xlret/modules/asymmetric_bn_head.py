"""Projection head with asymmetric batch normalisation (CCP, section 3.1)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "none": nn.Identity,
}
Normalization = Literal["asymmetric", "batch", "none"]


class AsymmetricBNHead(nn.Module):
    """Linear, batch normalisation, activation, Linear, shared by the two sides of a pair (CCP, Algorithm 1).

    One side is normalised by its batch's statistics, the other by the running statistics, and the two swap
    each step, so that no row can read off the batch which rows belong together. Running statistics are
    updated by the batch-statistics side only, and the other side reads them as they stood before the step
    (Algorithm 1 leaves the order to whichever branch is written first). Without gradients (evaluation) both
    sides read the running statistics and nothing changes, as the host keeps ``training`` on while it
    evaluates a loss.

    Args:
        in_features: Size of the sentence vectors.
        hidden_features: Size between the two linear layers; ``in_features`` by default.
        out_features: Size of the output; ``in_features`` by default.
        activation: "relu" (default), "gelu", "tanh" or "none". The paper says "non-linear" and draws none.
        normalization: "asymmetric" (default), "batch" (both sides together in one batch: the paper's failing
            ablation) or "none".
        momentum: Weight of the newest batch in the running statistics.

    Raises:
        ValueError: On an unknown activation or normalization.

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
        hidden_features: int | None = None,
        out_features: int | None = None,
        *,
        activation: str = "relu",
        normalization: Normalization = "asymmetric",
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}")
        if normalization not in ("asymmetric", "batch", "none"):
            raise ValueError(f"normalization must be 'asymmetric', 'batch' or 'none', got {normalization!r}")
        hidden_features = hidden_features or in_features
        self.in_features, self.out_features = in_features, out_features or in_features
        self.normalization = normalization
        self.linear_in = nn.Linear(in_features, hidden_features)
        self.norm = nn.Identity() if normalization == "none" else nn.BatchNorm1d(hidden_features, momentum=momentum)
        self.activation = ACTIVATIONS[activation]()
        self.linear_out = nn.Linear(hidden_features, self.out_features)
        # Which side reads the running statistics in the next step: False the contexts, True the centres.
        self.register_buffer("toggle", torch.tensor(False))

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Project both sides of the pairs.

        Args:
            centres: Vectors of the centre sentences (N, in_features).
            contexts: Vectors of their context sentences (M, in_features).

        Returns:
            Projections (N, out_features) and (M, out_features).

        Raises:
            ValueError: If batch statistics are wanted of a single row.
        """
        centres, contexts = self.linear_in(centres), self.linear_in(contexts)
        if isinstance(self.norm, nn.BatchNorm1d):
            if torch.is_grad_enabled() and self.training:
                centres, contexts = self._normalize_in_training(centres, contexts)
            else:
                centres, contexts = (
                    self._with_running_statistics(centres),
                    self._with_running_statistics(contexts),
                )
        return self.linear_out(self.activation(centres)), self.linear_out(self.activation(contexts))

    def _normalize_in_training(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        if self.normalization == "batch":
            both = self._with_batch_statistics(torch.cat([centres, contexts]))
            return both[: len(centres)], both[len(centres) :]
        # A tensor, not a Python attribute, so that it is saved and restored; reading it costs one small copy.
        if self.toggle:
            centres = self._with_running_statistics(centres)
            contexts = self._with_batch_statistics(contexts)
        else:
            contexts = self._with_running_statistics(contexts)
            centres = self._with_batch_statistics(centres)
        self.toggle.logical_not_()
        return centres, contexts

    def _with_batch_statistics(self, x: Tensor) -> Tensor:
        if len(x) < 2:
            raise ValueError(
                f"batch normalisation needs at least 2 rows to take statistics from, got {len(x)}: "
                "use a larger batch, or normalization='none'"
            )
        return self.norm(x)

    def _with_running_statistics(self, x: Tensor) -> Tensor:
        norm = self.norm
        assert isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None
        # Copies: the other side updates the originals in place, and the backward pass still needs these.
        mean, variance = norm.running_mean.clone(), norm.running_var.clone()
        return F.batch_norm(x, mean, variance, norm.weight, norm.bias, training=False, eps=norm.eps)
