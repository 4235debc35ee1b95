"""The papers' equations as functions of tensors: no model, no state, no I/O. This package imports torch only.

| function | equation |
| --- | --- |
| `contrastive_context_loss` | CCP, Algorithm 1, lines 14-16 |
| `masked_sentence_loss` | MSM, Eq. 1-2 |
| `cz_nce_loss` | ML-CTL, Eq. 5 |
| `info_nce_loss` | ML-CTL, Eq. 1-2, and L_sema: lang-contrastive, Eq. 2 |
| `retrieval_contrastive_loss` | L_IR: lang-contrastive, Eq. 1 |
| `language_contrastive_loss` | L_lang: lang-contrastive, Eq. 3 |
| `similarity_distillation_loss` | SEED, Eq. 4, and multilingual knowledge distillation, Eq. 1 |
| `chunked_cross_entropy` | cross-entropy of masked language modelling |

All functions return a scalar of at least float32 (float64 stays float64), whether autocast is active or not, which can
be differentiated once. What does not fit is a `ValueError`. InfoNCE is computed as `softplus(logsumexp(negatives) -
positive)`: in 16-bit floats, the gradient of the usual form becomes exactly zero once the positive wins.
"""

from __future__ import annotations

from st_xlret.functional.contrastive import (
    contrastive_context_loss,
    cz_nce_loss,
    info_nce_loss,
    language_contrastive_loss,
    retrieval_contrastive_loss,
    similarity_distillation_loss,
)
from st_xlret.functional.masked_sentence import masked_sentence_loss
from st_xlret.functional.vocabulary import chunked_cross_entropy

__all__ = [
    "chunked_cross_entropy",
    "contrastive_context_loss",
    "cz_nce_loss",
    "info_nce_loss",
    "language_contrastive_loss",
    "masked_sentence_loss",
    "retrieval_contrastive_loss",
    "similarity_distillation_loss",
]
