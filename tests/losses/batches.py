"""Batches of documents and of columns that the tests of the losses share, and encoders with two routes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.batches.collator import text_to_id
from st_xlret.languages import language_to_id
from tests import tiny

EN, FR = language_to_id("en"), language_to_id("fr")


def block_features(
    model: SentenceTransformer,
    lengths: Sequence[int] = (3, 2, 4, 1),
    *,
    seed: int = 0,
    languages: Sequence[int] | None = None,
    order: Sequence[int] | None = None,
    texts: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    """A column of sentences of documents of the given lengths, in the given order of rows."""
    generator = random.Random(seed)
    rows = [(block, place) for block, length in enumerate(lengths) for place in range(length)]
    sentences = [tiny.sentence(generator, 2 + generator.randrange(9)) for _ in rows] if texts is None else list(texts)
    order = range(len(rows)) if order is None else order
    rows, sentences = [rows[i] for i in order], [sentences[i] for i in order]
    languages = [EN] * len(lengths) if languages is None else languages
    features = model.preprocess(sentences)
    features["block_id"] = torch.tensor([100 * seed + block for block, _ in rows])
    features["document_id"] = features["block_id"].clone()
    features["sentence_position"] = torch.tensor([10 + place for _, place in rows])
    features["language_id"] = torch.tensor([languages[block] for block, _ in rows])
    features["text_id"] = torch.tensor([text_to_id(sentence) for sentence in sentences])
    return features


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
