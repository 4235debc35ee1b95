"""Adapters are merged into the weights: the vectors stay, or the model is refused."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.modules import with_two_encoders
from st_xlret.modules.adapters import has_adapters, merge_adapters
from tests import tiny

peft = pytest.importorskip("peft")

TEXTS = ["sun moon", "rain wind snow leaf", "fish"]

KINDS: dict[str, Any] = {
    "LoRA": peft.LoraConfig(r=2, target_modules="all-linear"),
    "DoRA": peft.LoraConfig(r=2, target_modules=["query", "value"], use_dora=True),
    "LoRA and layers that are trained whole": peft.LoraConfig(
        r=2, target_modules=["query"], modules_to_save=["LayerNorm", "word_embeddings"]
    ),
    "LoRA and some tokens": peft.LoraConfig(
        r=2, target_modules=["query"], trainable_token_indices={"word_embeddings": [5, 6, 7, 8]}
    ),
    "IA3": peft.IA3Config(
        target_modules=["query", "value", "output.dense"], feedforward_modules=["output.dense"]
    ),
}


def trained(model: SentenceTransformer) -> SentenceTransformer:
    """A model whose adapters are others than at their start."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.requires_grad:
            noise = torch.randn(weight.shape, generator=generator)
            weight.data += 0.2 * noise
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_model_has_the_same_vectors_and_the_weights_of_a_plain_one(
    kind: str,
    tmp_path: Path,
) -> None:
    plain = tiny.transformer()
    model = copy.deepcopy(plain)
    model.add_adapter(KINDS[kind])
    vectors = trained(model).encode(TEXTS)
    assert abs(vectors - plain.encode(TEXTS)).max() > 1e-3
    merge_adapters(model)
    assert not has_adapters(model)
    assert list(model.state_dict()) == list(plain.state_dict())
    np.testing.assert_allclose(model.encode(TEXTS), vectors, rtol=0, atol=1e-5)
    model.save(str(tmp_path))
    saved = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, rtol=0, atol=1e-5)


def test_each_of_two_encoders_is_merged() -> None:
    model = with_two_encoders(tiny.transformer())
    for encoder in model[0].sub_modules.values():
        encoder[0].auto_model.add_adapter(KINDS["LoRA"])
    trained(model)
    queries = model.encode_query(TEXTS)
    documents = model.encode_document(TEXTS)
    assert abs(queries - documents).max() > 1e-2
    merge_adapters(model)
    np.testing.assert_allclose(model.encode_query(TEXTS), queries, rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), documents, rtol=0, atol=1e-5)


@pytest.mark.parametrize("two_encoders", [False, True])
def test_a_merge_that_changes_vectors_is_refused(
    two_encoders: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny.transformer()
    model.add_adapter(KINDS["LoRA"])
    if two_encoders:
        model = with_two_encoders(model)
    trained(model)
    monkeypatch.setattr("peft.tuners.lora.layer.Linear.merge", lambda self, safe_merge=False: None)
    with pytest.raises(ValueError, match="cannot be merged: vectors .*would move by"):
        merge_adapters(model)


def test_a_model_without_adapters_stays() -> None:
    model = tiny.transformer()
    assert merge_adapters(model) is model
