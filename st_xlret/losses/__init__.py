"""The losses. Each names the equation it computes, which stands in `st_xlret.functional`.

| loss | data | equation |
| --- | --- | --- |
| `CCPLoss` | documents | CCP, Algorithm 1: `contrastive_context_loss` |
| `MSMLoss` | documents | MSM, Eq. 1-2: `masked_sentence_loss` |
| `CZNCELoss` | translations | ML-CTL, Eq. 5: `cz_nce_loss` |
| `SemanticContrastiveLoss` | translations | lang-contrastive, Eq. 2: `info_nce_loss` |
| `LangContrastiveLoss` | translations and further sentences | lang-contrastive, Eq. 3: `language_contrastive_loss` |
| `RetrievalContrastiveLoss` | queries and passages | lang-contrastive, Eq. 1: `retrieval_contrastive_loss` |
| `SimilarityDistillationLoss` | texts with a teacher's vectors | SEED, Eq. 4: `similarity_distillation_loss` |
| `MaskedLMLoss` | any texts | BERT; MSM, Eq. 3: `chunked_cross_entropy` |
"""

from st_xlret.losses.base import CrossLingualLoss
from st_xlret.losses.ccp import CCPLoss
from st_xlret.losses.cz_nce import CZNCELoss
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.losses.msm import MSMLoss
from st_xlret.losses.retrieval import RetrievalContrastiveLoss
from st_xlret.losses.similarity_distillation import SimilarityDistillationLoss
from st_xlret.losses.translations import LangContrastiveLoss, SemanticContrastiveLoss

__all__ = [
    "CCPLoss",
    "CZNCELoss",
    "CrossLingualLoss",
    "LangContrastiveLoss",
    "MSMLoss",
    "MaskedLMLoss",
    "RetrievalContrastiveLoss",
    "SemanticContrastiveLoss",
    "SimilarityDistillationLoss",
]
