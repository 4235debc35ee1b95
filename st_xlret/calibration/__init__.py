"""Fit calibrations: shift, scale and rotation between languages (CCP), and projections that remove language bias.

Names load on first use: to apply a calibration of stored vectors needs no PyTorch.
"""

from typing import Any

from st_xlret.optional import load_public_name

_NAMES = {
    "bias": "LanguageBias measure_calibrations measure_language_bias",
    "calibration": "VectorCalibration fit_calibration",
    "choose": "Comparison fit_and_compare",
    "judged": "judged_recall",
    "model": "Sample calibrate embed_pairs embed_by_language sample_questions sample_texts",
    "rotation": "mean_csls_criterion procrustes unsupervised_rotation",
    "steps": "STEPS",
}
_HOMES = {name: f"{__name__}.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, _HOMES, name)
