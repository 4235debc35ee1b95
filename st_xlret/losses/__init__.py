"""The losses, one a file."""

from __future__ import annotations

from st_xlret.losses.base import CrossLingualLoss
from st_xlret.losses.ccp import CCPLoss
from st_xlret.losses.cz_nce import CZNCELoss
from st_xlret.losses.lang_contrastive import LangContrastiveLoss
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.losses.msm import MSMLoss
from st_xlret.losses.retrieval_contrastive import RetrievalContrastiveLoss
from st_xlret.losses.semantic_contrastive import SemanticContrastiveLoss

__all__ = [
    "CCPLoss",
    "CZNCELoss",
    "CrossLingualLoss",
    "LangContrastiveLoss",
    "MSMLoss",
    "MaskedLMLoss",
    "RetrievalContrastiveLoss",
    "SemanticContrastiveLoss",
]
