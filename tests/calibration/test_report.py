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
    assert [line[:7].strip() for line in lines] == ["after", "before", "+ shift", "+ scale"]
    assert f"{after.criterion:.3f}" in lines[2]


def test_the_distance_does_not_change_by_scaling_alone() -> None:
    clouds = {"en": torch.randn(50, 4), "fr": torch.randn(50, 4) + 1}
    doubled = {language: 2 * rows for language, rows in clouds.items()}
    assert measure_alignment(doubled).distance == pytest.approx(measure_alignment(clouds).distance)


def test_one_language_is_aligned_with_itself() -> None:
    assert measure_alignment({"en": torch.randn(50, 4)}) == (0.0, 1.0)
