"""Fingerprints of models: equal for equal models, different after any change of the weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

# The origin of a model and traces of running it do not change what it computes.
_NOT_IDENTITY = {"_name_or_path", "transformers_version", "output_hidden_states", "__version__"}


def fingerprint(module: nn.Module) -> str:
    """Hash of weights, module types and their configurations, tokenizers and prompts: 32 hexadecimal digits.

    Copies of a model have the same hash, wherever they were loaded from. A training step changes it.

    Args:
        module: A SentenceTransformer, or another module such as a `CalibrationLayer`.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> before = fingerprint(layer)
        >>> with torch.no_grad():
        ...     _ = layer.bias.add_(1)
        >>> len(before), fingerprint(layer) == before
        (32, False)
    """
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        digest.update(_as_json([name, type(part).__qualname__, _configuration(part)]))
    for name, tensor in sorted(module.state_dict(keep_vars=True).items()):
        if isinstance(tensor, Tensor):
            digest.update(_as_json([name, str(tensor.dtype), list(tensor.shape)]))
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def _configuration(part: nn.Module) -> dict[str, Any]:
    """What determines the output of a module besides its weights."""
    found: dict[str, Any] = {}
    if callable(own := getattr(part, "get_config_dict", None)):
        found["own"] = own()
    if callable(to_dict := getattr(getattr(part, "config", None), "to_dict", None)):
        found["transformer"] = {key: value for key, value in to_dict().items() if key not in _NOT_IDENTITY}
    for name in ("prompts", "default_prompt_name", "max_seq_length", "truncate_dim"):
        if (value := getattr(part, name, None)) is not None:
            found[name] = value
    if not isinstance(part, nn.Sequential) and (tokenizer := getattr(part, "tokenizer", None)) is not None:
        found["tokenizer"] = _tokenizer(tokenizer)  # a SentenceTransformer has that of its first module
    return found


def _tokenizer(tokenizer: Any) -> Any:
    fast = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if callable(to_str := getattr(fast, "to_str", None)):
        state = json.loads(to_str())
        # A fast tokenizer keeps the truncation and padding of its last call.
        return {key: value for key, value in state.items() if key not in ("truncation", "padding")}
    if callable(get_vocab := getattr(tokenizer, "get_vocab", None)):
        vocabulary = get_vocab()  # a dictionary, or the list of words
        return sorted(vocabulary.items()) if isinstance(vocabulary, Mapping) else list(vocabulary)
    return type(tokenizer).__qualname__


def _as_json(value: Any) -> bytes:
    def plain(other: Any) -> Any:
        return dict(other) if isinstance(other, Mapping) else f"{type(other).__qualname__}"

    return json.dumps(_with_json_keys(value), sort_keys=True, default=plain).encode("utf-8", "surrogatepass")


def _with_json_keys(value: Any) -> Any:
    """The value with tuples among the keys of mappings, such as those of a `Router`, as strings."""
    if isinstance(value, Mapping):
        return {repr(key) if isinstance(key, tuple) else key: _with_json_keys(held) for key, held in value.items()}
    return [_with_json_keys(held) for held in value] if isinstance(value, list | tuple) else value
