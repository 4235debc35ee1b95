"""The papers' equations on tensors: no model, no state, no I/O. Imports torch only.

Everything is computed in at least float32 (float64 stays float64), whatever autocast is active, and is
differentiable once. InfoNCE is written ``softplus(logsumexp(negatives) - positive)``: the usual form
subtracts two nearly equal numbers once the positive wins, and in 16-bit floats its gradient is then exactly
zero.
"""

from __future__ import annotations

from st_xlret.functional.contrastive import contrastive_context_loss, info_nce_loss
from st_xlret.functional.cz_nce import cz_nce_loss
from st_xlret.functional.language_contrastive import language_contrastive_loss
from st_xlret.functional.masked_sentence import masked_sentence_loss
from st_xlret.functional.retrieval import retrieval_contrastive_loss
from st_xlret.functional.vocabulary import chunked_cross_entropy

__all__ = [
    "chunked_cross_entropy",
    "contrastive_context_loss",
    "cz_nce_loss",
    "info_nce_loss",
    "language_contrastive_loss",
    "masked_sentence_loss",
    "retrieval_contrastive_loss",
]
