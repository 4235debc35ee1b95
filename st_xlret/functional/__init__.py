"""The papers' equations as functions of tensors: no model, no state, no I/O. It imports torch only.

All functions return a scalar of at least float32 (float64 stays float64), whether autocast is
active or not, which can be differentiated once. What does not fit is a `ValueError`. InfoNCE is
computed as `softplus(logsumexp(negatives) - positive)`: in 16-bit floats, the gradient of the usual
form becomes exactly zero once the positive wins.

Each file says in its `__all__` which equations it has.
"""
# ruff: noqa: F403

from st_xlret.functional import (
    context,
    distillation,
    language,
    pairs,
    retrieval,
    sentences,
    vocabulary,
)
from st_xlret.functional.context import *
from st_xlret.functional.distillation import *
from st_xlret.functional.language import *
from st_xlret.functional.pairs import *
from st_xlret.functional.retrieval import *
from st_xlret.functional.sentences import *
from st_xlret.functional.vocabulary import *

__all__: list[str] = []
__all__ += context.__all__
__all__ += distillation.__all__
__all__ += language.__all__
__all__ += pairs.__all__
__all__ += retrieval.__all__
__all__ += sentences.__all__
__all__ += vocabulary.__all__
