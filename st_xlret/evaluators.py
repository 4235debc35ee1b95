"""The evaluators of the benchmarks, in one list, which commands, pages, mteb and tests read.

An evaluator is loaded when it is asked for: to know their names needs no PyTorch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from st_xlret.evaluation.bucc import BUCCEvaluator as BUCCEvaluator
    from st_xlret.evaluation.lareqa import LAReQAEvaluator as LAReQAEvaluator
    from st_xlret.evaluation.mewsli_x import MewsliXEvaluator as MewsliXEvaluator
    from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator as MrTyDiEvaluator
    from st_xlret.evaluation.retrieval import RetrievalEvaluator as RetrievalEvaluator
    from st_xlret.evaluation.tatoeba import TatoebaEvaluator as TatoebaEvaluator
    from st_xlret.evaluation.tatoeba import TatoebaPairsEvaluator as TatoebaPairsEvaluator
    from st_xlret.evaluation.xor_retrieve import XORRetrieveEvaluator as XORRetrieveEvaluator

_EVALUATORS = {
    "tatoeba": "TatoebaEvaluator",
    "tatoeba-pairs": "TatoebaPairsEvaluator",
    "bucc": "BUCCEvaluator",
    "mrtydi": "MrTyDiEvaluator",
    "xor-retrieve": "XORRetrieveEvaluator",
    "lareqa": "LAReQAEvaluator",
    "mewsli-x": "MewsliXEvaluator",
    "retrieval": "RetrievalEvaluator",
}
"""The evaluator of each benchmark."""

_MODULES = {
    "TatoebaEvaluator": "st_xlret.evaluation.tatoeba",
    "TatoebaPairsEvaluator": "st_xlret.evaluation.tatoeba",
    "BUCCEvaluator": "st_xlret.evaluation.bucc",
    "MrTyDiEvaluator": "st_xlret.evaluation.mr_tydi",
    "XORRetrieveEvaluator": "st_xlret.evaluation.xor_retrieve",
    "LAReQAEvaluator": "st_xlret.evaluation.lareqa",
    "MewsliXEvaluator": "st_xlret.evaluation.mewsli_x",
    "RetrievalEvaluator": "st_xlret.evaluation.retrieval",
}
"""The module of each evaluator; `st_xlret` and `st_xlret.evaluation` have all of them."""
