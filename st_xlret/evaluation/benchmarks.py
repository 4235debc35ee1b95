"""The benchmarks by name: the evaluator of each, and which of its metrics the papers report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: how it is run, and what its results are compared with.

    Attributes:
        name: Its name on the command line and in results.
        evaluator: Module and name of its evaluator.
        layout: Files of its official layout, for help and error messages.
        metrics: The metrics that published rows are compared by, the primary one first.
        languages: How many languages the whole benchmark has.
        hub: Whether it is on the Hugging Face Hub.
    """

    name: str
    evaluator: str
    layout: str
    metrics: tuple[str, ...]
    languages: int
    hub: bool = True

    @property
    def published_average(self) -> str:
        """The name of the published average over all languages."""
        return f"average_{self.languages}"

    def load(
        self,
        data: str | os.PathLike[str] | None,
        languages: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make the evaluator, from local files or, if no folder is given, from the Hub.

        Raises:
            ValueError: If the benchmark needs a folder, or its evaluator does not take an option.
            FileNotFoundError: If a file is missing.
        """
        module, _, name = self.evaluator.partition(":")
        evaluator = getattr(import_module(f"st_xlret.evaluation.{module}"), name)
        arguments = dict(options or {})
        if data is None and not self.hub:
            raise ValueError(f"{self.name} is not on the Hub: give the folder of {self.layout}.")
        load = evaluator.from_hub if data is None else evaluator.from_directory
        # Before any file is read, as reading a corpus can take minutes.
        methods = [load, *(kind.__init__ for kind in evaluator.__mro__)]
        accepted = {name for method in methods for name in signature(method).parameters}
        if unknown := sorted(set(arguments) - accepted):
            raise ValueError(f"{self.name} has no such option: {', '.join(unknown)}.")
        return load(languages, **arguments) if data is None else load(data, languages, **arguments)


_TATOEBA = "tatoeba.fra-eng.fra, tatoeba.fra-eng.eng and so on (LASER's data/tatoeba/v1)"
_BUCC = "de-en.training.de, de-en.training.en, de-en.training.gold, de-en.test.de and so on (BUCC 2018)"
_MRTYDI = "mrtydi-v1.1-swahili/ and so on, each with collection/docs.jsonl.gz, topic.test.tsv, qrels.test.txt"
_XOR = "xor_dev_retrieve_eng_span_v1_1.jsonl and psgs_w100.tsv"
_LAREQA = "xquad-r/en.json and so on, or BEIR's corpus.jsonl, queries.jsonl, qrels/test.tsv"
_EXPORT = "sentences.csv and links.csv (Tatoeba's export), or those of tatoeba"
_MEWSLI = "candidate_set_entities.jsonl and wikinews_mentions-test.jsonl"
_NQ = "nq-test.csv (or nq-test.qa.csv) and psgs_w100.tsv (DPR)"
_RETRIEVAL = ("mrr_at_100", "recall_at_100")
_DEPTHS = ("recall_at_5", "recall_at_20", "recall_at_100")

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("tatoeba", "tatoeba:TatoebaEvaluator", _TATOEBA, ("accuracy",), 112),
        Benchmark("tatoeba-pairs", "tatoeba:TatoebaPairsEvaluator", _EXPORT, ("accuracy",), 15),
        Benchmark("bucc", "bucc:BUCCEvaluator", _BUCC, ("f1",), 4),
        Benchmark("mrtydi", "mr_tydi:MrTyDiEvaluator", _MRTYDI, _RETRIEVAL, 11),
        Benchmark(
            "xor-retrieve", "xor_retrieve:XORRetrieveEvaluator", _XOR, ("recall_at_2kt", "recall_at_5kt"), 7, False
        ),
        Benchmark("nq", "nq:NQEvaluator", _NQ, _DEPTHS, 1, False),
        Benchmark("lareqa", "lareqa:LAReQAEvaluator", _LAREQA, ("map_at_20",), 11, False),
        Benchmark("mewsli-x", "mewsli_x:MewsliXEvaluator", _MEWSLI, ("map_at_20",), 11, False),
    )
}


def benchmark(name: str) -> Benchmark:
    """One benchmark by name; of an unknown name a ValueError lists all."""
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is unknown; there are {sorted(BENCHMARKS)}.")
    return BENCHMARKS[name]
