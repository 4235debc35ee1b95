"""InfoNCE and CZ-NCE computed throughout in 16-bit floats, for the study of ML-CTL's floating-point argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.losses.columns import translation_groups

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# What loss scaling does for fp16; in the other types it changes nothing.
GRADIENT_SCALE = 2.0**12
GAPS = [round(0.01 * step, 2) for step in range(161)]


def usual(positive: Tensor, negatives: Tensor) -> Tensor:
    """InfoNCE as it is mostly written: the positive is among what is summed, and is subtracted.

    Args:
        positive: Logits of the positives (A,).
        negatives: Logits of the negatives (A, K).

    Returns:
        Terms (A,), in the type of the logits.

    Example:
        >>> round(usual(torch.zeros(1), torch.zeros(1, 3)).item(), 4)       # log(4)
        1.3863
    """
    return torch.logsumexp(torch.cat([positive[:, None], negatives], dim=1), dim=1) - positive


def softplus(positive: Tensor, negatives: Tensor) -> Tensor:
    """The same function as :func:`usual`, in which small numbers stay apart from large ones."""
    return F.softplus(torch.logsumexp(negatives, dim=1) - positive)


def cz_nce(positive: Tensor, negatives: Tensor) -> Tensor:
    """Eq. 5 of ML-CTL with the arguments of :func:`usual`: the positive is not among what is summed."""
    return torch.logsumexp(negatives, dim=1) - positive


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """The same function as :func:`usual` by PyTorch's own fused operator."""
    labels = torch.zeros(len(positive), dtype=torch.long, device=positive.device)
    return F.cross_entropy(torch.cat([positive[:, None], negatives], dim=1), labels, reduction="none")


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "usual": usual,
    "cross_entropy": cross_entropy,
    "softplus": softplus,
    "cz_nce": cz_nce,
}


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        return grad * ctx.factor, None


def gradient_at(form: str, dtype: torch.dtype, batch_size: int, gap: float, temperature: float = 0.07) -> float:
    """Size of the derivative of one anchor's term by the cosine of its positive.

    Args:
        form: One of ``FORMS``.
        dtype: Type that everything is computed in.
        batch_size: Pairs N in the batch: there are 2(N - 1) negatives.
        gap: How far the positive's cosine lies above those of the negatives, which are all alike.
        temperature: Divisor of the cosines.

    Returns:
        The absolute value.

    Example:
        >>> gradient_at("usual", torch.bfloat16, 8, 1.0), gradient_at("softplus", torch.bfloat16, 8, 1.0) > 0
        (0.0, True)
    """
    positive = torch.tensor([gap], dtype=dtype, requires_grad=True)
    negatives = torch.zeros(1, 2 * batch_size - 2, dtype=dtype)
    FORMS[form](positive / temperature, negatives / temperature).backward(torch.tensor([GRADIENT_SCALE], dtype=dtype))
    assert positive.grad is not None
    return abs(positive.grad.double().item()) / GRADIENT_SCALE


def gradient_curves(
    batch_sizes: Iterable[int], forms: Iterable[str], types: Iterable[str], temperature: float = 0.07
) -> list[dict[str, Any]]:
    """For each loss, type and batch size the gradient by gap, and the gaps at which it goes wrong.

    Args:
        batch_sizes: Pairs per batch.
        forms: Out of ``FORMS``.
        types: Out of ``TYPES``.
        temperature: Divisor of the cosines.

    Returns:
        A record for each, with ``gradient`` at each of ``gaps``, and the first gaps at which it is exactly 0
        (``zero_from``) and a tenth off what float64 gives (``wrong_by_a_tenth_from``), None for never.
    """
    curves = []
    forms, types = list(forms), list(types)
    for batch_size in batch_sizes:
        for form in forms:
            exact = [gradient_at(form, torch.float64, batch_size, gap, temperature) for gap in GAPS]
            for name in types:
                sizes = [gradient_at(form, TYPES[name], batch_size, gap, temperature) for gap in GAPS]
                off = [abs(size / true - 1) > 0.1 for size, true in zip(sizes, exact, strict=True)]
                curves.append(
                    {
                        "batch_size": batch_size,
                        "loss": form,
                        "type": name,
                        "gaps": GAPS,
                        "gradient": sizes,
                        "zero_from": _first(GAPS, [size == 0 for size in sizes]),
                        "wrong_by_a_tenth_from": _first(GAPS, off),
                    }
                )
    return curves


def _first(values: list[float], flags: list[bool]) -> float | None:
    return next((value for value, flag in zip(values, flags, strict=True) if flag), None)


def plot_gradients(curves: list[dict[str, Any]], path: str | Path) -> Path | None:
    """Draw the curves of :func:`gradient_curves`, a panel per type.

    Args:
        curves: The records.
        path: PNG file, written whole or not at all.

    Returns:
        The file, or None where matplotlib is not installed (extra ``plots``).
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return None
    types = list(dict.fromkeys(curve["type"] for curve in curves))
    figure, axes = plt.subplots(1, len(types), figsize=(5 * len(types), 4), sharey=True, squeeze=False)
    colours = {"usual": "tab:red", "cross_entropy": "tab:orange", "softplus": "tab:blue", "cz_nce": "tab:green"}
    sizes = sorted({curve["batch_size"] for curve in curves})
    for axis, name in zip(axes[0], types, strict=True):
        for curve in (c for c in curves if c["type"] == name):
            drawn = [size or float("nan") for size in curve["gradient"]]
            style = ["-", "--", ":"][sizes.index(curve["batch_size"]) % 3]
            label = f"{curve['loss']}, batch {curve['batch_size']}"
            axis.plot(curve["gaps"], drawn, style, color=colours[curve["loss"]], label=label)
        axis.set(title=name, xlabel="cosine gap", yscale="log")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("gradient of the positive's cosine")
    axes[0][-1].legend(fontsize="x-small")
    figure.tight_layout()
    temporary = Path(path).with_suffix(".tmp.png")
    try:
        figure.savefig(temporary, dpi=120)
        return temporary.replace(path)
    finally:
        plt.close(figure)
        temporary.unlink(missing_ok=True)


class LossInType(SemanticContrastiveLoss):
    """A loss over parallel sentences that computes in a given type from the cosines on.

    Pairs that have a text in common are no negatives of each other, as in the house's losses.

    Args:
        model: The encoder.
        form: One of ``FORMS``.
        dtype: Type of cosines, logits and terms.
        temperature: Divisor of the cosines.

    Attributes:
        gaps: Of each training batch, the mean distance of the positive's cosine from the hardest negative's.
    """

    def __init__(self, model: SentenceTransformer, form: str, dtype: torch.dtype, temperature: float = 0.07) -> None:
        super().__init__(model, temperature=temperature)
        self.form, self.dtype = FORMS[form], dtype
        self.gaps: list[float] = []

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Mean over the 2N anchors; gradients are scaled while they are in the type, as loss scaling does."""
        unit = F.normalize(torch.cat([source, target]).float(), dim=1)
        z = _ScaleGradient.apply(unit, 1 / GRADIENT_SCALE).to(self.dtype)
        cosines = z @ z.T
        group = translation_groups(tags["text_id"])
        same = group[:, None] == group
        positive = torch.cat([cosines.diagonal(len(source))] * 2)
        used = ~same.all(dim=1)
        if not used.any():
            return unit.sum() * 0
        if self.updates_state:
            hardest = cosines.detach().masked_fill(same, -1).amax(dim=1)
            self.gaps.append((positive.detach() - hardest)[used].float().mean().item())
        negatives = (cosines / self.temperature).masked_fill(same, torch.finfo(self.dtype).min / 4)
        terms = self.form(positive[used] / self.temperature, negatives[used])
        return _ScaleGradient.apply(terms.float(), GRADIENT_SCALE).mean()
