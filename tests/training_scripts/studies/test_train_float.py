"""What 16-bit floats leave of the gradient of InfoNCE and CZ-NCE."""

from __future__ import annotations

import math

import pytest
import torch

from st_xlret.functional import cz_nce_loss, info_nce_loss
from tests import tiny
from tests.losses.batches import columns
from training_scripts.studies.train_float import FORMS, TYPES, LossInType, gradient_at, zero_from


@pytest.mark.parametrize("form", ["usual", "cross_entropy", "softplus"])
@pytest.mark.parametrize("gap", [0.0, 0.3, 1.0])
def test_the_gradient_of_info_nce_by_hand(form: str, gap: float) -> None:
    others = 14 * math.exp(-gap / 0.07)
    assert gradient_at(form, torch.float64, 8, gap) == pytest.approx(others / (1 + others) / 0.07, rel=1e-6)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("usual", [1.28, 0.58, 0.72]),
        ("cross_entropy", [1.46, 0.73, 0.88]),
        ("softplus", [None] * 3),
        ("cz_nce", [None] * 3),
    ],
)
def test_the_gaps_of_the_card(form: str, expected: list[float | None]) -> None:
    found = [zero_from(form, dtype, 64) for dtype in TYPES.values()]
    assert found[1:] == expected[1:]
    assert found[0] is expected[0] or found[0] == pytest.approx(expected[0], abs=0.06)  # processors round differently


@pytest.mark.parametrize("form", FORMS)
def test_in_fp32_it_is_the_loss_of_the_package(form: str) -> None:
    model = tiny.static()
    rows = tiny.pairs(6).to_list()
    rows[4] = rows[1]
    source, target = (model(features)["sentence_embedding"] for features in columns(model, rows))
    house = cz_nce_loss if form == "cz_nce" else info_nce_loss
    expected = house(source, target, text=torch.tensor([0, 1, 2, 3, 1, 5] * 2))
    loss = LossInType(model, form, torch.float32)
    value = loss(columns(model, rows))
    torch.testing.assert_close(value, expected)
    (weight,) = model.parameters()
    (ours,), (theirs,) = torch.autograd.grad(value, weight), torch.autograd.grad(expected, weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert len(loss.gaps) == 1 and loss(columns(model, rows[:1])) == 0
