"""Cross-entropy over large vocabularies."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from st_xlret.functional.tensors import at_least_float32, check_integers_per_row, check_matrices

__all__ = ["chunked_cross_entropy"]

# That are held at a time (4 bytes each): products with fewer rows of a vocabulary are slower.
_MOST_LOGITS = 2**25


def chunked_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor
) -> Tensor:
    """Mean cross-entropy over a large vocabulary, computed without holding all logits at once.

    It equals `F.cross_entropy(F.linear(hidden, weight, bias).float(), labels)`, and 0 for no rows.
    At most 134 MB of logits are held at a time, and become gradients at once: the graph can be
    passed backwards once. The matrix products use autocast's type. This is the loss of masked
    language modelling (BERT, Devlin et al. 2019; MSM, Eq. 3).

    Args:
        hidden: Vectors before the projection (M, d).
        weight: Projection (V, d), for example the tied input embeddings. A frozen one saves its
            gradient's memory.
        bias: Bias (V,) or None.
        labels: Target rows of `weight`, integers (M,).

    Example:
        >>> hidden, weight = torch.zeros(3, 8), torch.zeros(100, 8)
        >>> loss = chunked_cross_entropy(hidden, weight, None, torch.tensor([1, 2, 3]))
        >>> round(loss.item(), 4)                               # log(100)
        4.6052
    """
    check_matrices(hidden=hidden, weight=weight)
    check_integers_per_row(len(hidden), labels=labels)
    device = hidden.device.type
    kind = weight.dtype
    if torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        loss: Tensor = _CrossEntropy.apply(
            hidden, weight, bias, labels.long(), kind, torch.is_grad_enabled()
        )
        return loss


class _CrossEntropy(torch.autograd.Function):
    """The mean over the rows. Its gradients are made in the forward pass, from the logits."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        kind: torch.dtype,
        learns: bool,
    ) -> Tensor:
        """The mean for `hidden` (M, h), `weight` (V, h) and `labels` (M,).

        Products are of the type `kind`. Without `learns` no gradients are made.
        """
        wide = at_least_float32(hidden.new_zeros(())).dtype

        def gradient_of(x: Tensor | None, place: int) -> Tensor | None:
            if x is None or not learns or not ctx.needs_input_grad[place]:
                return None
            return torch.zeros_like(x, dtype=wide)

        hidden_gradient = gradient_of(hidden, 0)
        weight_gradient = gradient_of(weight, 1)
        bias_gradient = gradient_of(bias, 2)
        x = hidden.to(kind)
        projection = weight.to(kind)
        total = hidden.new_zeros((), dtype=wide)
        rows = max(1, _MOST_LOGITS // len(weight))
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            logits = (x[part] @ projection.T).to(wide)
            if bias is not None:
                logits.add_(bias)
            label = labels[part, None]
            total -= logits.gather(1, label).sum()
            log_normalizers, error = _log_normalizers_and_errors(logits, label)
            total += log_normalizers.sum()
            error.div_(len(x))
            if hidden_gradient is not None:
                hidden_gradient[part] = (error.to(kind) @ projection).to(wide)
            if weight_gradient is not None:
                weight_gradient.addmm_(error.T, x[part].to(wide))
            if bias_gradient is not None:
                bias_gradient += error.sum(dim=0)
            del logits, error  # before the next ones are computed
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        return total / max(1, len(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the forward pass times `factor`, which is that of the mean."""
        scaled: list[Tensor | None] = []
        for gradient in ctx.saved_tensors:
            if gradient is not None and factor != 1:
                # In place: the gradient of a large vocabulary is not held twice. PyTorch refuses
                # the second use by itself.
                gradient.mul_(factor)
            scaled.append(gradient)
        return *scaled, None, None, None


def _log_normalizers_and_errors(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's logsumexp (n, 1), and softmax minus one-hot label (n, V).

    The second takes the place of the logits, which are overwritten. `label` is (n, 1).
    """
    largest = logits.amax(dim=1, keepdim=True)
    exponentials = logits.sub_(largest).exp_()
    normalizer = exponentials.sum(dim=1, keepdim=True)
    minus_one = exponentials.new_full(label.shape, -1)
    error = exponentials.div_(normalizer).scatter_add_(1, label, minus_one)
    return largest + normalizer.log(), error
