"""Auxiliary losses reach the passage encoder of a Router, and it alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.losses import LangContrastiveLoss, SemanticContrastiveLoss
from st_xlret.losses.embedding import PassageSide
from st_xlret.modules import static_encoder, train_tokenizer
from tests import tiny
from tests.losses.batches import columns, two_encoders
from tests.training.runs import arguments

LOSSES = [SemanticContrastiveLoss, LangContrastiveLoss]
MAPPINGS: list[dict[str, str]] = [{}, {"source": "document", "target": "document"}]


@pytest.mark.parametrize("make", [tiny.transformer, tiny.static])
@pytest.mark.parametrize(
    ("default", "mapping"), [("document", MAPPINGS[0]), *((name, MAPPINGS[1]) for name in ("document", "query", None))]
)
@pytest.mark.parametrize("kind", LOSSES)
def test_the_passage_encoder_alone_is_trained(kind: Any, default: str | None, mapping: dict, make: Any) -> None:
    # The default route is what a column without a task would take: here it may be the wrong one.
    model, query, passage = two_encoders(make, default=default)
    rows = tiny.pairs(6).to_list()
    loss = kind(model)(columns(model, rows, router_mapping=mapping))
    torch.testing.assert_close(loss, kind(passage)(columns(passage, rows)))
    loss.backward()
    assert all(p.grad is None for p in query.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in passage.parameters())


@pytest.mark.parametrize("kind", LOSSES)
def test_columns_of_the_query_encoder_are_refused(kind: Any) -> None:
    model, *_ = two_encoders()
    mapped = columns(model, tiny.pairs(4).to_list(), router_mapping={"source": "document", "target": "query"})
    with pytest.raises(ValueError, match="text column 1 was made for the route 'query'.*router_mapping"):
        kind(model)(mapped)


def test_tokens_of_another_encoder_are_refused() -> None:
    other = static_encoder(train_tokenizer(["wolf bear fish bird"] * 4, vocabulary=60), features=8)
    rows = tiny.pairs(4).to_list()
    model, _, passage = two_encoders(tiny.static, query=other, default="query")
    with pytest.raises(ValueError, match="text column 0 was made for no route"):
        SemanticContrastiveLoss(model)(columns(model, rows))
    expected = SemanticContrastiveLoss(passage)(columns(passage, rows))
    mapped = columns(model, rows, router_mapping=MAPPINGS[1])
    torch.testing.assert_close(SemanticContrastiveLoss(model)(mapped), expected)
    # The passages' default route makes the right tokens without being told.
    model, _, passage = two_encoders(tiny.static, query=other)
    torch.testing.assert_close(SemanticContrastiveLoss(model)(columns(model, rows)), expected)


def test_a_router_without_a_document_route_is_left_alone() -> None:
    first, second = tiny.static(seed=1), tiny.static(seed=2)
    model = SentenceTransformer(
        modules=[Router({"left": list(first), "right": list(second)}), Normalize()], device="cpu"
    )
    rows = tiny.pairs(4).to_list()
    mapped = columns(model, rows, router_mapping={"source": "right", "target": "right"})
    expected = SemanticContrastiveLoss(second)(columns(second, rows))
    torch.testing.assert_close(SemanticContrastiveLoss(model)(mapped), expected)


def test_a_document_route_may_have_another_name() -> None:
    first, second = tiny.static(seed=1), tiny.static(seed=2)
    router = Router({"left": list(first), "right": list(second)}, route_mappings={("document", None): "right"})
    model = SentenceTransformer(modules=[router], device="cpu")
    rows = tiny.pairs(4).to_list()
    expected = SemanticContrastiveLoss(second)(columns(second, rows))
    torch.testing.assert_close(
        SemanticContrastiveLoss(model)(columns(model, rows, router_mapping=MAPPINGS[1])), expected
    )


def test_a_shared_encoder_needs_nothing() -> None:
    model = tiny.static()
    given = columns(model, tiny.pairs(4).to_list())
    assert PassageSide(model)(given) is given


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_in_the_hosts_trainer(tmp_path: Any, mapping: dict[str, str]) -> None:
    model, query, passage = two_encoders()
    before = [p.detach().clone() for p in query.parameters()]
    trained = passage[0].auto_model.get_input_embeddings().weight
    start = trained.detach().clone()
    pairs = tiny.pairs(12).to_list()
    dataset = Dataset.from_list(
        [{**row, "other": pairs[i - 1]["source"], "other_language": "sw"} for i, row in enumerate(pairs)]
    )
    loss = LangContrastiveLoss(model)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(tmp_path, max_steps=2, router_mapping=mapping, weight_decay=0.0),
        train_dataset=dataset,
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess, router_mapping=mapping),
    )
    trainer.train()
    assert loss.last_value is not None
    assert all(torch.equal(a, b) for a, b in zip(before, query.parameters(), strict=True))
    assert not torch.equal(trained, start)
