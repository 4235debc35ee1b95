"""A tiny encoder, a batch of short and long texts, and what the Transformer reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from st_xlret.modules import transformer_encoder
from tests import tiny

LENGTHS = [60, 3, 4, 5, 2, 33, 3, 1, 5, 20, 2, 7, 30, 3, 2, 4]


def model_of_long_texts() -> SentenceTransformer:
    torch.manual_seed(0)
    model = transformer_encoder(tiny.tokenizer(), "tiny", max_seq_length=64).to("cpu").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def model_of_type(model_type: str, folder: Path, **options: Any) -> SentenceTransformer:
    """A tiny encoder of a model type of Transformers, in training."""
    torch.manual_seed(0)
    tokenizer = tiny.tokenizer()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = AutoConfig.for_model(
        model_type,
        **{**sizes, "max_position_embeddings": 80, **options},
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
    )
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=64)
    return SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").train()


def texts(lengths: list[int] = LENGTHS) -> list[str]:
    return [" ".join(tiny.WORDS[(i + j) % len(tiny.WORDS)] for j in range(n)) for i, n in enumerate(lengths)]


def features_of(model: Any, lengths: list[int] = LENGTHS, side: str = "right") -> dict[str, Any]:
    model.tokenizer.padding_side = side
    try:
        return model.preprocess(texts(lengths))
    finally:
        model.tokenizer.padding_side = "right"


def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and tokens of each pass through the Transformer inside of the module."""
    found: list[tuple[int, int]] = []
    original = Transformer.forward

    def forward(self: Transformer, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        found.append(tuple(features["input_ids"].shape))
        return original(self, features, **options)

    monkeypatch.setattr(Transformer, "forward", forward)
    return found


def gradients(model: nn.Module, value: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    value.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, slope in theirs.items():
        torch.testing.assert_close(ours[name], slope, rtol=1e-3, atol=1e-5)
