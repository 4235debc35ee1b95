"""The papers' equations as functions of tensors: no model, no state, no I/O. It imports torch only.

All functions return a scalar of at least float32 (float64 stays float64), whether autocast is
active or not, which can be differentiated once. What does not fit is a `ValueError`. InfoNCE is
computed as `softplus(logsumexp(negatives) - positive)`: in 16-bit floats, the gradient of the usual
form becomes exactly zero once the positive wins.
"""

from st_xlret.functional.context import contrastive_context_loss
from st_xlret.functional.distillation import similarity_distillation_loss
from st_xlret.functional.language import language_contrastive_loss
from st_xlret.functional.pairs import cz_nce_loss, info_nce_loss
from st_xlret.functional.retrieval import retrieval_contrastive_loss
from st_xlret.functional.sentences import masked_sentence_loss
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
