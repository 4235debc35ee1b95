"""AdamW that leaves alone what a batch does not touch: for encoders whose gradients are sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

SPARSE_GRADIENT = "_sparse_gradient"


class LazyAdamW(torch.optim.AdamW):
    """AdamW for dense gradients; for sparse ones, the same on the rows that the gradient holds.

    A batch touches a few per cent of a vocabulary. Plain AdamW still moves every row of the table, by the
    momentum of old gradients, and pays for all of them; here rows rest until their token comes again, as in
    :class:`torch.optim.SparseAdam` (which takes sparse gradients only). Parameters and options are AdamW's.

    Example:
        >>> table = torch.nn.EmbeddingBag(5, 2, sparse=True)
        >>> optimizer = LazyAdamW(table.parameters(), lr=0.1)
        >>> before = table.weight.detach().clone()
        >>> table(torch.tensor([[1, 3]])).sum().backward()
        >>> optimizer.step()
        >>> (table.weight != before).any(dim=1).tolist()
        [False, True, False, True, False]
    """

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, **options)
        for parameter, _ in self._with_groups():
            parameter.register_post_accumulate_grad_hook(_set_aside)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for parameter, _ in self._with_groups():
            parameter.__dict__.pop(SPARSE_GRADIENT, None)
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
            gradient = parameter.__dict__.pop(SPARSE_GRADIENT, None)
            if gradient is not None:
                self._step_rows(parameter, gradient.coalesce(), group)

    def _with_groups(self) -> list[tuple[Tensor, dict[str, Any]]]:
        return [(parameter, group) for group in self.param_groups for parameter in group["params"]]

    def _step_rows(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        rows, values = gradient.indices()[0], gradient.values()
        (beta1, beta2), step, rate = group["betas"], float(state["step"]), float(group["lr"])
        first = state["exp_avg"].index_select(0, rows).lerp_(values, 1 - beta1)
        second = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(values, values, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, first)
        state["exp_avg_sq"].index_copy_(0, rows, second)
        denominator = second.sqrt_().div_((1 - beta2**step) ** 0.5).add_(group["eps"])
        update = first.div_(denominator).mul_(-rate / (1 - beta1**step))
        if group["weight_decay"]:
            update.add_(parameter.index_select(0, rows), alpha=-rate * group["weight_decay"])
        parameter.index_add_(0, rows, update)


def _set_aside(parameter: Tensor) -> None:
    """Take a sparse gradient out of ``.grad``: the norms of the Trainer's every step know dense ones only."""
    if parameter.grad is not None and parameter.grad.is_sparse:
        earlier = parameter.__dict__.get(SPARSE_GRADIENT)
        parameter.__dict__[SPARSE_GRADIENT] = parameter.grad if earlier is None else earlier + parameter.grad
        parameter.grad = None


def use_lazy_adam(trainer: SentenceTransformerTrainer) -> None:
    """Make a static encoder's gradients sparse, and LazyAdamW the optimizer of a trainer.

    The parameter groups, learning rates (``learning_rate_mapping`` too), betas and weight decay stay those
    that the training arguments say.

    Args:
        trainer: A trainer of a static encoder that has not started.

    Raises:
        ValueError: If the encoder is no StaticEmbedding, gradients are to be clipped (no norm of a sparse
            gradient is defined), or the run has several processes.
    """
    model = trainer.model
    encoder = model[0] if isinstance(model, SentenceTransformer) else None
    if not isinstance(encoder, StaticEmbedding):
        raise ValueError(f"only a static encoder has sparse gradients, this one is a {type(encoder).__name__}")
    if trainer.args.max_grad_norm:
        raise ValueError(f"sparse gradients cannot be clipped: set max_grad_norm={trainer.args.max_grad_norm} to 0")
    if trainer.args.world_size > 1:
        raise ValueError(f"sparse gradients are for one process, this run has {trainer.args.world_size}")
    encoder.embedding.sparse = True
    _, options = trainer.get_optimizer_cls_and_kwargs(trainer.args, model)
    known = ("optimizer_dict", "params", "lr", "betas", "eps")
    trainer.optimizer_cls_and_kwargs = (LazyAdamW, {k: v for k, v in options.items() if k in known})
