"""Dropout and attention while a Transformer is trained, and that both are as before afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_xlret.modules import train_tokenizer, transformer_encoder, with_two_encoders
from st_xlret.training.arguments import TrainingArguments
from st_xlret.training.layers import dropout, eager_attention, training_layers
from st_xlret.training.trainable import transformers_of
from tests import tiny

TEXTS = ["sun moon", "rain wind snow leaf", "fish"]


def vectors(model: SentenceTransformer) -> Tensor:
    return model(model.preprocess(TEXTS))["sentence_embedding"]


def shares(model: SentenceTransformer) -> set[float]:
    return {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)}


def attention(model: SentenceTransformer) -> list[str]:
    return [part.config._attn_implementation for part in transformers_of(model)]


def test_without_dropout_training_computes_as_evaluation_does() -> None:
    model = tiny.transformer(dropout=0.1).train()
    before = shares(model)
    with dropout(model, 0):
        trained = vectors(model)
    assert shares(model) == before and not torch.equal(vectors(model), vectors(model))
    torch.testing.assert_close(trained, vectors(model.eval()))


def test_more_dropout_changes_more() -> None:
    model, sizes = tiny.transformer(dropout=0.1), []
    exact = vectors(model.eval())
    for share in (0.01, 0.5):
        torch.manual_seed(0)
        with dropout(model.train(), share):
            sizes.append((vectors(model) - exact).norm().item())
    assert 0 < 3 * sizes[0] < sizes[1]


def test_a_number_that_is_no_layer_is_set_too() -> None:
    model = tiny.transformer(dropout=0.0)
    module = next(transformers_of(model))
    module.attention_dropout = 0.2
    with dropout(model, 0.3):
        assert module.attention_dropout == 0.3
    assert module.attention_dropout == 0.2


def test_an_error_in_training_leaves_the_layers_as_they_were() -> None:
    model = tiny.transformer(dropout=0.1)
    before = shares(model), attention(model)
    with pytest.raises(RuntimeError, match="stopped"), dropout(model, 0), eager_attention(model):
        raise RuntimeError("stopped")
    assert (shares(model), attention(model)) == before == ({0.1}, ["sdpa"])


def test_a_static_encoder_has_nothing_that_drops_out() -> None:
    with dropout(tiny.static(), 0), pytest.raises(ValueError, match=r"--dropout 0.2: this encoder has no layers"):
        dropout(tiny.static(), 0.2).__enter__()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_attention_is_eager_in_bf16_on_a_cpu_alone(tmp_path: Path, precision: str) -> None:
    model = with_two_encoders(tiny.transformer(dropout=0.1))
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, precision=precision, dropout=0.0)
    with training_layers(model, args):
        assert attention(model) == ["eager" if precision == "bf16" else "sdpa"] * 2 and shares(model) == {0.0}
    assert attention(model) == ["sdpa"] * 2 and shares(model) == {0.1}


def test_eager_attention_has_the_same_gradients() -> None:
    torch.manual_seed(0)
    model = transformer_encoder(train_tokenizer(TEXTS, vocabulary=50), "tiny").eval()
    weights, found = list(model.parameters()), []
    for eager in (False, True):
        if eager:
            with eager_attention(model):
                value = vectors(model).pow(3).sum()
        else:
            value = vectors(model).pow(3).sum()
        found.append(torch.autograd.grad(value, weights, allow_unused=True))
    for fused, stepwise in zip(*found, strict=True):
        assert (fused is None) == (stepwise is None)
        if fused is not None:
            torch.testing.assert_close(fused, stepwise, atol=1e-5, rtol=1e-4)


def test_attention_of_another_kind_stays() -> None:
    model = tiny.transformer(dropout=0.0)
    next(transformers_of(model)).set_attn_implementation("eager")
    with eager_attention(model):
        assert attention(model) == ["eager"]
    assert attention(model) == ["eager"]
