"""Layers of a Transformer while it is trained: their dropout, and how attention is computed on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from torch import nn

from st_xlret.training.trainable import transformers_of


@contextmanager
def training_layers(model: SentenceTransformer, args: SentenceTransformerTrainingArguments) -> Iterator[None]:
    """A context for training: layers drop out as `--dropout` says, and attention is eager in bf16 on a CPU.

    Afterwards the layers are as before, so that the saved model has the checkpoint's own configuration.

    Args:
        model: The encoder.
        args: The host's training arguments, with `dropout` if they are of a script of this package.

    Raises:
        ValueError: If a dropout above 0 is given, and the encoder has no layers that drop out.
    """
    with ExitStack() as stack:
        share: float | None = getattr(args, "dropout", None)
        if share is not None:
            stack.enter_context(dropout(model, share))
        if args.bf16 and args.device.type == "cpu":
            stack.enter_context(eager_attention(model))
        yield


@contextmanager
def dropout(model: SentenceTransformer, share: float) -> Iterator[None]:
    """A context in which the layers of a Transformer drop out another share of their values in training.

    Args:
        model: The encoder.
        share: The share, in [0, 1).

    Raises:
        ValueError: If the share is above 0 and the encoder has no layers that drop out.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny").train()
        >>> with dropout(model, 0):
        ...     repeated = [model(model.preprocess(["a b"]))["sentence_embedding"] for _ in range(2)]
        >>> (repeated[0] == repeated[1]).all().item()
        True
    """
    before = [(module, name, value) for module in _modules(model) for name, value in _shares(module)]
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
def eager_attention(model: SentenceTransformer) -> Iterator[None]:
    """A context in which attention is computed step by step, and not by PyTorch's fused kernel.

    The backward pass of that kernel is slow in bf16 on a CPU: with texts of 48 to 128 tokens and without dropout, a
    step of multilingual-e5-small takes 1.7 to 2.1 times as long. With dropout PyTorch does not use it there, and the
    eager way is as fast or a little faster (`python -m benchmarks.training_step`).

    Args:
        model: The encoder. A Transformer with another implementation of attention keeps it.
    """
    changed = [part for part in transformers_of(model) if part.config._attn_implementation == "sdpa"]
    try:
        for part in changed:
            part.set_attn_implementation("eager")
        yield
    finally:
        for part in changed:
            part.set_attn_implementation("sdpa")


def _modules(model: nn.Module) -> Iterator[nn.Module]:
    for transformer in transformers_of(model):
        yield from transformer.modules()


def _shares(module: nn.Module) -> Iterator[tuple[str, float]]:
    """Names and values of the dropout of a module itself: a layer's `p`, or a number such as `attention_dropout`."""
    if isinstance(module, nn.Dropout):
        yield "p", module.p
    for name, value in vars(module).items():
        if ("dropout" in name or name == "drop_prob") and isinstance(value, int | float):
            yield name, value
