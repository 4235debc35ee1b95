"""Encoders from scratch, with avg-first-last pooling, and one of queries beside one of passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from st_xlret.modules import (
    first_last_encoder,
    freeze_unused,
    static_encoder,
    train_tokenizer,
    transformer_encoder,
    with_two_encoders,
)
from st_xlret.modules.heads import mean_of_spans
from tests import tiny

TEXTS = ["The cat sleeps.", "Der Hund schläft, 25 Stunden!", "кошка спит", "猫在睡觉", "القط نائم"] * 3


def test_a_tokenizer_for_several_scripts() -> None:
    tokenizer = train_tokenizer(TEXTS, vocabulary=150)
    assert len(tokenizer) <= 150
    for text in TEXTS[:5]:
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True).split() == text.lower().split()
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.mask_token == "<mask>"
    pair = tokenizer("cat", "cat")["input_ids"]
    assert pair.count(tokenizer.eos_token_id) == 3


def test_training_a_tokenizer_is_deterministic() -> None:
    first, second = train_tokenizer(TEXTS, 100), train_tokenizer(iter(TEXTS), 100)
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_a_static_encoder_is_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = static_encoder(train_tokenizer(TEXTS, 100), features=64)
    assert model.get_embedding_dimension() == 64
    assert model[0].embedding.weight.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.05)
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS[:5]), model.encode(TEXTS[:5]))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_transformer_is_saved_and_loaded(tmp_path: Path, pooling: str, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(TEXTS, 100)
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=12, pooling=pooling)  # type: ignore[arg-type]
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device=str(model.device))
    long = " ".join(TEXTS * 4)
    np.testing.assert_allclose(loaded.encode([long]), model.encode([long]), atol=1e-6)
    assert model.preprocess([long])["input_ids"].shape == (1, 12)
    assert loaded.max_seq_length == 12 and loaded[1].get_config_dict()["pooling_mode"] == pooling
    assert "MISSING" not in caplog.text


SENTENCES = ["sun moon star rain", "wind", "snow tree leaf root fish bird", ""]


def three_layers() -> SentenceTransformer:
    torch.manual_seed(0)
    return transformer_encoder(tiny.tokenizer(), "small", max_seq_length=16).to("cpu").eval()


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return first_last_encoder(three_layers()).eval()


def by_hand(transformer: Transformer) -> Tensor:
    tokens = transformer.tokenizer(SENTENCES, padding=True, truncation=True, max_length=16, return_tensors="pt")
    layers = transformer.auto_model(**tokens, output_hidden_states=True).hidden_states
    mask = tokens["attention_mask"][:, :, None]
    return ((layers[1] + layers[-1]) / 2 * mask).sum(1) / mask.sum(1)


def test_it_is_the_papers_average(model: SentenceTransformer) -> None:
    vectors = model(model.preprocess(SENTENCES))["sentence_embedding"]
    torch.testing.assert_close(vectors, by_hand(model[0]))
    plain = three_layers()
    assert not torch.allclose(vectors, plain(plain.preprocess(SENTENCES))["sentence_embedding"])


def test_tokens_are_averaged_alike(model: SentenceTransformer) -> None:
    features = model(model.preprocess(SENTENCES))
    lengths = features["attention_mask"].sum(1)
    whole = mean_of_spans(features["token_embeddings"], features["attention_mask"], torch.zeros_like(lengths), lengths)
    torch.testing.assert_close(whole, features["sentence_embedding"])


def test_one_layer_is_first_and_last() -> None:
    plain = tiny.transformer().eval()
    expected = plain(plain.preprocess(SENTENCES))["sentence_embedding"]
    model = first_last_encoder(plain).eval()
    torch.testing.assert_close(model(model.preprocess(SENTENCES))["sentence_embedding"], expected)


def test_a_saved_model_is_equal(model: SentenceTransformer, tmp_path: Path) -> None:
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)


def test_the_layer_weights_are_fixed(model: SentenceTransformer) -> None:
    model(model.preprocess(SENTENCES))["sentence_embedding"].sum().backward()
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert not any("layer_weights" in name for name in trainable)
    first, *_, last = (layer.attention.self.query.weight.grad for layer in model[0].auto_model.encoder.layer)
    assert first.abs().sum() > 0 and last.abs().sum() > 0


def test_settings_and_device_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tiny.transformer()
    plain.prompts, plain.default_prompt_name = {"query": "wind ", "document": "snow "}, "query"
    plain.similarity_fn_name, plain.truncate_dim = "dot", 16
    monkeypatch.setattr("sentence_transformers.base.model.get_device_name", lambda: "meta")
    for model in (first_last_encoder(plain), with_two_encoders(plain)):
        assert model.prompts == plain.prompts and model.default_prompt_name == "query"
        assert model.similarity_fn_name == "dot" and model.truncate_dim == 16
        assert model.device == plain.device == torch.device("cpu")


@pytest.mark.parametrize("included", [True, False])
def test_prompts_are_pooled_as_before(included: bool) -> None:
    plain = tiny.transformer()
    plain.set_pooling_include_prompt(included)
    assert first_last_encoder(plain)[-1].include_prompt is included


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_they_start_alike_and_are_saved_as_the_hosts(make: Any, tmp_path: Path) -> None:
    model = make()
    expected = model.encode(["sun moon"])
    two = with_two_encoders(model)
    assert (two.encode_query(["sun moon"]) == expected).all() and (two.encode_document(["sun moon"]) == expected).all()
    query, document = (two[0].sub_modules[route] for route in ("query", "document"))
    assert not {id(p) for p in query.parameters()} & {id(p) for p in document.parameters()}
    with torch.no_grad():
        for parameter in query.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    two.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for encode in ("encode_query", "encode_document", "encode"):
        assert (getattr(loaded, encode)(["sun moon"]) == getattr(two, encode)(["sun moon"])).all()
    assert (two.encode_query(["sun moon"]) != two.encode_document(["sun moon"])).any()
    assert (two.encode(["sun moon"]) == two.encode_document(["sun moon"])).all()


def test_a_model_with_a_router_is_refused() -> None:
    with pytest.raises(ValueError, match="Router"):
        with_two_encoders(with_two_encoders(tiny.static()))


def test_what_no_route_uses_is_frozen() -> None:
    model = with_two_encoders(tiny.transformer())
    assert {name.split(".pooler.")[1] for name in freeze_unused(model)} == {"dense.weight", "dense.bias"}
    assert all(p.grad is None and p.requires_grad == (".pooler." not in name) for name, p in model.named_parameters())
    assert freeze_unused(with_two_encoders(tiny.static())) == []
