"""Batches of texts of like length, and how they are padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sentence_transformers.base.modules import Transformer
from transformers import PreTrainedTokenizerBase

_NO_LIMIT = 2**31  # a tokenizer without a limit says 1e30, which it does not take as a length
_TEXTS_AT_ONCE = 4_096

PADDED_TO = 16
"""Tokens, a multiple of which the texts of a batch have in bfloat16 on a CPU."""


def token_lengths(model: Any, texts: Sequence[str]) -> list[int] | None:
    """Tokens of each text as the model reads it.

    None for a model without a Transformer's tokenizer, or padding.
    """
    if not len(model):
        return None
    tokenizer = getattr(model[0], "tokenizer", None)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    limit = model.max_seq_length
    if not limit or limit >= _NO_LIMIT:
        limit = None
    lengths: list[int] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        stop = start + _TEXTS_AT_ONCE
        some = list(texts[start:stop])
        encoded = tokenizer(some, truncation=limit is not None, max_length=limit, verbose=False)
        lengths += map(len, encoded["input_ids"])
    return lengths


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """The numbers of the texts of each batch, at most `budget` tokens with padding; all once.

    The longest texts come first. A text that is longer is a batch of its own.
    """
    rows = range(len(lengths))
    order = sorted(rows, key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        count = max(1, budget // longest)
        stop = start + count
        yield order[start:stop]
        start = stop


def padding_options(model: Any, *cuts: int | None) -> dict[str, Any]:
    """Options of `model.preprocess` that pad batches to multiples of `PADDED_TO` tokens.

    They are for bfloat16 on a CPU: there oneDNN compiles its kernels for each length of a batch, in
    tenths of a second. Models without a Transformer of texts have none, nor those that are cut,
    also to `cuts`, to other lengths than such multiples.
    """
    module = model[0] if len(model) else None
    tokenizer = getattr(module, "tokenizer", None)
    if not isinstance(module, Transformer) or tokenizer is None or tokenizer.pad_token_id is None:
        return {}
    if model.max_seq_length is None:
        return {}
    processing = getattr(module, "processing_kwargs", None) or {}
    text_options = processing.get("text") or {}
    limits = [model.max_seq_length, *cuts, text_options.get("max_length")]
    for role in ("query", "document"):
        limits.append(getattr(module, f"{role}_length", None))
    for limit in limits:
        if limit is not None and limit % PADDED_TO:
            return {}
    return {"processing_kwargs": {"text": {"pad_to_multiple_of": PADDED_TO}}}
