"""What tells models apart: a hash of all that decides which vectors they give."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedModel

# Entries of a configuration that differ between copies of a model.
_OF_ONE_COPY = ("_name_or_path", "architectures", "dtype", "transformers_version")


def fingerprint(model: nn.Module) -> str:
    """Hash of a model's weights, their types, its configuration and tokenizers, in 32 digits.

    It is the same wherever the model was loaded from. Indexes keep it, and `st-xlret search`
    compares it: a hash of something else makes every index one of another model.
    """
    digest = hashlib.sha256()
    for part in model.modules():
        items = sorted(_settings_of(part).items(), key=str)
        described = f"{type(part).__qualname__} {items}"
        digest.update(described.encode())
        if part is not model:  # whose tokenizer is that of a part
            digest.update(_tokenizer_of(part).encode())
    for name, tensor in sorted(model.state_dict().items()):
        described = f"{name} {tensor.dtype} {tuple(tensor.shape)}"
        digest.update(described.encode())
        weights = tensor.detach().cpu().contiguous().reshape(-1)
        content = weights.view(torch.uint8).numpy()
        digest.update(content.data)
    return digest.hexdigest()[:32]


def _settings_of(part: nn.Module) -> dict[str, Any]:
    """What a module does beside its weights: what `fingerprint` tells models apart by."""
    config_of: Callable[[], dict[str, Any]] = getattr(part, "get_config_dict", dict)
    settings = dict(config_of())
    for name in ("max_seq_length", "truncate_dim", "do_lower_case"):
        settings[name] = getattr(part, name, None)
    if isinstance(part, PreTrainedModel):
        of_parts = part.config.sub_configs
        for name, value in part.config.to_dict().items():
            if name not in _OF_ONE_COPY and name not in of_parts:
                settings[name] = value
    return settings


def _tokenizer_of(part: nn.Module) -> str:
    """The text of a module's tokenizer, "" if it has none that is fast."""
    tokenizer = getattr(part, "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        return ""
    # Before the tokens stand truncation and padding, which are those of earlier calls.
    _, _, tokens = backend.to_str().partition('"added_tokens"')
    return f"{getattr(tokenizer, 'padding_side', '')} {tokens}"
