"""Large batches that pass through the encoder in micro-batches, with the host's gradient caching."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext, has_static_embedding_input
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from st_xlret.losses.base import CrossLingualLoss


class GradientCachedLoss(CachedLossMixin, CrossLingualLoss):
    """A loss on the vectors of one text column whose encoder can run in micro-batches.

    The encoder first runs without gradients and the loss is computed on all vectors together, so that batch statistics
    and negatives are those of the whole batch. In the backward pass each micro-batch runs once more, with the same
    dropout, and receives the gradients of its vectors. This needs memory for the activations of one micro-batch, takes
    about a third more computation, and gives the gradients of a single pass. The host implements it
    (`CachedLossMixin`, Gao et al. 2021). This class adds three things:

    - Micro-batches consist of texts of similar length, and each is as wide as its longest text, which saves padding.
    - Parameters of the loss itself get their gradients in the backward pass, scaled like the loss. The host computes
      them earlier, where loss scaling and gradient accumulation do not reach them.
    - The second run has the autocast state of the first, wherever `backward` is called.

    Args:
        model: The encoder.
        mini_batch_size: Texts per micro-batch; None for one ordinary pass. A `StaticEmbedding`, whose inputs have no
            padding and whose activations are small, always takes one pass.

    Raises:
        ValueError: If `mini_batch_size` is below 1.
    """

    def __init__(self, model: SentenceTransformer, *, mini_batch_size: int | None = None) -> None:
        super().__init__(model)
        if mini_batch_size is not None and mini_batch_size < 1:
            raise ValueError(f"mini_batch_size must be at least 1, or None for one pass, got {mini_batch_size}")
        if mini_batch_size is not None and has_static_embedding_input(model):
            mini_batch_size = None
        self.mini_batch_size = mini_batch_size  # type: ignore[assignment]
        self.uses_gradient_cache = mini_batch_size is not None

    def embed_and_compute(self, features: dict[str, Tensor], compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Embed a column of texts and compute the loss of their vectors.

        Args:
            features: Features of the column.
            compute: Function from sentence vectors (rows, d), in the order of the column, to a scalar.

        Returns:
            The scalar. Its `backward` reaches the encoder and the parameters of the loss.
        """
        if self.mini_batch_size is None:
            return compute(self.model(features)["sentence_embedding"])
        features, place = sort_by_length(features)
        whole = _WholeBatch(compute, place)
        loss = self.forward_cached([features], whole)  # type: ignore[arg-type]
        if whole.own_gradients:
            loss.register_hook(partial(_add_gradients, whole.own_gradients))
        return loss

    def calculate_loss(self, reps: list[list[Tensor]], labels: Any = None, *, with_backward: bool = False) -> Tensor:
        """Compute the loss of the vectors of all micro-batches; `with_backward` stores their gradients in `grad`."""
        whole: _WholeBatch = labels
        loss = whole.compute(torch.cat(reps[0])[whole.place])
        if with_backward:
            own = self.owned_parameters()
            vectors = reps[0]
            gradients = torch.autograd.grad(loss, [*vectors, *own], allow_unused=True)
            for vector, gradient in zip(vectors, gradients, strict=False):
                vector.grad = torch.zeros_like(vector) if gradient is None else gradient
            pairs = zip(own, gradients[len(vectors) :], strict=True)
            whole.own_gradients = [(parameter, g) for parameter, g in pairs if g is not None]
        return loss.detach()

    def embed_minibatch(
        self,
        sentence_feature: dict[str, Tensor],
        begin: int,
        end: int,
        with_grad: bool,
        copy_random_state: bool,
        random_state: Any = None,
    ) -> tuple[Tensor, Any]:
        """Embed a micro-batch; in the backward pass again, with the `random_state` that the first run returned."""
        replay: _Replay | None = random_state
        if replay is not None:
            random_state = replay.random_state
        with nullcontext() if replay is None else replay.autocast():
            vectors, state = super().embed_minibatch(
                sentence_feature, begin, end, with_grad, copy_random_state, random_state
            )
        return vectors, None if state is None else _Replay(state, vectors.device.type)


def sort_by_length(features: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
    """Sort texts by length, the longest first, so that slices hold texts of similar length.

    Args:
        features: Features of a text column. Flattened ones have no padding and stay as they are.

    Returns:
        The sorted features, and the place of each original text in them (rows,).

    Example:
        >>> ids = torch.tensor([[5, 0], [6, 7]])
        >>> features, place = sort_by_length({"input_ids": ids, "attention_mask": (ids > 0).long()})
        >>> features["input_ids"].tolist(), place.tolist()
        ([[6, 7], [5, 0]], [1, 0])
    """
    if "cu_seq_lens_q" in features:
        return features, torch.arange(len(features["cu_seq_lens_q"]) - 1, device=features["cu_seq_lens_q"].device)
    lengths = features["attention_mask"].sum(1)
    order = torch.argsort(lengths, descending=True, stable=True)
    return take_texts(features, order), torch.argsort(order)


def take_texts(features: dict[str, Any], rows: Tensor, *, multiple: int = 1) -> dict[str, Any]:
    """Select some texts of a padded column, trimmed to the longest of them.

    Args:
        features: Features of the column.
        rows: Indices of the texts, integers (n,).
        multiple: The length is a multiple of this, or that of the column if the column is shorter.

    Returns:
        Features of these texts.

    Example:
        >>> ids = torch.tensor([[5, 0], [6, 7]])
        >>> take_texts({"input_ids": ids, "attention_mask": (ids > 0).long()}, torch.tensor([0]))["input_ids"].tolist()
        [[5]]
    """
    count, longest = features["attention_mask"].shape
    used = features["attention_mask"][rows].any(0).nonzero()
    width = min(longest, -(-(int(used.max()) + 1) // multiple) * multiple) if len(used) else longest
    taken = dict(features)
    for name, tensor in features.items():
        if isinstance(tensor, Tensor) and tensor.ndim and len(tensor) == count:
            # Padding before the texts stays: it tells positions.
            padded = tensor.ndim > 1 and tensor.shape[1] == longest
            taken[name] = tensor[rows, :width] if padded else tensor[rows]
    return taken


def backward_one_after_the_other(first: Tensor, then: Tensor) -> Tensor:
    """Return a scalar with the value of `then` whose `backward` runs that of `first` and afterwards that of `then`.

    It is for two losses on one encoder of which `then` may be gradient-cached. The second runs of `then` must not meet
    the backward pass of `first`, and in distributed training the gradients of the encoder are exchanged once, at the
    end. Compute `first` before `then`, within `without_exchange`.

    Example:
        >>> x = torch.ones((), requires_grad=True)
        >>> backward_one_after_the_other(2 * x, 3 * x).backward()
        >>> x.grad
        tensor(5.)
    """
    both = then.detach().requires_grad_()

    def run(scale: Tensor) -> None:
        first.backward(scale)
        then.backward(scale)

    both.register_hook(run)
    return both


def without_exchange(model: nn.Module) -> AbstractContextManager:
    """Return a context in which passes through a distributed encoder leave its gradients on their rank."""
    # torch.compile wraps the distributed encoder.
    model = getattr(model, "_orig_mod", model)
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


@dataclass
class _WholeBatch:
    """What travels through the host's machinery: the loss function, and the gradients of its parameters."""

    compute: Callable[[Tensor], Tensor]
    place: Tensor
    own_gradients: list[tuple[nn.Parameter, Tensor]] = field(default_factory=list)


class _Replay:
    """The random state and autocast state with which the second run of a micro-batch repeats the first."""

    def __init__(self, random_state: RandContext, device: str) -> None:
        self.random_state, self.device = random_state, device
        self.enabled, self.dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def autocast(self) -> torch.autocast:
        # Without the cache: what it holds from the first run was cast without gradients.
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.enabled, cache_enabled=False)


def _add_gradients(gradients: list[tuple[nn.Parameter, Tensor]], scale: Tensor) -> None:
    for parameter, gradient in gradients:
        scaled = (gradient * scale).to(parameter.dtype)
        parameter.grad = scaled if parameter.grad is None else parameter.grad + scaled
