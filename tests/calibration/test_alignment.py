from __future__ import annotations

import pytest
import torch

from st_xlret.calibration import alignment_table, fit_calibration_stages, measure_alignment


def test_shifting_brings_the_means_together_and_the_table_says_so() -> None:
    clouds = {"en": torch.randn(300, 4) + 2, "fr": torch.randn(300, 4) - 2}
    stages = fit_calibration_stages(clouds, steps=["shift", "scale"])
    before, after = measure_alignment(clouds), measure_alignment(clouds, calibration=stages["shift"])
    assert before.distance == pytest.approx(4 * 2 / 2, rel=0.1)
    assert after.distance == pytest.approx(0, abs=1e-5)
    assert after.criterion > before.criterion + 0.5
    lines = alignment_table(clouds, stages).splitlines()
    assert [line[:7].strip() for line in lines[:5]] == ["after", "before", "+ shift", "+ scale", ""]
    assert all(f"{figure:.3f}" in lines[2] for figure in after)
    # Each column is explained: what it measures, and which way is good.
    explained = "\n".join(lines[5:])
    assert explained.count(" is better") == 3
    assert all(column in explained for column in ("distance of means:", "cosine of matches:", "lead of matches:"))


def test_a_common_direction_raises_the_cosines_and_not_the_lead() -> None:
    rows = torch.randn(300, 8)
    apart = {"en": rows, "fr": rows + 0.1 * torch.randn(300, 8)}
    common = 6 * torch.ones(8)
    pushed = {language: cloud + common for language, cloud in apart.items()}
    without, with_it = measure_alignment(apart), measure_alignment(pushed)
    assert with_it.criterion > without.criterion and with_it.lead < 0.2 < 0.8 < without.lead
    unit = torch.nn.functional.normalize(pushed["fr"], dim=1) @ torch.nn.functional.normalize(pushed["en"], dim=1).T
    assert with_it.lead == pytest.approx(with_it.criterion - float(unit.mean()), abs=1e-5)


def test_the_distance_does_not_change_by_scaling_alone() -> None:
    clouds = {"en": torch.randn(50, 4), "fr": torch.randn(50, 4) + 1}
    doubled = {language: 2 * rows for language, rows in clouds.items()}
    assert measure_alignment(doubled).distance == pytest.approx(measure_alignment(clouds).distance)


def test_one_language_is_aligned_with_itself() -> None:
    assert measure_alignment({"en": torch.randn(50, 4)}) == (0.0, 1.0, 1.0)
