"""Batches of documents and of columns that the tests of the losses share, and encoders with two routes."""

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
from st_xlret.losses import MSMLoss, SimilarityDistillationLoss
from tests import tiny

EN, FR = language_to_id("en"), language_to_id("fr")


def taught(model: SentenceTransformer, **options: Any) -> SimilarityDistillationLoss:
    """Distillation of 8 vectors."""
    return SimilarityDistillationLoss(
        model, torch.eye(8, model.get_embedding_dimension()), **options
    )


def msm(model: SentenceTransformer, *, dropout: float = 0.0, **options: Any) -> MSMLoss:
    """Masked sentences with networks that are the same each time."""
    torch.manual_seed(1)
    return MSMLoss(model, {"dropout": dropout}, **options)


def block_features(
    model: SentenceTransformer,
    lengths: Sequence[int] = (3, 2, 4, 1),
    *,
    seed: int = 0,
    languages: Sequence[int] = (EN,) * 4,
    order: Sequence[int] | None = None,
    texts: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    """A column of sentences of documents of the given lengths, in the given order of rows."""
    dice = random.Random(seed)
    rows = [(block, place) for block, length in enumerate(lengths) for place in range(length)]
    texts = texts or [tiny.sentence(dice, 2 + dice.randrange(9)) for _ in rows]
    order = order or range(len(rows))
    rows, texts = [rows[i] for i in order], [texts[i] for i in order]
    features = model.preprocess(texts)
    features["block_id"] = torch.tensor([100 * seed + block for block, _ in rows])
    features["document_id"] = features["block_id"].clone()
    features["sentence_position"] = torch.tensor([10 + place for _, place in rows])
    features["language_id"] = torch.tensor([languages[block] for block, _ in rows])
    features["text_id"] = torch.tensor([text_to_id(text) for text in texts])
    return features


def two_encoders(make: Any = tiny.transformer, *, default: str | None = "document") -> Any:
    """A Router of a query encoder and a passage encoder, and the two themselves."""
    query, passage = make(seed=1), make(seed=2)
    router = Router.for_query_document(
        list(query.children()), list(passage.children()), default_route=default
    )
    return SentenceTransformer(modules=[router], device="cpu"), query, passage


def columns(
    model: SentenceTransformer,
    rows: list[dict[str, Any]],
    names: tuple[str, ...] = ("source", "target"),
    **options: Any,
) -> list[dict[str, Tensor]]:
    """What the Trainer hands a loss."""
    batch = CrossLingualDataCollator(model.preprocess, **options)(rows)
    return [
        {k.removeprefix(f"{name}_"): v for k, v in batch.items() if k.startswith(f"{name}_")}
        for name in names
    ]


def rows_with_others() -> list[dict[str, Any]]:
    """Translations, each with a sentence of its own beside it."""
    pairs = tiny.pairs(12).to_list()
    return [
        {**row, "other": other["source"]} for row, other in zip(pairs[:6], pairs[6:], strict=True)
    ]
