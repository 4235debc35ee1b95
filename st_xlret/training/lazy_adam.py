"""AdamW that leaves alone what a batch does not touch: for static encoders, whose gradients are sparse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

_PARTS = "_gradient_parts"
_ROWS_AT_ONCE = 256  # of the table: what is computed of them stays in the cache


class GradientPart(NamedTuple):
    """The gradient of a table from one forward pass, before it is spread over the rows.

    Attributes:
        rows: Row of the table that each token takes, (tokens,).
        offsets: First token of each bag, (bags,).
        of_bags: Gradient of each bag's mean, (bags, features).
    """

    rows: Tensor
    offsets: Tensor
    of_bags: Tensor


class LazyEmbeddingBag(nn.EmbeddingBag):
    """Means of bags of rows, whose backward pass leaves the gradient to `LazyAdamW`.

    A dense gradient is as large as the table, and a sparse tensor still has a row of features for every token. The
    gradients of the bags, kept as they are, hold the same in far fewer numbers. Without LazyAdamW the table is not
    trained. Shape and weights are those of an `EmbeddingBag` of mode "mean".

    Example:
        >>> table = LazyEmbeddingBag(5, 2)
        >>> optimizer = LazyAdamW(table.parameters(), lr=0.1)
        >>> before = table.weight.detach().clone()
        >>> table(torch.tensor([1, 3]), torch.tensor([0])).sum().backward()
        >>> optimizer.step()
        >>> (table.weight != before).any(dim=1).tolist()
        [False, True, False, True, False]
    """

    def forward(self, input: Tensor, offsets: Tensor) -> Tensor:  # type: ignore[override]
        """Means of rows, (bags, features); zeros for an empty bag.

        Args:
            input: Rows, one bag after the other, (tokens,).
            offsets: First token of each bag, (bags,).
        """
        return _MeansOfBags.apply(self.weight, input, offsets)


class _MeansOfBags(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(rows, offsets)
        ctx.table = weight
        return F.embedding_bag(rows, weight, offsets, mode="mean")

    @staticmethod
    def backward(ctx: Any, of_bags: Tensor) -> tuple[None, None, None]:  # type: ignore[override]
        rows, offsets = ctx.saved_tensors
        ctx.table.__dict__.setdefault(_PARTS, []).append(GradientPart(rows, offsets, of_bags))
        return None, None, None


class LazyAdamW(torch.optim.AdamW):
    """AdamW for all parameters; for those of a `LazyEmbeddingBag`, only on the rows that a batch holds.

    A batch touches a few per cent of a vocabulary. Plain AdamW still moves every row of the table, by the momentum of
    old gradients, and pays for all of them; here rows rest until their token comes again, as in
    `SparseAdam`. Parameters and options are AdamW's.
    """

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for parameter, _ in self._with_groups():
            parameter.__dict__.pop(_PARTS, None)
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        """One update.

        Raises:
            ValueError: If there is a closure, which no Trainer has.
        """
        if closure is not None:
            raise ValueError("LazyAdamW takes no closure")
        super().step()
        for parameter, group in self._with_groups():
            parts = parameter.__dict__.pop(_PARTS, None)
            if parts:
                self._step_rows(parameter, parts, group)

    def _with_groups(self) -> list[tuple[Tensor, dict[str, Any]]]:
        return [(parameter, group) for group in self.param_groups for parameter in group["params"]]

    def _step_rows(self, table: Tensor, parts: list[GradientPart], group: dict[str, Any]) -> None:
        state = self.state[table]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
        state["step"] += 1
        (beta1, beta2), step, rate = group["betas"], float(state["step"]), float(group["lr"])
        for rows, gradient in gradients_of_rows(parts):
            first = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - beta1)
            second = state["exp_avg_sq"].index_select(0, rows).mul_(beta2)
            second.addcmul_(gradient, gradient, value=1 - beta2)
            state["exp_avg"].index_copy_(0, rows, first)
            state["exp_avg_sq"].index_copy_(0, rows, second)
            denominator = second.sqrt_().div_((1 - beta2**step) ** 0.5).add_(group["eps"])
            update = first.div_(denominator).mul_(-rate / (1 - beta1**step))
            if group["weight_decay"]:
                update.add_(table.index_select(0, rows), alpha=-rate * group["weight_decay"])
            table.index_add_(0, rows, update)


def gradients_of_rows(parts: list[GradientPart]) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of a table, each one once, with their gradients, (rows,) and (rows, features), a few at a time."""
    bags, shares, first_bag = [], [], 0
    for part in parts:
        lengths = torch.diff(part.offsets, append=part.offsets.new_tensor([len(part.rows)]))
        of_token = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
        bags.append(of_token + first_bag)
        shares.append((1 / lengths.to(part.of_bags.dtype))[of_token])
        first_bag += len(lengths)
    of_bags = torch.cat([part.of_bags for part in parts])
    ordered, order = torch.sort(torch.cat([part.rows for part in parts]), stable=True)
    bag, share = torch.cat(bags)[order], torch.cat(shares)[order]
    rows, counts = torch.unique_consecutive(ordered, return_counts=True)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        here = starts[first : first + _ROWS_AT_ONCE + 1]
        tokens = slice(int(here[0]), int(here[-1]))
        # Sums of rows with weights are what embedding_bag computes: here of the bags that a row stands in.
        yield (
            rows[first : first + _ROWS_AT_ONCE],
            F.embedding_bag(bag[tokens], of_bags, here[:-1] - here[0], mode="sum", per_sample_weights=share[tokens]),
        )


def use_lazy_adam(trainer: SentenceTransformerTrainer) -> None:
    """Make a static encoder's table a LazyEmbeddingBag, and LazyAdamW the optimizer of a trainer.

    The parameter groups, learning rates (`learning_rate_mapping` too), betas and weight decay stay those
    that the training arguments say.

    Args:
        trainer: A trainer of a static encoder that has not started.

    Raises:
        ValueError: If the encoder is no StaticEmbedding, gradients are to be clipped (there is no whole gradient
            to take the norm of), or the run has several processes.
    """
    model = trainer.model
    encoder = model[0] if isinstance(model, SentenceTransformer) else None
    if not isinstance(encoder, StaticEmbedding):
        raise ValueError(f"only a static encoder has sparse gradients, this one is a {type(encoder).__name__}")
    if trainer.args.max_grad_norm:
        raise ValueError(f"sparse gradients cannot be clipped: set max_grad_norm={trainer.args.max_grad_norm} to 0")
    if trainer.args.world_size > 1:
        raise ValueError(f"sparse gradients are for one process, this run has {trainer.args.world_size}")
    weight = encoder.embedding.weight
    encoder.embedding = LazyEmbeddingBag(weight.shape[0], weight.shape[1], _weight=weight)
    encoder.embedding.weight = weight  # the very parameter: others may hold it
    _, options = trainer.get_optimizer_cls_and_kwargs(trainer.args, model)
    known = ("optimizer_dict", "params", "lr", "betas", "eps")
    trainer.optimizer_cls_and_kwargs = (LazyAdamW, {k: v for k, v in options.items() if k in known})
