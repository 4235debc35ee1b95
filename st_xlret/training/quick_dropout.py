"""Dropout on a CPU, where drawing what to drop takes longer than most layers that it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from st_xlret.training.forwards import other_forward

_LEVELS = 1 << 16


def quick_dropout(values: Tensor, share: float) -> Tensor:
    """Set random values to zero and scale the others, as `torch.nn.functional.dropout` does in training.

    Whether a value is kept is decided by 16 random bits, and four values share a random number of PyTorch's generator.
    PyTorch draws one for each value, which takes seven times as long on a CPU. Compiled functions call PyTorch's own
    dropout.

    Args:
        values: Values of any shape, on a CPU.
        share: The share of values to drop, in [0, 1]. It is rounded to a multiple of 1 / 65536.

    Returns:
        The values (same shape).

    Raises:
        ValueError: If the share is not in [0, 1].

    Example:
        >>> values = torch.ones(3, 5)
        >>> bool((quick_dropout(values, 0.5) % 2 == 0).all()), bool((quick_dropout(values, 0) == values).all())
        (True, True)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of values to drop must be in [0, 1], got {share}")
    if torch.compiler.is_compiling():
        return F.dropout(values, share)
    dropped = round(share * _LEVELS)
    if dropped == 0:
        return values
    if dropped == _LEVELS:
        return values * 0
    # All 64 bits of the generator's numbers: without a range, the highest one is never set.
    numbers = torch.empty(-(-values.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    bits = numbers.view(torch.int16)[: values.numel()].view(values.shape)
    kept = torch.empty(values.shape, dtype=values.dtype)
    torch.ge(bits, dropped - _LEVELS // 2, out=kept)
    return values * kept.mul_(_LEVELS / (_LEVELS - dropped))


@contextmanager
def quick_dropout_layers(model: nn.Module) -> Iterator[None]:
    """A context in which the dropout layers of a model call `quick_dropout` in training, but for those in place.

    Args:
        model: Any model on a CPU.

    Example:
        >>> layer = nn.Dropout(0.5).train()
        >>> with quick_dropout_layers(layer):
        ...     dropped = layer(torch.ones(4))
        >>> set(dropped.tolist()) <= {0.0, 2.0}
        True
    """
    layers = [module for module in model.modules() if type(module) is nn.Dropout and not module.inplace]
    with other_forward(layers, _forward):
        yield


def _forward(module: nn.Dropout, own: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    return quick_dropout(values, module.p) if module.training else values
