"""RetrievalContrastiveLoss is retrieval_contrastive_loss over an encoder, and the host's ranking loss."""

from __future__ import annotations

import random

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from st_xlret.functional import retrieval_contrastive_loss
from st_xlret.losses import RetrievalContrastiveLoss
from st_xlret.modules import with_two_encoders
from tests import tiny
from tests.losses.batches import columns

COLUMNS = ("query", "positive", "negative_1")


def rows(count: int = 5, seed: int = 4) -> list[dict[str, str]]:
    dice = random.Random(seed)
    return [
        {column: tiny.sentence(dice, 3 + 2 * (column != "query")) for column in COLUMNS} | {"language": "en"}
        for _ in range(count)
    ]


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_equals_the_functional_and_the_hosts_loss(make) -> None:
    model = make()
    embedded = [model(features)["sentence_embedding"] for features in columns(model, rows(), COLUMNS)]
    loss = RetrievalContrastiveLoss(model, temperature=0.1, weight=2.0)(columns(model, rows(), COLUMNS))
    expected = retrieval_contrastive_loss(embedded[0], torch.cat(embedded[1:]), temperature=0.1)
    torch.testing.assert_close(loss, 2 * expected)
    host = MultipleNegativesRankingLoss(model, scale=10.0)
    torch.testing.assert_close(loss, 2 * host(columns(model, rows(), COLUMNS), None))


def test_inner_products_in_place_of_cosines() -> None:
    model = tiny.static()
    embedded = [model(features)["sentence_embedding"] for features in columns(model, rows(), COLUMNS)]
    loss = RetrievalContrastiveLoss(model, temperature=1.0, similarity="dot")(columns(model, rows(), COLUMNS))
    logits = embedded[0] @ torch.cat(embedded[1:]).T
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, torch.arange(5)))


def test_questions_about_one_paragraph_are_no_negatives_of_each_other() -> None:
    model, batch = tiny.static(), rows()
    batch[2]["positive"] = batch[0]["positive"]
    loss = RetrievalContrastiveLoss(model)(columns(model, batch, COLUMNS))
    assert loss < MultipleNegativesRankingLoss(model)(columns(model, batch, COLUMNS), None)


def test_two_encoders_take_their_own_columns() -> None:
    model = with_two_encoders(tiny.transformer())
    router = {"query": "query", "positive": "document", "negative_1": "document"}
    loss = RetrievalContrastiveLoss(model)
    loss(columns(model, rows(), COLUMNS, router_mapping=router)).backward()
    for side in model[0].sub_modules.values():
        gradients = [p.grad for name, p in side.named_parameters() if ".pooler." not in name]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    model.zero_grad()
    loss(columns(model, rows(), COLUMNS, router_mapping=dict.fromkeys(router, "document"))).backward()
    assert all(p.grad is None or not p.grad.any() for p in model[0].sub_modules["query"].parameters())
