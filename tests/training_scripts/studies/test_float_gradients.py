"""What 16-bit floats leave of the gradient of InfoNCE and CZ-NCE."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch

from st_xlret.functional import cz_nce_loss, info_nce_loss
from tests import tiny
from tests.losses.routers import columns
from training_scripts.studies.float_gradients import (
    FORMS,
    TYPES,
    LossInType,
    gradient_at,
    gradient_curves,
    plot_gradients,
)

INFO_NCE = ["usual", "cross_entropy", "softplus"]


@pytest.mark.parametrize("form", INFO_NCE)
@pytest.mark.parametrize("gap", [0.0, 0.3, 1.0])
def test_the_gradient_of_info_nce_by_hand(form: str, gap: float) -> None:
    others = 14 * math.exp(-gap / 0.07)
    assert gradient_at(form, torch.float64, 8, gap) == pytest.approx(others / (1 + others) / 0.07, rel=1e-6)


@pytest.mark.parametrize("dtype", TYPES.values())
@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5])
def test_cz_nce_always_pulls_alike(dtype: torch.dtype, gap: float) -> None:
    assert gradient_at("cz_nce", dtype, 64, gap) == pytest.approx(1 / 0.07, rel=0.01)


def test_how_it_is_written_decides_when_it_is_lost() -> None:
    curves = {(c["loss"], c["type"]): c for c in gradient_curves([8], FORMS, TYPES)}
    lost = {key: curve["zero_from"] for key, curve in curves.items()}
    assert lost["usual", "bf16"] < lost["usual", "fp16"] < lost["usual", "fp32"]
    assert all(lost[form, name] is None for form in ("softplus", "cz_nce") for name in TYPES)
    assert len(curves) == 12 and len(curves["usual", "bf16"]["gradient"]) == len(curves["usual", "bf16"]["gaps"])


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
    weight = model[0].embedding.weight
    for ours, theirs in zip(torch.autograd.grad(value, weight), torch.autograd.grad(expected, weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert len(loss.gaps) == 1
    assert loss(columns(model, rows[:1])) == 0


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_sixteen_bits_come_near(name: str) -> None:
    model = tiny.static()
    rows = tiny.pairs(6).to_list()
    for form in FORMS:
        exact, low = (LossInType(model, form, TYPES[kind])(columns(model, rows)) for kind in ("fp32", name))
        assert low.dtype == torch.float32
        torch.testing.assert_close(low, exact, rtol=0.05, atol=0.05)


def test_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = plot_gradients(gradient_curves([8, 16], FORMS, ["bf16", "fp32"]), tmp_path / "plot.png")
    assert path is not None and [file.name for file in tmp_path.iterdir()] == ["plot.png"]


def test_without_matplotlib_there_is_no_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert plot_gradients(gradient_curves([8], ["usual"], ["bf16"]), tmp_path / "plot.png") is None
    assert not any(tmp_path.iterdir()) and "st-xlret[plots]" in caplog.text
