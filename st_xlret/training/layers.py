"""How the layers of an encoder compute while it is trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from st_xlret.modules.encoders import outermost_transformers


@contextmanager
def changed_dropout(model: nn.Module, dropout: float | None) -> Iterator[None]:
    """A context in which the layers of an encoder have another dropout; None changes nothing."""
    before = []
    if dropout is not None:
        for module in model.modules():
            for name in _dropout_names(module):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, dropout)
    try:
        yield
    finally:
        for module, name, share in before:
            setattr(module, name, share)


def _dropout_names(module: nn.Module) -> list[str]:
    """The attributes of a module that are the share that it drops."""
    names = []
    for name, value in vars(module).items():
        # Attention has its dropout as a number.
        says_dropout = "dropout" in name and not isinstance(module, nn.Dropout)
        is_share_of_layer = name == "p" and isinstance(module, nn.Dropout)
        if (says_dropout or is_share_of_layer) and type(value) in (int, float):
            names.append(name)
    return names


@contextmanager
def changed_attention(model: nn.Module, attention: str | None) -> Iterator[None]:
    """A context in which an encoder has another of the host's attentions; None changes nothing."""
    before: list[tuple[PreTrainedModel, Any]] = []
    if attention is not None:
        for transformer in outermost_transformers(model):
            before.append((transformer, transformer.config._attn_implementation))
            transformer.set_attn_implementation(attention)
    try:
        yield
    finally:
        for transformer, implementation in before:
            transformer.set_attn_implementation(implementation)
