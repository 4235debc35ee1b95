"""Fit calibrations: shift, scale and rotation between languages (CCP), and projections that remove language bias."""

from __future__ import annotations

from st_xlret.calibration.adversarial import AdversarialOptions
from st_xlret.calibration.embedding import embed_documents, embed_pairs
from st_xlret.calibration.encoding import encode, language_routes
from st_xlret.calibration.fit import fit_calibration, fit_calibration_stages
from st_xlret.calibration.inputs import STEPS, CalibrationOptions
from st_xlret.calibration.report import Alignment, alignment_table, measure_alignment
from st_xlret.calibration.roles import RoleCalibrations, fit_role_calibrations
from st_xlret.calibration.rotation import mean_csls_criterion, procrustes
from st_xlret.calibration.unsupervised import RotationOptions, unsupervised_rotation

__all__ = [
    "STEPS",
    "AdversarialOptions",
    "Alignment",
    "CalibrationOptions",
    "RoleCalibrations",
    "RotationOptions",
    "alignment_table",
    "embed_documents",
    "embed_pairs",
    "encode",
    "fit_calibration",
    "fit_calibration_stages",
    "fit_role_calibrations",
    "language_routes",
    "mean_csls_criterion",
    "measure_alignment",
    "procrustes",
    "unsupervised_rotation",
]
