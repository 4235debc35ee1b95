"""LangContrastiveLoss is language_contrastive_loss over an encoder."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from st_xlret.functional import language_contrastive_loss
from st_xlret.losses import LangContrastiveLoss
from tests import tiny
from tests.losses.batches import columns

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
