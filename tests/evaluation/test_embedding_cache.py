"""The embedding cache: what it keeps, finds again, survives and refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.embedding_cache import EmbeddingCache, StoredEmbeddings, fingerprint
from st_xlret.hub.export import export
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.search import top_k
from tests import tiny

TEXTS = [f"{'word ' * (row % 7)}{row}" for row in range(23)]
DIMENSION = 5


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Embeddings that each text decides by itself."""
    rows = [np.random.default_rng(sum(text.encode())).standard_normal(DIMENSION) for text in texts]
    return np.array(rows, dtype=np.float32)


class Encoder:
    """Counts its calls and texts; stops, as a killed run does, after so many texts."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.texts: list[str] = []
        self.calls: list[list[str]] = []
        self.stop_after = stop_after

    def __call__(self, texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        if self.stop_after is not None and len(self.texts) >= self.stop_after:
            raise KeyboardInterrupt
        self.texts.extend(texts)
        self.calls.append(list(texts))
        return vectors(texts)


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache", shard_size=5, show_progress_bar=False)


def embed(cache: EmbeddingCache, texts=TEXTS, encoder=None, **identity) -> StoredEmbeddings:
    return cache.embed(texts, encoder or Encoder(), identity={"model": "a", **identity})


def shard_files(cache: EmbeddingCache) -> list[Path]:
    return sorted(cache.folder.glob("*.npy"))


def test_rows_are_the_embeddings_as_float16(cache) -> None:
    corpus = embed(cache)
    assert corpus.shape == (23, DIMENSION) and len(corpus) == 23
    assert len(shard_files(cache)) == 5
    expected = vectors(TEXTS).astype(np.float16)
    for rows in (slice(None), slice(3, 17), slice(5, 10), slice(22, 99), slice(4, 4)):
        assert corpus[rows].dtype == np.float16 and np.array_equal(corpus[rows], expected[rows])
    assert np.array_equal(np.concatenate(list(corpus)), expected)
    assert all(isinstance(chunk, np.memmap) for chunk in corpus)


def test_the_search_is_that_over_the_whole_matrix(cache) -> None:
    queries = torch.from_numpy(vectors(["a", "query", "or two"]))
    scores, rows = embed(cache).top_k(queries, 7)
    expected = top_k(queries, vectors(TEXTS).astype(np.float16), 7)
    assert torch.equal(rows, expected[1])
    torch.testing.assert_close(scores, expected[0])
    assert embed(cache, ["same"] * 12).top_k(torch.ones(1, DIMENSION), 9)[1].tolist() == [list(range(9))]
    with pytest.raises(ValueError, match="k must be from 1 to the 23 rows"):
        embed(cache).top_k(queries, 24)


@pytest.mark.parametrize("texts", [TEXTS, (text for text in TEXTS), [(text, "") for text in TEXTS]])
def test_a_second_run_encodes_nothing(cache, texts) -> None:
    first, again = embed(cache), Encoder()
    assert first.files == embed(cache, texts, again).files and again.texts == []


@pytest.mark.parametrize("change", [{"model": "b"}, {"prompt": "passage: "}, {"normalize_embeddings": True}])
def test_another_model_or_option_is_another_entry(cache, change) -> None:
    embed(cache)
    again = Encoder()
    cache.embed(TEXTS, again, identity={"model": "a", **change})
    assert sorted(again.texts) == sorted(TEXTS)


def test_only_shards_with_changed_texts_or_languages_are_encoded_again(cache) -> None:
    embed(cache)
    again = Encoder()
    changed = [*TEXTS[:7], "another text", *TEXTS[8:]]
    assert np.array_equal(embed(cache, changed, again)[:], vectors(changed).astype(np.float16))
    assert sorted(again.texts) == sorted(changed[5:10])
    for language in ("sw", "te"):
        embed(cache, [(TEXTS[0], language)], again := Encoder())
        assert again.texts == TEXTS[:1]


def test_an_interrupted_run_goes_on_where_it_stopped(cache) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(cache, encoder=Encoder(stop_after=10))
    assert len(shard_files(cache)) == 2
    again = Encoder()
    assert np.array_equal(embed(cache, encoder=again)[:], vectors(TEXTS).astype(np.float16))
    assert sorted(again.texts) == sorted(TEXTS[10:])


@pytest.mark.parametrize(
    "tear",
    [
        lambda file: os.truncate(file, file.stat().st_size - 6),
        lambda file: file.write_bytes(b""),
        lambda file: np.save(file, np.load(file)[:-1]),
    ],
)
def test_a_torn_shard_is_encoded_again(cache, tear) -> None:
    tear(embed(cache).files[1])
    again = Encoder()
    assert np.array_equal(embed(cache, encoder=again)[:], vectors(TEXTS).astype(np.float16))
    assert sorted(again.texts) == sorted(TEXTS[5:10])


def test_no_more_than_a_shard_of_texts_is_read_ahead(cache) -> None:
    encoder, ahead = Encoder(), []

    def texts() -> Iterator[str]:
        for row, text in enumerate(TEXTS):
            ahead.append(row - len(encoder.texts))
            yield text

    embed(cache, texts(), encoder)
    assert max(ahead) < cache.shard_size


@pytest.mark.parametrize(
    ("broken", "message"),
    [(np.nan, "NaN or infinite values"), (np.inf, "NaN or infinite values"), (1e6, "beyond 65504.*normalise")],
)
def test_broken_embeddings_name_the_text_and_leave_the_cache_valid(cache, broken, message) -> None:
    def encode(texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        rows = vectors(texts)
        rows[[text.endswith("12") for text in texts], 2] = broken
        return rows

    with pytest.raises(ValueError, match=rf"row 12 \('.*12'\) .*{message}"):
        embed(cache, encoder=encode)
    again = Encoder()
    embed(cache, encoder=again)
    assert sorted(again.texts) == sorted(TEXTS[10:])


def test_bad_arguments_are_named(cache) -> None:
    with pytest.raises(ValueError, match="no texts to embed"):
        embed(cache, [])
    with pytest.raises(ValueError, match="shard_size must be at least 1, got 0"):
        EmbeddingCache("anywhere", shard_size=0)


# Models


@pytest.fixture
def model() -> SentenceTransformer:
    model = tiny.static()
    model.prompts = {"query": "sun ", "document": "moon "}
    return model


def test_a_model_with_its_prompts_and_options(cache, model) -> None:
    texts = [" ".join(tiny.WORDS[row : row + 3]) for row in range(9)]
    for role, method in (("document", model.encode_document), ("query", model.encode_query), (None, model.encode)):
        corpus = cache.encode(model, texts, role=role, normalize_embeddings=True)
        np.testing.assert_allclose(corpus[:], method(texts, normalize_embeddings=True), atol=1e-3)


def test_weights_prompts_and_lengths_decide_the_entry_but_not_the_place_or_the_batch(cache, model, tmp_path) -> None:
    def entries() -> int:
        cache.encode(model, ["sun", "moon"])
        return len(shard_files(cache))

    assert entries() == 1
    cache.encode(model, ["sun", "moon"], batch_size=1)
    model.save_pretrained(str(tmp_path / "model"))
    cache.encode(SentenceTransformer(str(tmp_path / "model"), device="cpu"), ["sun", "moon"])
    assert entries() == 1
    model.prompts["document"] = "star "
    assert entries() == 2
    with torch.no_grad():
        model[0].embedding.weight[0] += 1
    assert entries() == 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert entries() == 4


def test_a_transformer_has_one_fingerprint_however_it_was_used(transformer_model, transformer_folder) -> None:
    before = fingerprint(transformer_model)
    transformer_model.encode(["taxi", "hotel bread"])
    assert fingerprint(transformer_model) == before
    transformer_model.max_seq_length = 7
    assert fingerprint(transformer_model) != before


def test_languages_reach_a_model_with_a_map_per_language(cache, model) -> None:
    calibration = CalibrationLayer(model.get_embedding_dimension(), ["en", "fr"], pivot="en")
    calibration.offset[1] += 1
    routed = export(model, calibration)
    rows = cache.encode(routed, [("sun", "en"), ("sun", "fr")])[:]
    np.testing.assert_allclose(rows[1] - rows[0], 1, atol=1e-2)
    fingerprints = [fingerprint(each) for each in (routed, model, calibration)]
    assert len(set(fingerprints)) == 3 and fingerprint(export(model, calibration)) == fingerprints[0]
