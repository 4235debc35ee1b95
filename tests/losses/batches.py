"""Batches of documents and of columns that the tests of the losses share, and two encoders."""

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

EN = language_to_id("en")
FR = language_to_id("fr")


def taught(model: SentenceTransformer, **options: Any) -> SimilarityDistillationLoss:
    """Distillation of 8 vectors."""
    teacher = torch.eye(8, model.get_embedding_dimension())
    return SimilarityDistillationLoss(model, teacher, **options)


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
    rows = []
    for block, length in enumerate(lengths):
        rows += [(block, place) for place in range(length)]
    if texts is None:
        texts = [tiny.sentence(dice, 2 + dice.randrange(9)) for _ in rows]
    if order is None:
        order = range(len(rows))
    in_order = [rows[number] for number in order]
    texts_in_order = [texts[number] for number in order]
    blocks = torch.tensor([block for block, _ in in_order])
    features = model.preprocess(texts_in_order)
    features["block_id"] = 100 * seed + blocks
    features["document_id"] = features["block_id"].clone()
    features["sentence_position"] = torch.tensor([10 + place for _, place in in_order])
    features["language_id"] = torch.tensor(languages)[blocks]
    features["text_id"] = torch.tensor([text_to_id(text) for text in texts_in_order])
    return features


def two_encoders(make: Any = tiny.transformer, *, default: str | None = "document") -> Any:
    """A Router of a query encoder and a passage encoder, and the two themselves."""
    query = make(seed=1)
    passage = make(seed=2)
    router = Router.for_query_document(
        list(query.children()), list(passage.children()), default_route=default
    )
    return SentenceTransformer(modules=[router], device="cpu"), query, passage


def columns(
    model: SentenceTransformer,
    rows: list[dict[str, Any]],
    names: Sequence[str] = ("source", "target"),
    **options: Any,
) -> list[dict[str, Tensor]]:
    """What the Trainer hands a loss."""
    batch = CrossLingualDataCollator(model.preprocess, **options)(rows)
    return [tiny.features_of(batch, name) for name in names]


def rows_with_others() -> list[dict[str, Any]]:
    """Translations, each with a sentence of its own beside it."""
    pairs = tiny.pairs(12).to_list()
    rows = []
    for row, other in zip(pairs[:6], pairs[6:], strict=True):
        rows.append({**row, "other": other["source"]})
    return rows


def translations(step: int) -> list[dict[str, Any]]:
    """Six translations with words and further sentences: the first and the last are equal."""
    pairs = tiny.word_rows(36)
    rows = []
    for row in range(6 * step, 6 * step + 6):
        rows.append({**pairs[row], "other": pairs[18 + row]["target"]})
    rows[5] = rows[0]  # the same pair on both of two ranks
    rows[4]["target"] = rows[1]["target"]  # and the same text beside another
    return rows


def questions(step: int) -> list[dict[str, Any]]:
    """Six queries with a passage and a hard negative each."""
    rows = []
    for row in translations(step):
        question = {"query": row["source"], "positive": row["target"], "negative": row["other"]}
        rows.append(question)
    return rows
