"""InfoNCE or CZ-NCE on parallel sentences, computed entirely in fp32, bf16 or fp16.

    python -m training_scripts.studies.train_float --form usual --type bf16 --model M --pairs pairs/ --output_dir runs/f

ML-CTL leaves the positive out of the denominator of InfoNCE because "the loss will soon approach 0, which is at the
same magnitude with the floating-point error". Two effects are mixed in this argument: the gradient of InfoNCE fades as
the positive wins, in any arithmetic; and the way it is written decides when it is lost in rounding. results.json has
the `gaps` between the cosines of the positive and of the hardest negative in each batch, and `zero_from`, the gap from
which the gradient is exactly 0 in a batch of this size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret import CrossLingualTrainer, SemanticContrastiveLoss
from st_xlret.losses.embedding import translation_groups
from st_xlret.options import option, parse
from st_xlret.training.data import DataArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from st_xlret.training.script import Run, TrainingArguments, run_script

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# As loss scaling does for fp16. In the other types it changes nothing.
GRADIENT_SCALE = 2.0**12


def usual(positive: Tensor, negatives: Tensor) -> Tensor:
    """InfoNCE as it is usually written, of logits of the positives (A,) and of the negatives (A, K): terms (A,)."""
    return torch.cat([positive[:, None], negatives], dim=1).logsumexp(dim=1) - positive


def cross_entropy(positive: Tensor, negatives: Tensor) -> Tensor:
    """The same function by PyTorch's own operator."""
    logits = torch.cat([positive[:, None], negatives], dim=1)
    return F.cross_entropy(logits, torch.zeros(len(positive), dtype=torch.long), reduction="none")


def softplus(positive: Tensor, negatives: Tensor) -> Tensor:
    """The same function as in `st_xlret.functional`, without the difference of two nearly equal numbers."""
    return F.softplus(torch.logsumexp(negatives, dim=1) - positive)


def cz_nce(positive: Tensor, negatives: Tensor) -> Tensor:
    """Another function, Eq. 5 of ML-CTL: the positive is not part of the sum."""
    return torch.logsumexp(negatives, dim=1) - positive


FORMS = {form.__name__: form for form in (usual, cross_entropy, softplus, cz_nce)}


def gradient_at(form: str, dtype: torch.dtype, batch_size: int, gap: float, temperature: float = 0.07) -> float:
    """Size of the derivative of an anchor's term with respect to the cosine of its positive.

    The negatives' cosines are all smaller by `gap`; there are 2(N - 1) of them in a batch of N pairs.

    Example:
        >>> gradient_at("usual", torch.bfloat16, 8, 1.0), gradient_at("softplus", torch.bfloat16, 8, 1.0) > 0
        (0.0, True)
    """
    positive = torch.tensor([gap], dtype=dtype, requires_grad=True)
    negatives = torch.zeros(1, 2 * batch_size - 2, dtype=dtype)
    FORMS[form](positive / temperature, negatives / temperature).backward(torch.tensor([GRADIENT_SCALE], dtype=dtype))
    assert positive.grad is not None
    return abs(positive.grad.double().item()) / GRADIENT_SCALE


def zero_from(form: str, dtype: torch.dtype, batch_size: int, temperature: float = 0.07) -> float | None:
    """The smallest gap up to 1.6 from which the gradient is exactly 0; None if there is none."""
    gaps = (step / 100 for step in range(161))
    return next((gap for gap in gaps if gradient_at(form, dtype, batch_size, gap, temperature) == 0), None)


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:  # type: ignore[override]
        return grad * ctx.factor, None


class LossInType(SemanticContrastiveLoss):
    """A loss over parallel sentences that is computed in a given type, from the cosines on.

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


@dataclass
class FloatArguments:
    """The method."""

    form: str = option("usual", "The loss.", choices=list(FORMS))
    type: str = option("fp32", "The type that it is computed in.", choices=list(TYPES))
    temperature: float = option(0.07, "Temperature. The paper's is 0.07.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [PretrainingEncoderArguments, DataArguments, FloatArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run("-m training_scripts.studies.train_float", arguments, args, encoder, data, method)
    pairs, _ = data.load_pairs(args.seed)
    if pairs is None:
        raise ValueError("there is nothing to train on: give --pairs")
    model = encoder.load([(pairs, side, f"{side}_language") for side in ("source", "target")], args)
    loss = LossInType(model, method.form, TYPES[method.type], method.temperature)
    trainer = CrossLingualTrainer(model, args, pairs, loss=loss)
    zero = zero_from(method.form, TYPES[method.type], args.per_device_train_batch_size, method.temperature)
    about: dict[str, Any] = {"pairs": len(pairs), "zero_from": zero, "gaps": loss.gaps}
    return run.train_and_save(trainer, about, tag=method.form)


if __name__ == "__main__":
    run_script(main)
