"""The settings of other frameworks give the vectors of queries and of documents."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration, encode, export
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.docs.blocks import python_blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "integrations.md"
QUERY, DOCUMENTS = "vieux chien", ["old dog sleeps", "stone house"]

Vectors = tuple[list[float], list[list[float]]]


def langchain(names: dict[str, Any]) -> Vectors:
    return names["embeddings"].embed_query(QUERY), names["embeddings"].embed_documents(DOCUMENTS)


def haystack(names: dict[str, Any]) -> Vectors:
    from haystack import Document

    documents = names["document_embedder"].run([Document(content=text) for text in DOCUMENTS])[
        "documents"
    ]
    return names["query_embedder"].run(QUERY)["embedding"], [
        document.embedding for document in documents
    ]


def llama_index(names: dict[str, Any]) -> Vectors:
    return names["embed_model"].get_query_embedding(QUERY), names[
        "embed_model"
    ].get_text_embedding_batch(DOCUMENTS)


LIBRARIES: dict[str, Callable[..., Vectors]] = {
    "langchain_huggingface": langchain,
    "haystack_integrations.components.embedders.sentence_transformers": haystack,
    "llama_index.core.base.embeddings.base": llama_index,
}


def moved(*languages: str) -> CalibrationLayer:
    """A map that tells roles and languages from each other."""
    layer = CalibrationLayer(32, languages, pivot="en") if languages else CalibrationLayer(32)
    torch.nn.init.normal_(layer.offset)
    return layer


MODELS = ["not calibrated", "not calibrated, passage", "one map", "queries apart"]
MODELS += ["a map per language", "a map per language, queries apart"]


def as_the_page_says(code: str, model: str) -> str:
    """The example with what the page says of some models."""
    if "passage" in model:
        code = code.replace('"prompt_name": "document"', '"prompt_name": "passage"')
    if "per language" in model:
        query = "query_fr" if "apart" in model else "fr"
        code = code.replace('"task": "query"', f'"task": "{query}"').replace(
            '"task": "document"', '"task": "fr"'
        )
        code = code.replace(", role=", ', "fr", role=')
    return code


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_queries_and_documents_are_embedded_as_by_the_host(
    library: str, model: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip(library)
    prompts = {"query": "ask: ", "passage" if "passage" in model else "document": "tell: "}
    encoder = SentenceTransformer("tiny", prompts=prompts, default_prompt_name="query")
    if "not calibrated" not in model:
        languages = ("en", "fr") if "per language" in model else ()
        of_queries = moved(*languages) if "apart" in model else None
        encoder = export(encoder, moved(*languages), query_calibration=of_queries)
    encoder.save(f"runs/{model}")  # Haystack keeps models by their path
    (block,) = (
        block
        for block in python_blocks(PAGE.read_text(encoding="utf-8"))
        if f"from {library} " in block.code
    )
    names: dict[str, Any] = {}
    exec(as_the_page_says(block.code, model).replace("runs/calibrated", f"runs/{model}"), names)
    query, documents = LIBRARIES[library](names)
    language = "fr" if "per language" in model else None
    np.testing.assert_allclose(query, encode(encoder, QUERY, language, role="query"), atol=1e-5)
    np.testing.assert_allclose(
        documents, encode(encoder, DOCUMENTS, language, role="document"), atol=1e-5
    )
    if "passage" not in model and language is None:
        np.testing.assert_allclose(query, encoder.encode_query(QUERY), atol=1e-5)
        np.testing.assert_allclose(documents, encoder.encode_document(DOCUMENTS), atol=1e-5)


TEXTS = ["It rains.", "Il pleut.", "The sun shines.", "Le soleil brille."]
EXAMPLES = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def embedded(text: str) -> list[float]:
    """What a service with a language bias makes of a text: its fact, and more of its language."""
    number = TEXTS.index(text)
    return [float(number < 2), float(number >= 2), 0.1, 2.0 * (number % 2), 2.0 * (1 - number % 2)]


def langchain_store(names: dict[str, Any]) -> Callable[[str], list[str]]:
    from langchain_core.vectorstores import InMemoryVectorStore

    api: Any = SimpleNamespace(
        embed_query=embedded, embed_documents=lambda texts: [*map(embedded, texts)]
    )
    names |= {"api": api, "store": InMemoryVectorStore(api)}
    names["store"].add_texts(TEXTS)
    return lambda query: [document.page_content for document in names["retriever"].invoke(query)]


def llama_index_store(names: dict[str, Any]) -> Callable[[str], list[str]]:
    from llama_index.core import MockEmbedding, VectorStoreIndex
    from llama_index.core.schema import TextNode

    nodes = [TextNode(text=text, embedding=embedded(text)) for text in TEXTS]
    names |= {"api": SimpleNamespace(get_query_embedding=embedded)}
    names |= {"index": VectorStoreIndex(nodes, embed_model=MockEmbedding(5))}
    return lambda query: [node.text for node in names["retrieve"](query)]


def haystack_store(names: dict[str, Any]) -> Callable[[str], list[str]]:
    from haystack import Document
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    store.write_documents([Document(content=text, embedding=embedded(text)) for text in TEXTS])
    api = SimpleNamespace(run=lambda text: {"embedding": embedded(text)})
    names |= {"api": api, "retriever": InMemoryEmbeddingRetriever(store)}
    return lambda query: [
        document.content for document in names["MappedRetriever"]().run(query)["documents"]
    ]


STORES = {
    "langchain_core": langchain_store,
    "llama_index.core": llama_index_store,
    "haystack": haystack_store,
}


@pytest.mark.parametrize("library", STORES)
def test_queries_of_a_service_are_mapped(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    noise = np.random.default_rng(0).normal(scale=0.3, size=(2, 60, 5))
    clouds = {code: noise[i] + embedded(TEXTS[2 + i]) for i, code in enumerate(("en", "fr"))}
    VectorCalibration.fit(clouds, queries_only=True).save(tmp_path / "map")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    ask = STORES[library](names)
    (code,) = (code for code in EXAMPLES if f"from {library}" in code)
    exec(code, names)
    assert set(ask("It rains.")[:2]) == set(TEXTS[:2])
