"""The embedding cache with models, its progress bar and a pool of processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.cache import EmbeddingCache
from tests import tiny
from tests.evaluation.cache.cached import TEXTS, Encoder, embed


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache", shard_size=5, show_progress_bar=False)


def test_progress_shows_texts_rate_and_what_is_left(tmp_path, capsys) -> None:
    cache = EmbeddingCache(tmp_path, shard_size=5)
    embed(cache)
    shown = capsys.readouterr().err
    assert "Encoding texts: 100%" in shown and "23/23" in shown and "texts/s" in shown
    EmbeddingCache(tmp_path, shard_size=5, show_progress_bar=False).embed(TEXTS, Encoder(), identity={"model": "b"})
    assert capsys.readouterr().err == ""


@pytest.fixture
def model() -> SentenceTransformer:
    model = tiny.static()
    model.prompts = {"query": "sun ", "document": "moon "}
    return model


def test_a_model_with_its_prompts_and_options(cache, model) -> None:
    texts = [" ".join(tiny.WORDS[row : row + 3]) for row in range(9)]
    corpus = cache.encode(model, texts, normalize_embeddings=True)
    expected = model.encode_document(texts, normalize_embeddings=True)
    np.testing.assert_allclose(corpus[:], expected, atol=1e-3)
    plain = cache.encode(model, texts, method="encode", normalize_embeddings=True)
    assert not np.allclose(plain[:], expected, atol=1e-2)
    assert len(list(cache.folder.iterdir())) == 2


def test_weights_prompts_and_lengths_decide_the_entry_but_not_the_place_or_the_batch(cache, model, tmp_path) -> None:
    def entries() -> int:
        cache.encode(model, ["sun", "moon"])
        return len(list(cache.folder.iterdir()))

    assert entries() == 1
    cache.encode(model, ["sun", "moon"], batch_size=1)
    model.save_pretrained(str(tmp_path / "model"))
    cache.encode(SentenceTransformer(str(tmp_path / "model"), device="cpu"), ["sun", "moon"])
    assert entries() == 1
    model.prompts["document"] = "star "
    assert entries() == 2
    with torch.no_grad():
        next(model.parameters())[3, 0] += 0.01
    assert entries() == 3


def test_a_transformer_keeps_its_entry_from_call_to_call(cache) -> None:
    model = tiny.transformer()
    for texts in (["sun moon"], ["sun moon", "rain " * 30], ["sun moon"]):
        cache.encode(model, texts)
    assert len(list(cache.folder.iterdir())) == 1
    model.max_seq_length = 4
    cache.encode(model, ["sun moon"])
    assert len(list(cache.folder.iterdir())) == 2


@pytest.mark.slow
def test_a_process_pool_gives_the_same_embeddings(tmp_path, model) -> None:
    texts = [" ".join(tiny.WORDS[row : row + 3]) for row in range(9)]
    alone = EmbeddingCache(tmp_path / "one", shard_size=4, show_progress_bar=False).encode(model, texts)
    pooled = EmbeddingCache(tmp_path / "two", shard_size=4, devices=["cpu"], show_progress_bar=False)
    assert np.array_equal(pooled.encode(model, texts)[:], alone[:])
    pooled.devices = ["no such device"]  # nothing is left to encode: no pool is started
    assert np.array_equal(pooled.encode(model, texts)[:], alone[:])


def test_embeddings_in_bf16_are_not_taken_for_those_in_fp32(cache) -> None:
    model = tiny.transformer()
    with torch.autocast("cpu", torch.bfloat16):
        rough = cache.encode(model, TEXTS)[:]
    exact = cache.encode(model, TEXTS)[:]
    np.testing.assert_array_equal(exact, model.encode_document(TEXTS).astype(np.float16))
    assert not np.array_equal(rough, exact)
