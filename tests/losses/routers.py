"""Encoders of queries and passages behind a Router, for the tests of losses that act on one side."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_xlret.batches import CrossLingualDataCollator
from tests import tiny


def two_encoders(make: Any = tiny.transformer, *, query: Any = None, default: str | None = "document") -> Any:
    """A Router of a query encoder and a passage encoder, and the two themselves."""
    first, second = query or make(seed=1), make(seed=2)
    router = Router.for_query_document(
        query_modules=list(first.children()), document_modules=list(second.children()), default_route=default
    )
    return SentenceTransformer(modules=[router], device="cpu"), first, second


def columns(
    model: SentenceTransformer,
    rows: list[dict[str, Any]],
    names: tuple[str, ...] = ("source", "target"),
    **options: Any,
) -> list[dict[str, Tensor]]:
    """What the Trainer hands a loss."""
    batch = CrossLingualDataCollator(model.preprocess, **options)(rows)
    return [{k.removeprefix(f"{name}_"): v for k, v in batch.items() if k.startswith(f"{name}_")} for name in names]
