"""Fit calibrations: shift, scale and rotation between languages (CCP), and projections that remove language bias."""

from __future__ import annotations

from st_xlret.calibration.calibrate import calibrate
from st_xlret.calibration.choosing import compare_strengths, fit_and_compare, usual_calibrations
from st_xlret.calibration.comparison import Comparison, compare_calibrations
from st_xlret.calibration.embedding import embed_pairs, embed_texts
from st_xlret.calibration.fit import (
    STEPS,
    CalibrationOptions,
    RoleCalibrations,
    fit_calibration,
    fit_calibration_stages,
    fit_role_calibrations,
)
from st_xlret.calibration.rotation import (
    AdversarialOptions,
    RotationOptions,
    mean_csls_criterion,
    procrustes,
    unsupervised_rotation,
)
from st_xlret.calibration.sampling import Sample, sample_questions, sample_texts, usual_texts

__all__ = [
    "STEPS",
    "AdversarialOptions",
    "CalibrationOptions",
    "Comparison",
    "RoleCalibrations",
    "RotationOptions",
    "Sample",
    "calibrate",
    "compare_calibrations",
    "compare_strengths",
    "embed_pairs",
    "embed_texts",
    "fit_and_compare",
    "fit_calibration",
    "fit_calibration_stages",
    "fit_role_calibrations",
    "mean_csls_criterion",
    "procrustes",
    "sample_questions",
    "sample_texts",
    "unsupervised_rotation",
    "usual_calibrations",
    "usual_texts",
]
