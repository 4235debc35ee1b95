"""The embedding cache behind the evaluators: what reaches the model, and what is told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.cache import EmbeddingCache
from st_xlret.evaluation.encoding.embedding import TextEmbedder
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
from st_xlret.evaluation.retrieval.ranking import evaluate_retrieval, retrieve
from st_xlret.hub.export import export
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests import tiny

DOCUMENTS = [" ".join(tiny.WORDS[row : row + 3]) for row in range(9)]
LANGUAGES = ["en", "fr", "de"] * 3


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache", shard_size=4, show_progress_bar=False)


@pytest.fixture
def data() -> RetrievalData:
    corpus = TextCollection([f"d{row}" for row in range(9)], DOCUMENTS, LANGUAGES, titles=["sun"] * 9)
    queries = TextCollection(["a", "b"], ["moon star", "wolf"], ["en", "fr"])
    return RetrievalData(corpus, queries, {"a": {"d1": 1, "d2": 1}, "b": {"d8": 1}})


def calibration(shift: float) -> CalibrationLayer:
    layer = CalibrationLayer(8, ["en", "fr", "de"])
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            if tensor.dtype.is_floating_point:
                tensor.add_(shift)
    return layer


def rows(model: SentenceTransformer, data: RetrievalData, embedder: TextEmbedder, embed_corpus=None) -> np.ndarray:
    return retrieve(model, data.judged, data.corpus, k=9, embedder=embedder, embed_corpus=embed_corpus).rows


@pytest.mark.parametrize("options", [{}, {"calibration": 0.25}, {"document_prompt": "rain "}, {"similarity": "dot"}])
def test_the_ranking_is_that_of_embeddings_in_memory(cache, data, options) -> None:
    model = tiny.static()
    similarity = options.pop("similarity", None)
    if "calibration" in options:
        options["calibration"] = calibration(options["calibration"])
    embedder = TextEmbedder(**options)
    scores = [
        evaluate_retrieval(model, data, embedder=embedder, similarity=similarity, embed_corpus=hook)
        for hook in (None, cache, cache)
    ]
    assert scores[0] == scores[1] == scores[2]


def test_whatever_decides_the_embeddings_is_an_entry_of_its_own(cache, data) -> None:
    model = tiny.static()
    embedders = [
        TextEmbedder(),
        TextEmbedder(calibration=calibration(0.0)),
        TextEmbedder(calibration=calibration(0.25)),
        TextEmbedder(document_prompt="rain "),
    ]
    for count, embedder in enumerate(embedders, start=1):
        for _ in range(2):
            rows(model, data, embedder, cache)
        assert len(list(cache.folder.iterdir())) == count
    retrieve(model, data.judged, data.corpus, k=3, similarity="dot", embed_corpus=cache)
    assert len(list(cache.folder.iterdir())) == len(embedders) + 1
    # How many texts the model takes at a time, and the prompt of the queries, are no such thing.
    rows(model, data, TextEmbedder(batch_size=2, query_prompt="sun "), cache)
    assert len(list(cache.folder.iterdir())) == len(embedders) + 1


def test_each_language_reaches_the_model_as_its_task(cache, data, monkeypatch) -> None:
    static = tiny.static()
    model = export(static, CalibrationLayer(static.get_embedding_dimension(), sorted(set(LANGUAGES))))
    seen: set[tuple[str, str]] = set()
    encode = model.encode

    def noting(texts, task, **options):
        seen.update((text, task) for text in texts)
        return encode(texts, task=task, **options)

    monkeypatch.setattr(model, "encode", noting)
    rows(model, data, TextEmbedder(), cache)
    assert {(f"sun {text}", language) for text, language in zip(DOCUMENTS, LANGUAGES, strict=True)} <= seen


def test_a_model_that_gives_nan_names_the_document(cache, data, monkeypatch) -> None:
    model = tiny.static()
    encode = model.encode

    def broken(texts, **options):
        embeddings = encode(texts, **options).clone()
        embeddings[[text == f"sun {DOCUMENTS[5]}" for text in texts]] = torch.nan
        return embeddings

    monkeypatch.setattr(model, "encode", broken)
    with pytest.raises(ValueError, match=rf"text 'd5' \(row 5\): the model gives NaN .* document 'sun {DOCUMENTS[5]}'"):
        rows(model, data, TextEmbedder(), cache)
    assert len(list(cache.folder.glob("*/*.npy"))) == 1 and not list(cache.folder.glob("*/.*.tmp*"))


def test_the_layers_of_a_model_are_kept_apart(cache, data) -> None:
    model = tiny.transformer()
    for layer in (0, 1):
        embedder = TextEmbedder(layer=layer)
        assert np.array_equal(rows(model, data, embedder, cache), rows(model, data, embedder))
    assert len(list(cache.folder.iterdir())) == 2
    cache.devices = ["cpu"]
    with pytest.raises(ValueError, match=r"devices=\['cpu'\] need model.encode, which layer=1"):
        rows(model, data, TextEmbedder(layer=1), cache)


def test_a_pool_is_handed_to_the_model_and_stopped(cache, data, monkeypatch) -> None:
    model = tiny.static()
    stopped: list[object] = []
    encode = model.encode
    monkeypatch.setattr(model, "start_multi_process_pool", lambda devices: {"on": devices})
    monkeypatch.setattr(model, "stop_multi_process_pool", stopped.append)
    pools: list[object] = []

    def noting(texts, pool=None, **options):
        pools.append(pool)
        return encode(texts, **options)

    monkeypatch.setattr(model, "encode", noting)
    cache.devices = ["cpu", "cpu"]
    expected = rows(model, data, TextEmbedder())
    assert np.array_equal(rows(model, data, TextEmbedder(), cache), expected)
    assert pools[-1] == {"on": ["cpu", "cpu"]} and stopped == [{"on": ["cpu", "cpu"]}]
    rows(model, data, TextEmbedder(), cache)
    assert len(stopped) == 1  # all is there: no pool is started
