"""Layers of a Transformer while it is trained: their dropout, and how they compute faster on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from st_xlret.training.by_length import short_and_long_apart
from st_xlret.training.quick_dropout import quick_dropout, quick_dropout_layers
from st_xlret.training.trainable import transformers_of

_STEPWISE = "stepwise_in_training"
_LONG = 256
"""Texts of more tokens, without dropout, are faster and smaller in the fused kernel."""


@contextmanager
def training_layers(model: SentenceTransformer, args: SentenceTransformerTrainingArguments) -> Iterator[None]:
    """A context for training: layers drop out as `--dropout` says, and compute faster on a CPU.

    On a CPU, random numbers for dropout are drawn four at a time, and encoders of the usual model types read the short
    and the long texts of a batch apart, with less padding, unless the model is compiled or pads before the texts, or
    several processes use re-entrant gradient checkpointing; attention in bf16 is computed step by step. Losses and
    gradients stay the same, up to rounding and to which values are dropped.

    Afterwards the layers are as before, so that the saved model has the checkpoint's own configuration.

    Args:
        model: The encoder.
        args: The host's training arguments, with `dropout` if they are of a script of this package.

    Raises:
        ValueError: If a dropout above 0 is given, and the encoder has no layers that drop out.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny").to("cpu").train()
        >>> args = SentenceTransformerTrainingArguments("runs/tiny", use_cpu=True)
        >>> with training_layers(model, args):  # around the training, such as `trainer.train()`
        ...     vectors = model(model.preprocess(["a b"]))["sentence_embedding"]
        >>> vectors.shape
        torch.Size([1, 32])
    """
    with ExitStack() as stack:
        share: float | None = getattr(args, "dropout", None)
        if share is not None:
            stack.enter_context(dropout(model, share))
        if args.device.type == "cpu" and not args.torch_compile:
            if not _reads_once(args):
                stack.enter_context(short_and_long_apart(model))
            stack.enter_context(quick_dropout_layers(model))
        if args.bf16 and args.device.type == "cpu":
            stack.enter_context(stepwise_attention(model))
        yield


def _reads_once(args: SentenceTransformerTrainingArguments) -> bool:
    """Whether a step may read one batch only: in several processes, re-entrant checkpointing gives gradients once."""
    if not args.gradient_checkpointing or args.world_size == 1:
        return False
    checkpointing: Any = args.gradient_checkpointing_kwargs or {}
    return bool(checkpointing.get("use_reentrant"))


@contextmanager
def dropout(model: SentenceTransformer, share: float) -> Iterator[None]:
    """A context in which the layers of an encoder drop out another share of their values in training.

    Networks that a loss has beside the encoder, such as MSM's document encoder, are not touched.

    Args:
        model: The encoder.
        share: The share, in [0, 1).

    Raises:
        ValueError: If the share is above 0 and the encoder has no layers that drop out.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny").to("cpu").train()
        >>> with dropout(model, 0):
        ...     repeated = [model(model.preprocess(["a b"]))["sentence_embedding"] for _ in range(2)]
        >>> (repeated[0] == repeated[1]).all().item()
        True
    """
    before = list(_shares(model))
    if share and not before:
        raise ValueError(f"--dropout {share:g}: this encoder has no layers that drop out; leave the option out")
    try:
        for module, name, _ in before:
            setattr(module, name, share)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@contextmanager
def stepwise_attention(model: SentenceTransformer) -> Iterator[None]:
    """A context in which attention is computed step by step in training, and not by PyTorch's fused kernel.

    The backward pass of that kernel is slow in bf16 on a CPU (`python -m benchmarks.training_step`), but for texts of
    more than 256 tokens without dropout, which are left to it. So is the encoding of texts outside of training.

    Args:
        model: The encoder. A Transformer with another implementation of attention than PyTorch's, or with several,
            keeps it.
    """
    changed = [part for part in transformers_of(model) if _attention_names(part) == {"sdpa"}]
    try:
        for part in changed:
            part.set_attn_implementation(_STEPWISE)
        yield
    finally:
        for part in changed:
            part.set_attn_implementation("sdpa")


def _attention_names(transformer: PreTrainedModel) -> set[str | None]:
    """The kinds of attention of a model and of those that it is made of, such as one of texts and one of images."""
    parts = [part for part in transformer.modules() if isinstance(part, PreTrainedModel)]
    return {part.config._attn_implementation for part in parts}


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of queries, keys and values (texts, heads, tokens, features), with the host's signature."""
    # By `training`, and not by whether there are gradients: gradient checkpointing has none in its first pass.
    stepwise = module.training and (dropout > 0 or query.shape[2] <= _LONG)
    causal = others.get("is_causal")
    causal = attention_mask is None and (getattr(module, "is_causal", True) if causal is None else causal)
    special = others.get("position_bias") is not None or others.get("cache") is not None
    if not stepwise or causal or special or key.shape[1] != query.shape[1]:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    scores = (query * (query.shape[-1] ** -0.5 if scaling is None else scaling)) @ key.transpose(2, 3)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = quick_dropout(scores.softmax(dim=-1), dropout)
    return (weights @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register(_STEPWISE, _attention)
AttentionMaskInterface.register(_STEPWISE, sdpa_mask)


def _shares(model: nn.Module) -> Iterator[tuple[nn.Module, str, float]]:
    """What drops out in a model: layers with their `p`, and modules with a number such as `attention_dropout`."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            yield module, "p", module.p
    for transformer in transformers_of(model):
        for module in transformer.modules():
            for name, value in vars(module).items():
                if ("dropout" in name or name == "drop_prob") and type(value) in (int, float):
                    yield module, name, value
