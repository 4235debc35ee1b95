"""The benchmarks by name."""

from __future__ import annotations

from st_xlret.evaluation.base import BenchmarkEvaluator
from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.lareqa import LAReQAEvaluator
from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator
from st_xlret.evaluation.nq import NQEvaluator
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.tatoeba import TatoebaEvaluator, TatoebaPairsEvaluator
from st_xlret.evaluation.xor_retrieve import XORRetrieveEvaluator

BENCHMARKS: dict[str, type[BenchmarkEvaluator]] = {
    evaluator.benchmark: evaluator
    for evaluator in (
        TatoebaEvaluator,
        TatoebaPairsEvaluator,
        BUCCEvaluator,
        MrTyDiEvaluator,
        XORRetrieveEvaluator,
        NQEvaluator,
        LAReQAEvaluator,
        MewsliXEvaluator,
        RetrievalEvaluator,
    )
}


def benchmark(name: str) -> type[BenchmarkEvaluator]:
    """The evaluator of a benchmark; of an unknown name a ValueError lists all."""
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is unknown; there are {sorted(BENCHMARKS)}.")
    return BENCHMARKS[name]
