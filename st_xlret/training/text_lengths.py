"""How many tokens of a text an encoder may be asked to read."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import PreTrainedTokenizerBase

from st_xlret.ranges import check_range

Prompts: TypeAlias = "str | None | Mapping[str, Prompts]"
"""A prompt of all texts, or prompts by the names of columns, data sets, or both."""


def check_length(
    model: SentenceTransformer,
    most: float | None,
    prompts: Iterable[str] = (),
    **length: int | None,
) -> None:
    """Refuse a length that leaves nothing of a text, or that the encoder has no positions for.

    Args:
        model: The encoder.
        most: Another limit.
        prompts: What may stand before a text.
        **length: The name of the option, and its value.
    """
    limits = [most or math.inf, *_numbers_of_positions(model)]
    check_range(1 + _tokens_around_texts(model.tokenizer, prompts), min(limits), **length)


def _numbers_of_positions(model: nn.Module) -> list[int]:
    """The positions of each table of learned ones."""
    numbers = []
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, nn.Embedding):
            # RoBERTa and its like begin behind the position of padding.
            first = 0 if table.padding_idx is None else table.padding_idx + 1
            numbers.append(table.num_embeddings - first)
    return numbers


def _tokens_around_texts(tokenizer: object, prompts: Iterable[str]) -> int:
    """The special tokens, and those of the longest prompt."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return 0
    return max(len(tokenizer(prompt)["input_ids"]) for prompt in ("", *prompts))


def flattened_prompts(prompts: Prompts) -> list[str]:
    """The texts of prompts, without their names."""
    if isinstance(prompts, Mapping):
        texts = []
        for each in prompts.values():
            texts.extend(flattened_prompts(each))
        return texts
    return [prompts] if prompts else []
