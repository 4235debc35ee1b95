"""The losses, one a file."""

from __future__ import annotations

from st_xlret.losses.base import CrossLingualLoss
from st_xlret.losses.ccp import CCPLoss
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.losses.semantic_contrastive import SemanticContrastiveLoss

__all__ = ["CCPLoss", "CrossLingualLoss", "MaskedLMLoss", "SemanticContrastiveLoss"]
