"""The losses: each names the equation that it computes, which stands in `st_xlret.functional`.

Names load on first use. `st_xlret` has all of them, and the pages' tables and the tests of every
loss read them from here.
"""

from typing import TYPE_CHECKING

from st_xlret.optional import lazy_names

if TYPE_CHECKING:
    from st_xlret.losses.base import CrossLingualLoss as CrossLingualLoss
    from st_xlret.losses.ccp import CCPLoss as CCPLoss
    from st_xlret.losses.cz_nce import CZNCELoss as CZNCELoss
    from st_xlret.losses.masked_lm import MaskedLMLoss as MaskedLMLoss
    from st_xlret.losses.msm import MSMLoss as MSMLoss
    from st_xlret.losses.retrieval import RetrievalContrastiveLoss as RetrievalContrastiveLoss
    from st_xlret.losses.similarity_distillation import (
        SimilarityDistillationLoss as SimilarityDistillationLoss,
    )
    from st_xlret.losses.translations import LangContrastiveLoss as LangContrastiveLoss
    from st_xlret.losses.translations import SemanticContrastiveLoss as SemanticContrastiveLoss

MODULES = {
    "CrossLingualLoss": "st_xlret.losses.base",
    "CCPLoss": "st_xlret.losses.ccp",
    "CZNCELoss": "st_xlret.losses.cz_nce",
    "MaskedLMLoss": "st_xlret.losses.masked_lm",
    "MSMLoss": "st_xlret.losses.msm",
    "RetrievalContrastiveLoss": "st_xlret.losses.retrieval",
    "SimilarityDistillationLoss": "st_xlret.losses.similarity_distillation",
    "LangContrastiveLoss": "st_xlret.losses.translations",
    "SemanticContrastiveLoss": "st_xlret.losses.translations",
}
"""The module of each public name, which is imported when the name is first used."""

if not TYPE_CHECKING:  # type checkers read the imports above, and report other names
    __all__ = [*MODULES]
    __getattr__ = lazy_names(__name__, MODULES)
