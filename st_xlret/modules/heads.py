"""Projection heads, which stand on an encoder in training only."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from st_xlret.ranges import check_range


class AsymmetricBNHead(nn.Module):
    """CCP's projection head: Linear, batch normalisation, ReLU, Linear (section 3.1).

    Both sides of a pair share the layers (`g` in Algorithm 1 of Wu et al. 2022). One side is
    normalised by the statistics of its batch, the other by the running statistics of before the
    step, and the two swap in each step, so that batch statistics do not tell which rows belong
    together. Without gradients (evaluation), both sides use the statistics of both, and nothing
    changes. Inputs are converted to the type of the weights.

    Args:
        in_features: Size of the sentence vectors, and between the two linear layers.
        out_features: Size of the output. Default: `in_features`.
        normalization: "asymmetric", "batch" (both sides in one batch: the ablation that fails in
            Table 5) or "none".

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
        normalization: Literal["asymmetric", "batch", "none"] = "asymmetric",
    ) -> None:
        super().__init__()
        check_range(1, out_features=out_features)
        self.out_features = out_features or in_features
        self.normalization = normalization
        self.linear_in = nn.Linear(in_features, in_features)
        kinds = {"asymmetric": nn.BatchNorm1d, "batch": nn.BatchNorm1d, "none": nn.Identity}
        self.norm: nn.Module = kinds[normalization](in_features)
        self.linear_out = nn.Linear(in_features, self.out_features)
        # Which side uses the running statistics in the next step: False for the contexts, True for
        # the centres.
        self.register_buffer("toggle", torch.tensor(False))

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Project centres (N, in_features) and their contexts (M, in_features) to out_features.

        In training it is called once a step, with the rows of all ranks: each call swaps the sides.
        """
        kind = self.linear_in.weight.dtype
        hidden_centres = self.linear_in(centres.to(kind))
        hidden_contexts = self.linear_in(contexts.to(kind))
        if isinstance(self.norm, nn.BatchNorm1d):
            hidden_centres, hidden_contexts = self._normalize_sides(
                self.norm, hidden_centres, hidden_contexts
            )
        z_centres = self.linear_out(F.relu(hidden_centres))
        z_contexts = self.linear_out(F.relu(hidden_contexts))
        return z_centres, z_contexts

    def _normalize_sides(
        self, norm: nn.BatchNorm1d, centres: Tensor, contexts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Batch normalization of both sides, by turns: one by its batch, one by running statistics.

        In training, each call swaps the sides (`toggle`) and updates the statistics. Elsewhere both
        are one batch, and nothing changes.
        """
        if not (self.training and torch.is_grad_enabled()):
            both = F.batch_norm(
                torch.cat([centres, contexts]),
                None,
                None,
                norm.weight,
                norm.bias,
                training=True,
                eps=norm.eps,
            )
            return both[: len(centres)], both[len(centres) :]
        if self.normalization == "batch":
            both = norm(torch.cat([centres, contexts]))
            return both[: len(centres)], both[len(centres) :]
        if self.toggle:
            centres = _by_running_statistics(norm, centres)
            contexts = norm(contexts)
        else:
            contexts = _by_running_statistics(norm, contexts)
            centres = norm(centres)
        self.toggle.logical_not_()
        return centres, contexts


def _by_running_statistics(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    """Normalise by the statistics of before the step: call it before the other side moves them."""
    assert norm.running_mean is not None and norm.running_var is not None
    # Copies: a later call may update the originals in place, and the backward pass still needs
    # these values.
    mean = norm.running_mean.clone()
    variance = norm.running_var.clone()
    return F.batch_norm(x, mean, variance, norm.weight, norm.bias, eps=norm.eps)


class ProjectionHead(nn.Module):
    """MSM's projection head (Zhang et al. 2023, section 3.2, and the authors' program).

    Linear, batch normalisation, ReLU, Linear, and batch normalisation without an affine part;
    statistics are those of the batch, in evaluation too.

    Example:
        >>> tuple(ProjectionHead(16)(torch.randn(4, 16)).shape)
        (4, 16)
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear_in = nn.Linear(features, features, bias=False)
        self.norm = nn.BatchNorm1d(features, eps=1e-12, track_running_stats=False)
        self.linear_out = nn.Linear(features, features, bias=False)
        self.norm_out = nn.BatchNorm1d(features, eps=1e-12, affine=False, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        """Project vectors (N, features) to (N, features)."""
        hidden = self.norm(self.linear_in(x.to(self.linear_in.weight.dtype)))
        return self.norm_out(self.linear_out(F.relu(hidden)))
