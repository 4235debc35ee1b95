"""The settings of other frameworks give the vectors of `encode_query` and `encode_document`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret import export
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.docs.blocks import python_blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "integrations.md"
QUERY, DOCUMENTS = "vieux chien", ["old dog sleeps", "stone house"]

Vectors = tuple[list[float], list[list[float]]]


def langchain(names: dict[str, Any]) -> Vectors:
    return names["embeddings"].embed_query(QUERY), names["embeddings"].embed_documents(DOCUMENTS)


def haystack(names: dict[str, Any]) -> Vectors:
    from haystack import Document

    documents = names["document_embedder"].run([Document(content=text) for text in DOCUMENTS])["documents"]
    return names["query_embedder"].run(QUERY)["embedding"], [document.embedding for document in documents]


def llama_index(names: dict[str, Any]) -> Vectors:
    return names["embed_model"].get_query_embedding(QUERY), names["embed_model"].get_text_embedding_batch(DOCUMENTS)


@pytest.mark.parametrize(
    ("library", "embed"),
    [
        ("langchain_huggingface", langchain),
        ("haystack_integrations.components.embedders.sentence_transformers", haystack),
        ("llama_index.core.base.embeddings.base", llama_index),
    ],
)
def test_queries_and_documents_are_embedded_as_by_the_host(
    library: str, embed: Callable[[dict[str, Any]], Vectors], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    pytest.importorskip(library)
    model = SentenceTransformer("tiny", prompts={"query": "ask: ", "document": "tell: "}, default_prompt_name="query")
    maps = [CalibrationLayer(model.get_embedding_dimension()) for _ in range(2)]
    torch.nn.init.normal_(maps[1].bias)
    model = export(model, *maps)
    model.save("runs/calibrated")
    (block,) = (block for block in python_blocks(PAGE.read_text(encoding="utf-8")) if f"from {library} " in block.code)
    names: dict[str, Any] = {}
    exec(block.code, names)
    query, documents = embed(names)
    np.testing.assert_allclose(query, model.encode_query(QUERY), atol=1e-5)
    np.testing.assert_allclose(documents, model.encode_document(DOCUMENTS), atol=1e-5)
