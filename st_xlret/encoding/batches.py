"""Batches of texts of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

_NO_LIMIT = 2**31  # a tokenizer without a limit says 1e30, which it does not take as a length
_TEXTS_AT_ONCE = 4_096


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
    """Cut texts into batches of at most `budget` tokens, padding included.

    The longest texts come first.
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
