"""RetrievalContrastiveLoss is retrieval_contrastive_loss over an encoder, and the host's ranking loss."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.functional import retrieval_contrastive_loss
from st_xlret.losses.retrieval_contrastive import RetrievalContrastiveLoss
from st_xlret.modules import with_two_encoders
from tests import tiny

COLUMNS = ["query", "positive", "negative_1"]


def rows(count: int = 5, seed: int = 4) -> list[dict[str, str]]:
    dice = random.Random(seed)
    return [
        {column: tiny.sentence(dice, 3 + 2 * (column != "query")) for column in COLUMNS} | {"language": "en"}
        for _ in range(count)
    ]


def columns(model: SentenceTransformer, batch: list[dict[str, str]], **options: Any) -> list[dict[str, Any]]:
    found = CrossLingualDataCollator(model.preprocess, **options)(batch)
    return [{k.removeprefix(f"{c}_"): v for k, v in found.items() if k.startswith(f"{c}_")} for c in COLUMNS]


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_equals_the_functional_and_the_hosts_loss(make) -> None:
    model = make()
    embedded = [model(features)["sentence_embedding"] for features in columns(model, rows())]
    loss = RetrievalContrastiveLoss(model, temperature=0.1, weight=2.0)(columns(model, rows()))
    expected = retrieval_contrastive_loss(embedded[0], torch.cat(embedded[1:]), temperature=0.1)
    torch.testing.assert_close(loss, 2 * expected)
    host = MultipleNegativesRankingLoss(model, scale=10.0)
    torch.testing.assert_close(loss, 2 * host(columns(model, rows()), None))


def test_questions_about_one_paragraph_are_no_negatives_of_each_other() -> None:
    model, batch = tiny.static(), rows()
    batch[2]["positive"] = batch[0]["positive"]
    loss = RetrievalContrastiveLoss(model)(columns(model, batch))
    assert loss < MultipleNegativesRankingLoss(model)(columns(model, batch), None)


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_two_encoders_take_their_own_columns(make) -> None:
    model = with_two_encoders(make())
    router = {"query": "query", "positive": "document", "negative_1": "document"}
    loss = RetrievalContrastiveLoss(model)
    loss(columns(model, rows(), router_mapping=router)).backward()
    sides = model[0].sub_modules
    for side in ("query", "document"):
        gradients = [p.grad for name, p in sides[side].named_parameters() if ".pooler." not in name]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    # Gradients of the passage side do not come from the questions.
    alone = RetrievalContrastiveLoss(model)
    model.zero_grad()
    alone(columns(model, rows(), router_mapping=dict.fromkeys(router, "document"))).backward()
    assert all(p.grad is None or not p.grad.any() for p in sides["query"].parameters())


def test_bfloat16_autocast() -> None:
    model = tiny.transformer()
    loss = RetrievalContrastiveLoss(model)
    exact = loss(columns(model, rows()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = loss(columns(model, rows()))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.1, atol=0.1)


def test_the_batch_is_remembered_and_nothing_is_owned() -> None:
    model = tiny.static()
    loss = RetrievalContrastiveLoss(model)
    value = loss(columns(model, rows()))
    assert loss.last_value == value
    with torch.no_grad():
        loss(columns(model, rows(3)))
    assert loss.last_value == value
    assert loss.owned_parameters() == [] and loss.owned_state() == {}


def test_wrong_arguments() -> None:
    model = tiny.static()
    with pytest.raises(ValueError, match="temperature.*-1"):
        RetrievalContrastiveLoss(model, temperature=-1)
    with pytest.raises(ValueError, match="takes queries, passages.*got 1 text column"):
        RetrievalContrastiveLoss(model)(columns(model, rows())[:1])


def test_what_the_model_card_learns() -> None:
    loss = RetrievalContrastiveLoss(tiny.static(), temperature=0.2)
    assert loss.get_config_dict() == {"temperature": 0.2, "weight": 1.0, "gather_across_devices": True}
    assert "hu2023language" in loss.citation
