"""Prompts in training batches: the losses see the vectors that `encode` gives with the same prompt."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.losses import (
    CCPLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from tests import tiny

PROMPT = "wind snow leaf "
LOSSES: dict[str, tuple[Callable[..., nn.Module], list[str], dict[str, Any]]] = {
    "ccp": (CCPLoss, ["sentence"], {"bank_size": 4}),
    "msm": (MSMLoss, ["sentence"], {}),
    "pairs": (SemanticContrastiveLoss, ["source", "target"], {}),
    "language": (LangContrastiveLoss, ["source", "target"], {}),
    "ml-ctl": (CZNCELoss, ["source", "target"], {}),
    "retrieval": (RetrievalContrastiveLoss, ["query", "positive", "negative_1"], {}),
}


def rows_of(columns: list[str]) -> list[dict[str, Any]]:
    dice = random.Random(5)
    tags = [{"language": "en", "document": i % 4, "position": i // 4} for i in range(8)]
    return [{column: tiny.sentence(dice, 3 + i % 5) for column in columns} | tags[i] for i in range(8)]


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_a_prompt_is_pooled_or_not_as_the_model_says(name: str, include_prompt: bool) -> None:
    model: SentenceTransformer = tiny.transformer()
    model.set_pooling_include_prompt(include_prompt)
    make, columns, options = LOSSES[name]
    rows = rows_of(columns)
    # Prompts of different lengths must not be mixed up where columns pass the encoder together.
    prompts = {column: PROMPT[5 * i :] for i, column in enumerate(columns)}
    expected = {c: model.encode([row[c] for row in rows], prompt=prompts[c], convert_to_tensor=True) for c in columns}

    batch = CrossLingualDataCollator(model.preprocess, prompts=prompts)(rows)
    features = [{k.removeprefix(f"{c}_"): v for k, v in batch.items() if k.startswith(f"{c}_")} for c in columns]
    seen: list[Tensor] = []
    model[1].register_forward_hook(lambda _, given, out: seen.append(out["sentence_embedding"].detach()))
    loss = make(model, **options)(features, None)
    (sum(loss.values()) if isinstance(loss, dict) else loss).backward()

    vectors = torch.cat(seen)
    for column in columns:
        distances = torch.cdist(expected[column], vectors).min(1).values
        assert distances.max() < 1e-4, column
    other = model.encode([row[columns[0]] for row in rows], convert_to_tensor=True)
    assert torch.cdist(other, vectors).min(1).values.min() > 1e-2, "the prompt makes a difference"
