"""InfoNCE and CZ-NCE computed entirely in 16-bit floats, for the study of ML-CTL's floating-point argument."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.files import atomic_file
from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.losses.columns import translation_groups

logger = logging.getLogger(__name__)

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# As loss scaling does for fp16. In the other types it changes nothing.
GRADIENT_SCALE = 2.0**12
GAPS = [round(0.01 * step, 2) for step in range(161)]


def usual(positive: Tensor, negatives: Tensor) -> Tensor:
    """InfoNCE as it is usually written: the positive is part of the sum, and is subtracted from its logarithm.

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
    """The same function as `usual`, without the difference of two nearly equal numbers."""
    return F.softplus(torch.logsumexp(negatives, dim=1) - positive)


def cz_nce(positive: Tensor, negatives: Tensor) -> Tensor:
    """Eq. 5 of ML-CTL with the arguments of `usual`: the positive is not part of the sum."""
    return torch.logsumexp(negatives, dim=1) - positive


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """The same function as `usual`, by PyTorch's own fused operator."""
    labels = torch.zeros(len(positive), dtype=torch.long, device=positive.device)
    return F.cross_entropy(torch.cat([positive[:, None], negatives], dim=1), labels, reduction="none")


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "usual": usual,
    "cross_entropy": cross_entropy,
    "softplus": softplus,
    "cz_nce": cz_nce,
}


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        return grad * ctx.factor, None


def gradient_at(form: str, dtype: torch.dtype, batch_size: int, gap: float, temperature: float = 0.07) -> float:
    """Compute the size of the derivative of one anchor's term with respect to the cosine of its positive.

    Args:
        form: One of `FORMS`.
        dtype: Type of the whole computation.
        batch_size: Pairs N in the batch: there are 2(N - 1) negatives.
        gap: Difference of the cosine of the positive and those of the negatives, which are all alike.
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
    """Compute the gradient by gap for each loss, type and batch size, and the gaps from which it is wrong.

    Args:
        batch_sizes: Pairs per batch.
        forms: Names in `FORMS`.
        types: Names in `TYPES`.
        temperature: Divisor of the cosines.

    Returns:
        A record for each, with the `gradient` at each of `gaps`, and the first gaps at which it is exactly 0
        (`zero_from`) and 10 % off its value in float64 (`wrong_by_a_tenth_from`); None for never.
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


def plot_gradients(curves: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> Path | None:
    """Draw the curves of `gradient_curves`: a column for each type, a row for each batch size.

    The forms of InfoNCE coincide until their gradient is lost, so that they are drawn on top of each other, the widest
    line first. A mark and a label show where each of them ends.

    Args:
        curves: The records.
        path: PNG file.

    Returns:
        The file, or None where matplotlib is not installed (extra `plots`).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning('%s is not drawn, as matplotlib is not installed: pip install "st-xlret[plots]"', path)
        return None
    types = list(dict.fromkeys(curve["type"] for curve in curves))
    sizes = sorted({curve["batch_size"] for curve in curves})
    figure = Figure(figsize=(1 + 3.8 * len(types), 0.6 + 2.9 * len(sizes)), layout="constrained")
    panels = figure.subplots(len(sizes), len(types), sharex=True, sharey=True, squeeze=False)
    for row, size in zip(panels, sizes, strict=True):
        for panel, name in zip(row, types, strict=True):
            found = {c["loss"]: c for c in curves if (c["type"], c["batch_size"]) == (name, size)}
            for form in (form for form in _STYLES if form in found):
                _draw_curve(panel, found[form])
            panel.set(title=f"{name}, batch of {size}", yscale="log", xlim=(0, GAPS[-1]), ylim=(1e-8, 300))
            panel.grid(alpha=0.3)
    figure.supxlabel("gap between the cosine of the positive and those of the negatives")
    figure.supylabel("size of the gradient with respect to the cosine of the positive")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120)
    return Path(path)


# Of each loss: its name, how its line and the mark at its end are drawn, and where in a panel its name stands.
_STYLES: dict[str, tuple[str, dict[str, Any], tuple[float, float]]] = {
    "softplus": ("InfoNCE, softplus", {"color": "lightskyblue", "linewidth": 6}, (0.63, 0.06)),
    "cross_entropy": (
        "InfoNCE, cross_entropy",
        {"color": "chocolate", "linewidth": 2.5, "marker": "s", "markersize": 7},
        (0.52, 0.74),
    ),
    "usual": (
        "InfoNCE, usual",
        {"color": "black", "linewidth": 1, "linestyle": "--", "marker": "o", "markersize": 4},
        (0.04, 0.24),
    ),
    "cz_nce": ("CZ-NCE", {"color": "green", "linewidth": 2, "linestyle": "-."}, (0.72, 0.92)),
}


def _draw_curve(panel: Any, curve: dict[str, Any]) -> None:
    name, style, place = _STYLES[curve["loss"]]
    end = len(GAPS) if curve["zero_from"] is None else GAPS.index(curve["zero_from"])
    last = end - 1
    panel.plot(GAPS[:end], curve["gradient"][:end], markevery=[last], **style)
    text, arrow = name, None
    if curve["zero_from"] is not None:
        text = f"{name}:\n0 from {curve['zero_from']:.2f}"
        arrow = {"arrowstyle": "-", "color": style["color"], "linewidth": 0.8, "shrinkB": 4}
    panel.annotate(
        text,
        (GAPS[last], curve["gradient"][last]),
        xytext=place,
        textcoords="axes fraction",
        color="steelblue" if curve["loss"] == "softplus" else style["color"],
        fontsize=8,
        arrowprops=arrow,
    )


class LossInType(SemanticContrastiveLoss):
    """A loss over parallel sentences that is computed in a given type, from the cosines on.

    Pairs that have a text in common are not negatives of each other, as in the losses of the package.

    Args:
        model: The encoder.
        form: One of `FORMS`.
        dtype: Type of cosines, logits and terms.
        temperature: Divisor of the cosines.

    Attributes:
        gaps: For each training batch, the mean difference of the cosines of the positive and the hardest negative.
    """

    def __init__(self, model: SentenceTransformer, form: str, dtype: torch.dtype, temperature: float = 0.07) -> None:
        super().__init__(model, temperature=temperature)
        self.form, self.dtype = FORMS[form], dtype
        self.gaps: list[float] = []

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the mean over the 2N anchors. Gradients are scaled while they are in the type, as by loss scaling."""
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
