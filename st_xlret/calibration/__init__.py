"""Fit calibrations: shift, scale and rotation between languages (CCP), and projections that remove language bias.

Names load on first use: to apply a calibration of stored vectors needs no PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Comparison": "choose",
    "LanguageBias": "bias",
    "STEPS": "steps",
    "Sample": "model",
    "VectorCalibration": "calibration",
    "calibrate": "model",
    "embed_pairs": "model",
    "embed_texts": "model",
    "fit_and_compare": "choose",
    "fit_calibration": "calibration",
    "judged_recall": "judged",
    "mean_csls_criterion": "rotation",
    "measure": "bias",
    "measure_language_bias": "bias",
    "procrustes": "rotation",
    "sample_questions": "model",
    "sample_texts": "model",
    "unsupervised_rotation": "rotation",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
