"""SemanticContrastiveLoss is info_nce_loss over an encoder."""

from __future__ import annotations

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.functional import info_nce_loss
from st_xlret.losses import SemanticContrastiveLoss
from tests import tiny


def columns(model: SentenceTransformer, rows: list[dict]) -> list[dict[str, Tensor]]:
    batch = CrossLingualDataCollator(model.preprocess)(rows)
    return [
        {k.removeprefix(f"{side}_"): v for k, v in batch.items() if k.startswith(f"{side}_")}
        for side in ("source", "target")
    ]


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


def test_a_duplicated_pair_is_no_negative(rows: list[dict]) -> None:
    model = tiny.static()
    loss = SemanticContrastiveLoss(model)
    assert loss(columns(model, rows[:2])) > 0
    assert loss(columns(model, [rows[0]] * 3)) == 0


def test_texts_need_not_be_known() -> None:
    model = tiny.static()
    sides = [model.preprocess(["sun", "moon"]), model.preprocess(["rain", "wind"])]
    source, target = (model(dict(side))["sentence_embedding"] for side in sides)
    torch.testing.assert_close(SemanticContrastiveLoss(model)(sides), info_nce_loss(source, target))


def test_gradients_reach_the_encoder_alone(rows: list[dict]) -> None:
    model = tiny.transformer()
    loss = SemanticContrastiveLoss(model)
    loss(columns(model, rows)).backward()
    # The pooler of XLM-R's architecture stands beside the path of the mean pooling.
    used = [p for name, p in model.named_parameters() if ".pooler." not in name]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in used)
    assert loss.owned_parameters() == [] and loss.owned_state() == {}


def test_bfloat16_autocast(rows: list[dict]) -> None:
    model = tiny.transformer()
    loss = SemanticContrastiveLoss(model)
    exact = loss(columns(model, rows))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = loss(columns(model, rows))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.05)


def test_the_batch_is_remembered(rows: list[dict]) -> None:
    model = tiny.static()
    loss = SemanticContrastiveLoss(model)
    value = loss(columns(model, rows))
    assert loss.last_value == value
    with torch.no_grad():
        loss(columns(model, rows[:2]))
    assert loss.last_value == value


def test_wrong_arguments(rows: list[dict]) -> None:
    model = tiny.static()
    loss = SemanticContrastiveLoss(model)
    for count in (1, 3):
        with pytest.raises(ValueError, match=f"takes two columns of translations, got {count}"):
            loss((columns(model, rows) * 2)[:count])
    with pytest.raises(ValueError, match="temperature must be positive, got -0.1"):
        SemanticContrastiveLoss(model, temperature=-0.1)


def test_what_the_model_card_learns() -> None:
    loss = SemanticContrastiveLoss(tiny.static(), temperature=0.05, weight=0.01)
    assert loss.get_config_dict() == {"temperature": 0.05, "weight": 0.01, "gather_across_devices": True}
    assert "hu2023language" in loss.citation
