"""The losses over translations are their equations over the encoder, of passages where there are two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from st_xlret.functional import info_nce_loss, language_contrastive_loss
from st_xlret.losses import LangContrastiveLoss, SemanticContrastiveLoss
from tests import tiny
from tests.losses.batches import columns, two_encoders

NAMES = ("source", "target", "other")
LOSSES = [SemanticContrastiveLoss, LangContrastiveLoss]
TO_DOCUMENT = {"source": "document", "target": "document"}


def rows() -> list[dict[str, Any]]:
    pairs = tiny.pairs(12).to_list()
    return [{**row, "other": other["source"]} for row, other in zip(pairs[:6], pairs[6:], strict=True)]


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_pairs_that_share_a_text_are_no_negatives(make: Any) -> None:
    model, given = make(), rows()
    given[3]["target"] = given[1]["target"]
    source, target = (model(features)["sentence_embedding"] for features in columns(model, given))
    # Rows 1 and 3 share their target: none of their four texts is a negative of another.
    group = torch.tensor([0, 1, 2, 1, 4, 5] * 2)
    loss = SemanticContrastiveLoss(model, temperature=0.1, weight=3.0)(columns(model, given))
    torch.testing.assert_close(loss, 3 * info_nce_loss(source, target, temperature=0.1, text=group))
    assert loss != 3 * info_nce_loss(source, target, temperature=0.1)
    untagged = [{k: v for k, v in column.items() if k != "text_id"} for column in columns(model, given)]
    torch.testing.assert_close(SemanticContrastiveLoss(model)(untagged), info_nce_loss(source, target))


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_the_language_loss_equals_its_equation(make: Any, count: int, reduction: Any) -> None:
    model = make()
    vectors = [model(features)["sentence_embedding"] for features in columns(model, rows(), NAMES)[:count]]
    loss = LangContrastiveLoss(model, weight=3.0, reduction=reduction)(columns(model, rows(), NAMES)[:count])
    torch.testing.assert_close(loss, 3 * language_contrastive_loss(*vectors, reduction=reduction))


@pytest.mark.parametrize(
    ("default", "mapping"), [("document", {}), *((name, TO_DOCUMENT) for name in ("document", "query", None))]
)
@pytest.mark.parametrize("kind", LOSSES)
def test_the_passage_encoder_alone_is_trained(kind: Any, default: str | None, mapping: dict[str, str]) -> None:
    # The default route is what a column without a task takes: here it may be the wrong one.
    model, query, passage = two_encoders(default=default)
    loss = kind(model)(columns(model, rows(), router_mapping=mapping))
    torch.testing.assert_close(loss, kind(passage)(columns(passage, rows())))
    loss.backward()
    assert all(p.grad is None for p in query.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in passage.parameters())


@pytest.mark.parametrize("kind", LOSSES)
def test_columns_of_the_query_encoder_are_refused(kind: Any) -> None:
    model, *_ = two_encoders()
    with pytest.raises(ValueError, match="'query'"):
        kind(model)(columns(model, rows(), router_mapping={"source": "document", "target": "query"}))
    model, *_ = two_encoders(default="query")
    with pytest.raises(ValueError, match="'query'"):
        kind(model)(columns(model, rows()))


def test_a_router_without_a_document_route_is_left_alone() -> None:
    first, second = tiny.static(seed=1), tiny.static(seed=2)
    model = SentenceTransformer(modules=[Router({"left": list(first), "right": list(second)})], device="cpu")
    mapped = columns(model, rows(), router_mapping={"source": "right", "target": "right"})
    expected = SemanticContrastiveLoss(second)(columns(second, rows()))
    torch.testing.assert_close(SemanticContrastiveLoss(model)(mapped), expected)
