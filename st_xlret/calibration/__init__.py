"""Fit calibrations: shift, scale and rotation between languages, and projections.

The first three are CCP's, the projections remove language bias. Names load on first use: to apply a
calibration of stored vectors needs no PyTorch.
"""

from typing import TYPE_CHECKING

from st_xlret.optional import lazy_names

if TYPE_CHECKING:
    from st_xlret.calibration.choose import fit_and_compare as fit_and_compare
    from st_xlret.calibration.comparison import Comparison as Comparison
    from st_xlret.calibration.embedding import embed_by_language as embed_by_language
    from st_xlret.calibration.embedding import embed_pairs as embed_pairs
    from st_xlret.calibration.fit_options import FitOptions as FitOptions
    from st_xlret.calibration.judged import judged_recall as judged_recall
    from st_xlret.calibration.language_bias import LanguageBias as LanguageBias
    from st_xlret.calibration.measure import measure_calibrations as measure_calibrations
    from st_xlret.calibration.measure import measure_language_bias as measure_language_bias
    from st_xlret.calibration.model import calibrate as calibrate
    from st_xlret.calibration.rotation import mean_csls_criterion as mean_csls_criterion
    from st_xlret.calibration.rotation import procrustes as procrustes
    from st_xlret.calibration.rotation import unsupervised_rotation as unsupervised_rotation
    from st_xlret.calibration.sampling import Sample as Sample
    from st_xlret.calibration.sampling import sample_queries as sample_queries
    from st_xlret.calibration.sampling import sample_texts as sample_texts
    from st_xlret.calibration.steps import STEPS as STEPS
    from st_xlret.calibration.vectors import VectorCalibration as VectorCalibration

MODULES = {
    "LanguageBias": "st_xlret.calibration.language_bias",
    "measure_calibrations": "st_xlret.calibration.measure",
    "measure_language_bias": "st_xlret.calibration.measure",
    "FitOptions": "st_xlret.calibration.fit_options",
    "fit_and_compare": "st_xlret.calibration.choose",
    "judged_recall": "st_xlret.calibration.judged",
    "Sample": "st_xlret.calibration.sampling",
    "calibrate": "st_xlret.calibration.model",
    "embed_pairs": "st_xlret.calibration.embedding",
    "embed_by_language": "st_xlret.calibration.embedding",
    "sample_queries": "st_xlret.calibration.sampling",
    "sample_texts": "st_xlret.calibration.sampling",
    "Comparison": "st_xlret.calibration.comparison",
    "mean_csls_criterion": "st_xlret.calibration.rotation",
    "procrustes": "st_xlret.calibration.rotation",
    "unsupervised_rotation": "st_xlret.calibration.rotation",
    "STEPS": "st_xlret.calibration.steps",
    "VectorCalibration": "st_xlret.calibration.vectors",
}
"""The module of each public name, which is imported when the name is first used."""

__all__ = [*MODULES]  # noqa: PLE0604

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, MODULES)
