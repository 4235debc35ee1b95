"""Encoders from scratch, with avg-first-last pooling, and one of queries beside one of passages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret import SemanticContrastiveLoss
from st_xlret.modules import (
    first_last_encoder,
    freeze_unused,
    static_encoder,
    train_tokenizer,
    transformer_encoder,
    with_two_encoders,
)
from tests import tiny

TEXTS = [
    "The cat sleeps.",
    "Der Hund schläft, 25 Stunden!",
    "кошка спит",
    "猫在睡觉",
    "القط نائم",
] * 3


def test_a_tokenizer_for_several_scripts() -> None:
    tokenizer = train_tokenizer(TEXTS, vocabulary=150)
    assert len(tokenizer) <= 150
    for text in TEXTS[:5]:
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True).split() == text.lower().split()
    assert tokenizer("cat", "cat")["input_ids"].count(tokenizer.eos_token_id) == 3
    # Which of two rare letters the trainer scores lower is chance: one more run alone would not
    # show it.
    again = {
        train_tokenizer(iter(TEXTS), vocabulary=150).backend_tokenizer.to_str() for _ in range(8)
    }
    assert again == {tokenizer.backend_tokenizer.to_str()}


@pytest.mark.parametrize("pooling", [None, "mean", "cls"])
def test_an_encoder_is_saved_and_loaded(
    tmp_path: Path, pooling: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = train_tokenizer(TEXTS, 100)
    long = [" ".join(TEXTS * 4), *TEXTS]
    if pooling is None:
        model = static_encoder(tokenizer, features=64)
        assert model[0].embedding.weight.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.05)
    else:
        model = transformer_encoder(tokenizer, "tiny", max_seq_length=12, pooling=pooling)
        assert model.preprocess(long)["input_ids"].shape[1] == 12
        assert model[1].get_config_dict()["pooling_mode"] == pooling
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device=str(model.device))
    np.testing.assert_allclose(loaded.encode(long), model.encode(long), atol=1e-6)
    assert loaded.max_seq_length == model.max_seq_length and "MISSING" not in caplog.text


SENTENCES = ["sun moon star rain", "wind", "snow tree leaf root fish bird", ""]


@pytest.fixture(scope="module", params=["tiny", "small"])  # of one layer and of three
def model(request: pytest.FixtureRequest) -> SentenceTransformer:
    torch.manual_seed(0)
    return first_last_encoder(
        transformer_encoder(tiny.tokenizer(), request.param, max_seq_length=16).to("cpu")
    ).eval()


def test_it_is_the_papers_average_saved_or_not(model: SentenceTransformer, tmp_path: Path) -> None:
    tokens = model[0].tokenizer(
        SENTENCES, padding=True, truncation=True, max_length=16, return_tensors="pt"
    )
    layers = model[0].auto_model(**tokens, output_hidden_states=True).hidden_states
    mask = tokens["attention_mask"][:, :, None]
    features = model(model.preprocess(SENTENCES))
    vectors = features["sentence_embedding"]
    torch.testing.assert_close(vectors, ((layers[1] + layers[-1]) / 2 * mask).sum(1) / mask.sum(1))
    torch.testing.assert_close(vectors, (features["token_embeddings"] * mask).sum(1) / mask.sum(1))
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)


def test_the_layer_weights_are_fixed(model: SentenceTransformer) -> None:
    model(model.preprocess(SENTENCES))["sentence_embedding"].sum().backward()
    assert not any(
        "layer_weights" in name for name, p in model.named_parameters() if p.requires_grad
    )
    gradients = [
        layer.attention.self.query.weight.grad for layer in model[0].auto_model.encoder.layer
    ]
    assert gradients[0].abs().sum() > 0 and gradients[-1].abs().sum() > 0


def test_settings_and_device_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tiny.transformer()
    plain.prompts = {"query": "wind ", "document": "snow "}
    plain.default_prompt_name = "query"
    plain.similarity_fn_name = "dot"
    plain.truncate_dim = 16
    plain.model_card_data.license = "mit"
    plain.set_pooling_include_prompt(False)
    monkeypatch.setattr("sentence_transformers.base.model.get_device_name", lambda: "meta")
    for model in (first_last_encoder(plain), with_two_encoders(plain)):
        assert model.prompts == plain.prompts and model.default_prompt_name == "query"
        assert (model.similarity_fn_name, model.truncate_dim, model.model_card_data.license) == (
            "dot",
            16,
            "mit",
        )
        assert model.device == plain.device == torch.device("cpu")
    assert first_last_encoder(plain)[-1].include_prompt is False


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_they_start_alike_and_are_saved_as_the_hosts(make: Any, tmp_path: Path) -> None:
    model = make()
    expected = model.encode(["sun moon"])
    two = with_two_encoders(model)
    assert (two.encode_query(["sun moon"]) == expected).all() and (
        two.encode_document(["sun moon"]) == expected
    ).all()
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


def test_what_no_route_uses_is_frozen_and_micro_batches_pad_both_routes() -> None:
    model = with_two_encoders(tiny.transformer())
    SemanticContrastiveLoss(model, mini_batch_num_tokens=8)
    assert [model[0].sub_modules[route][0].unpad_inputs for route in ("query", "document")] == [
        False,
        False,
    ]
    assert {name.split(".pooler.")[1] for name in freeze_unused(model)} == {
        "dense.weight",
        "dense.bias",
    }
    assert all(
        p.grad is None and p.requires_grad == (".pooler." not in name)
        for name, p in model.named_parameters()
    )
    assert freeze_unused(with_two_encoders(tiny.static())) == []
    with pytest.raises(ValueError, match="Router"):
        with_two_encoders(model)
