"""The benchmarks by name: the evaluator of each, and which of its metrics the papers report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.evaluation.reporting.tables import BenchmarkResult


class BenchmarkEvaluator(Protocol):
    """The interface that the evaluators of all benchmarks share."""

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per language, their averages, and the protocol."""
        ...


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: how it is run, and what its results are compared with.

    Attributes:
        name: Its name on the command line and in results.
        module: Module of its evaluator.
        evaluator: Name of its evaluator.
        layout: Files of its official layout, for help and error messages.
        metrics: The metrics that published rows are compared by, the primary one first.
        languages: How many languages the whole benchmark has.
        published_average: The published average over all of them.
        hub: Whether it is on the Hugging Face Hub.
    """

    name: str
    module: str
    evaluator: str
    layout: str
    metrics: tuple[str, ...]
    languages: int
    published_average: str
    hub: bool = True

    def load(
        self,
        data: str | os.PathLike[str] | None,
        languages: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> BenchmarkEvaluator:
        """Make the evaluator, from local files or, if no folder is given, from the Hub.

        Raises:
            ValueError: If the benchmark needs a folder, or its evaluator does not take an option.
            FileNotFoundError: If a file is missing.
        """
        evaluator = getattr(import_module(self.module), self.evaluator)
        arguments = dict(options or {})
        if data is None and not self.hub:
            raise ValueError(f"{self.name} is not on the Hub: give the folder of {self.layout}.")
        load = evaluator.from_hub if data is None else evaluator.from_directory
        # Before any file is read, as reading a corpus can take minutes.
        methods = [load, *(kind.__init__ for kind in evaluator.__mro__)]
        accepted = {name for method in methods for name in signature(method).parameters}
        unknown = sorted(set(arguments) - accepted)
        if unknown:
            raise ValueError(f"{self.name} has no such option: {', '.join(unknown)}.")
        return load(languages, **arguments) if data is None else load(data, languages, **arguments)


_EVALUATION = "st_xlret.evaluation"

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "tatoeba",
            f"{_EVALUATION}.tatoeba",
            "TatoebaEvaluator",
            "tatoeba.fra-eng.fra, tatoeba.fra-eng.eng and so on (LASER's data/tatoeba/v1)",
            ("accuracy",),
            112,
            "average_112",
        ),
        Benchmark(
            "tatoeba-pairs",
            f"{_EVALUATION}.tatoeba_pairs",
            "TatoebaPairsEvaluator",
            "sentences.csv and links.csv (Tatoeba's export), or those of tatoeba",
            ("accuracy",),
            15,
            "average_15",
        ),
        Benchmark(
            "bucc",
            f"{_EVALUATION}.bucc",
            "BUCCEvaluator",
            "de-en.training.de, de-en.training.en, de-en.training.gold, de-en.test.de and so on (BUCC 2018)",
            ("f1",),
            4,
            "average_4",
        ),
        Benchmark(
            "mrtydi",
            f"{_EVALUATION}.mr_tydi",
            "MrTyDiEvaluator",
            "mrtydi-v1.1-swahili/ and so on, each with collection/docs.jsonl.gz, topic.test.tsv, qrels.test.txt",
            ("mrr_at_100", "recall_at_100"),
            11,
            "average_11",
        ),
        Benchmark(
            "xor-retrieve",
            f"{_EVALUATION}.xor_retrieve",
            "XORRetrieveEvaluator",
            "xor_dev_retrieve_eng_span_v1_1.jsonl and psgs_w100.tsv",
            ("recall_at_2kt", "recall_at_5kt"),
            7,
            "average_7",
            hub=False,
        ),
        Benchmark(
            "nq",
            f"{_EVALUATION}.nq",
            "NQEvaluator",
            "nq-test.csv (or nq-test.qa.csv) and psgs_w100.tsv (DPR)",
            ("recall_at_5", "recall_at_20", "recall_at_100"),
            1,
            "",
            hub=False,
        ),
        Benchmark(
            "lareqa",
            f"{_EVALUATION}.lareqa",
            "LAReQAEvaluator",
            "xquad-r/en.json and so on, or BEIR's corpus.jsonl, queries.jsonl, qrels/test.tsv",
            ("map_at_20",),
            11,
            "average_11",
            hub=False,
        ),
        Benchmark(
            "mewsli-x",
            f"{_EVALUATION}.mewsli_x",
            "MewsliXEvaluator",
            "candidate_set_entities.jsonl and wikinews_mentions-test.jsonl",
            ("map_at_20",),
            11,
            "average_11",
            hub=False,
        ),
    )
}


def benchmark(name: str) -> Benchmark:
    """One benchmark by name.

    Raises:
        ValueError: If there is none of this name. The message lists all names.

    Example:
        >>> benchmark("lareqa").metrics
        ('map_at_20',)
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is unknown; there are {sorted(BENCHMARKS)}.")
    return BENCHMARKS[name]
