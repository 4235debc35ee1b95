"""st-xlret: cross-lingual dense retrievers from documents, with Sentence Transformers.

Public names load on first use: importing the package does no heavy work and no network access.
"""

import importlib
from typing import Any

from st_xlret.optional import load_public_name

__version__ = "0.1.0"

_NAMES = {
    "batches": "Blocks CrossLingualDataCollator InterleavedBatchSampler LengthGroupedBatches Rows Windows",
    "calibration": "VectorCalibration calibrate fit_calibration measure_language_bias",
    "data": "build_word_samples load_documents load_pairs load_retrieval read_dictionary",
    "encoding": "encode",
    "evaluation": (
        "BUCCEvaluator BilingualRetrievalEvaluator LAReQAEvaluator MewsliXEvaluator MrTyDiEvaluator "
        "RetrievalEvaluator TatoebaEvaluator TatoebaPairsEvaluator XORRetrieveEvaluator"
    ),
    "hub.export": "export",
    "losses": (
        "CCPLoss CZNCELoss LangContrastiveLoss MSMLoss MaskedLMLoss RetrievalContrastiveLoss "
        "SemanticContrastiveLoss SimilarityDistillationLoss"
    ),
    "modules": "AsymmetricBNHead CalibrationLayer ContextualEncoder DocumentEncoder LanguageMemoryBank",
    "portable": "save_portable",
    "training": "CrossLingualTrainer CrossLingualTrainingArguments LossStateCallback",
}
"""Module to the public names that it has, between spaces."""

_HOMES = {name: f"st_xlret.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = [*sorted(_HOMES), "__version__", "functional"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module("st_xlret.functional")
    return load_public_name("st_xlret", _HOMES, name)


def __dir__() -> list[str]:
    return __all__
