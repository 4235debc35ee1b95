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

EVALUATORS = {
    "tatoeba": ("st_xlret.evaluation.tatoeba", "TatoebaEvaluator"),
    "tatoeba-pairs": ("st_xlret.evaluation.tatoeba", "TatoebaPairsEvaluator"),
    "bucc": ("st_xlret.evaluation.bucc", "BUCCEvaluator"),
    "mrtydi": ("st_xlret.evaluation.mr_tydi", "MrTyDiEvaluator"),
    "xor-retrieve": ("st_xlret.evaluation.xor_retrieve", "XORRetrieveEvaluator"),
    "lareqa": ("st_xlret.evaluation.lareqa", "LAReQAEvaluator"),
    "mewsli-x": ("st_xlret.evaluation.mewsli_x", "MewsliXEvaluator"),
    "retrieval": ("st_xlret.evaluation.retrieval", "RetrievalEvaluator"),
}
"""The module and the class of the evaluator of each benchmark."""

MODULES = {name: module for module, name in EVALUATORS.values()}
"""The module of each evaluator; `st_xlret` and `st_xlret.evaluation` have all of them."""
