"""st-xlret: cross-lingual dense retrievers from documents, with Sentence Transformers.

Public names load on first use: importing the package does no heavy work and no network access.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "AsymmetricBNHead": "st_xlret.modules",
    "BUCCEvaluator": "st_xlret.evaluation",
    "BilingualRetrievalEvaluator": "st_xlret.evaluation",
    "Blocks": "st_xlret.batches",
    "CCPLoss": "st_xlret.losses",
    "CZNCELoss": "st_xlret.losses",
    "CalibrationLayer": "st_xlret.modules",
    "ContextualEncoder": "st_xlret.modules",
    "CrossLingualDataCollator": "st_xlret.batches",
    "CrossLingualTrainer": "st_xlret.training",
    "CrossLingualTrainingArguments": "st_xlret.training",
    "DocumentEncoder": "st_xlret.modules",
    "InterleavedBatchSampler": "st_xlret.batches",
    "LAReQAEvaluator": "st_xlret.evaluation",
    "LangContrastiveLoss": "st_xlret.losses",
    "LanguageMemoryBank": "st_xlret.modules",
    "LengthGroupedBatches": "st_xlret.batches",
    "LossStateCallback": "st_xlret.training",
    "MSMLoss": "st_xlret.losses",
    "MaskedLMLoss": "st_xlret.losses",
    "MewsliXEvaluator": "st_xlret.evaluation",
    "MrTyDiEvaluator": "st_xlret.evaluation",
    "RetrievalEvaluator": "st_xlret.evaluation",
    "RetrievalContrastiveLoss": "st_xlret.losses",
    "Rows": "st_xlret.batches",
    "SemanticContrastiveLoss": "st_xlret.losses",
    "SimilarityDistillationLoss": "st_xlret.losses",
    "TatoebaEvaluator": "st_xlret.evaluation",
    "TatoebaPairsEvaluator": "st_xlret.evaluation",
    "VectorCalibration": "st_xlret.calibration",
    "Windows": "st_xlret.batches",
    "XORRetrieveEvaluator": "st_xlret.evaluation",
    "build_word_samples": "st_xlret.data",
    "calibrate": "st_xlret.calibration",
    "encode": "st_xlret.encoding",
    "export": "st_xlret.hub.export",
    "fit_calibration": "st_xlret.calibration",
    "load_documents": "st_xlret.data",
    "load_pairs": "st_xlret.data",
    "load_retrieval": "st_xlret.data",
    "measure_language_bias": "st_xlret.calibration",
    "read_dictionary": "st_xlret.data",
    "save_portable": "st_xlret.portable",
}

__all__ = [*sorted(_HOMES), "__version__", "functional"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module("st_xlret.functional")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    public = ", ".join(sorted(_HOMES))
    raise AttributeError(f"module 'st_xlret' has no attribute {name!r}; public names: {public}")


def __dir__() -> list[str]:
    return __all__
