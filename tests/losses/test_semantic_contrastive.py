"""SemanticContrastiveLoss is info_nce_loss over an encoder."""

from __future__ import annotations

import pytest
import torch

from st_xlret.functional import info_nce_loss
from st_xlret.losses import SemanticContrastiveLoss
from tests import tiny
from tests.losses.batches import columns


@pytest.fixture
def rows() -> list[dict]:
    rows = tiny.pairs(6).to_list()
    rows[3]["target"] = rows[1]["target"]
    return rows


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_equals_the_functional_loss(make, rows: list[dict]) -> None:
    model = make()
    source, target = (model(features)["sentence_embedding"] for features in columns(model, rows))
    # Rows 1 and 3 share their target: none of their four texts is a negative of another.
    group = torch.tensor([0, 1, 2, 1, 4, 5] * 2)
    loss = SemanticContrastiveLoss(model, temperature=0.1, weight=3.0)(columns(model, rows))
    torch.testing.assert_close(loss, 3 * info_nce_loss(source, target, temperature=0.1, text=group))
    assert loss != 3 * info_nce_loss(source, target, temperature=0.1)


def test_texts_need_not_be_known() -> None:
    model = tiny.static()
    sides = [model.preprocess(["sun", "moon"]), model.preprocess(["rain", "wind"])]
    source, target = (model(dict(side))["sentence_embedding"] for side in sides)
    torch.testing.assert_close(SemanticContrastiveLoss(model)(sides), info_nce_loss(source, target))
