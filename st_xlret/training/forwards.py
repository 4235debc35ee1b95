"""Modules of a model that compute in another way for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import nn


@contextmanager
def other_forward(modules: Iterable[nn.Module], forward: Callable[..., Any]) -> Iterator[None]:
    """A context in which `forward` is called in place of the modules' own one.

    Afterwards each module has the one that it had before. A module that has this one already keeps it.

    Args:
        modules: The modules.
        forward: Is called with the module, the module's own `forward`, and the arguments.

    Example:
        >>> import torch
        >>> layer = nn.Identity()
        >>> with other_forward([layer], lambda module, own, values: 2 * own(values)):
        ...     doubled = layer(torch.tensor(3))
        >>> doubled.item(), layer(torch.tensor(3)).item()
        (6, 3)
    """
    with ExitStack() as stack:
        for module in modules:
            own = vars(module).get("forward")
            if isinstance(own, partial) and own.func is forward:
                continue
            stack.callback(_restore, module, own)
            module.forward = partial(forward, module, module.forward)  # type: ignore[method-assign]
        yield


def _restore(module: nn.Module, forward: Any) -> None:
    if forward is None:
        vars(module).pop("forward", None)
    else:
        module.forward = forward
