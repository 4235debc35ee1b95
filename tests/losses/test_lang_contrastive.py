"""LangContrastiveLoss is language_contrastive_loss over an encoder."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from st_xlret.functional import language_contrastive_loss
from st_xlret.losses import LangContrastiveLoss
from tests import tiny
from tests.losses.routers import columns

NAMES = ("source", "target", "other")


@pytest.fixture
def rows() -> list[dict]:
    pairs = tiny.pairs(12).to_list()
    return [{**row, "other": other["source"]} for row, other in zip(pairs[:6], pairs[6:], strict=True)]


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "paper"])
def test_equals_the_functional_loss(make: Any, rows: list[dict], count: int, reduction: Any) -> None:
    model = make()
    vectors = [model(features)["sentence_embedding"] for features in columns(model, rows, NAMES)[:count]]
    loss = LangContrastiveLoss(model, weight=3.0, reduction=reduction)(columns(model, rows, NAMES)[:count])
    torch.testing.assert_close(loss, 3 * language_contrastive_loss(*vectors, reduction=reduction))


def test_gradients_reach_the_encoder_alone(rows: list[dict]) -> None:
    model = tiny.transformer()
    loss = LangContrastiveLoss(model)
    loss(columns(model, rows, NAMES)).backward()
    used = [p for name, p in model.named_parameters() if ".pooler." not in name]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in used)
    assert loss.owned_parameters() == [] and loss.owned_state() == {}


def test_training_takes_the_languages_out(rows: list[dict]) -> None:
    model = tiny.transformer()
    loss = LangContrastiveLoss(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    values = []
    for _ in range(30):
        value = loss(columns(model, rows, NAMES))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item() - 2 * math.log(2))
    assert 0 <= values[-1] < 0.02 * values[0]


def test_bfloat16_autocast(rows: list[dict]) -> None:
    model = tiny.transformer()
    loss = LangContrastiveLoss(model)
    exact = loss(columns(model, rows, NAMES))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = loss(columns(model, rows, NAMES))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.01, atol=0.01)


def test_the_batch_is_remembered(rows: list[dict]) -> None:
    model = tiny.static()
    loss = LangContrastiveLoss(model)
    value = loss(columns(model, [{**row, "other_language": "sw"} for row in rows], NAMES))
    assert loss.last_value == value


def test_a_batch_of_one_pair(rows: list[dict]) -> None:
    model = tiny.static()
    loss = LangContrastiveLoss(model)
    assert loss(columns(model, rows[:1], NAMES)).isfinite()
    with pytest.raises(ValueError, match="got 1 pairs and 0 others"):
        loss(columns(model, rows[:1]))


def test_wrong_arguments(rows: list[dict]) -> None:
    model = tiny.static()
    given = columns(model, rows, NAMES)
    for wrong in (given[:1], [*given, given[0]]):
        with pytest.raises(ValueError, match=f"at most one of further sentences, got {len(wrong)}"):
            LangContrastiveLoss(model)(wrong)
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'paper', got 'max'"):
        LangContrastiveLoss(model, reduction="max")  # type: ignore[arg-type]


def test_what_the_model_card_learns() -> None:
    loss = LangContrastiveLoss(tiny.static(), weight=0.001)
    assert loss.get_config_dict() == {"weight": 0.001, "reduction": "mean", "gather_across_devices": True}
    assert "hu2023language" in loss.citation
