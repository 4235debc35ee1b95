"""The result of a benchmark, and what the evaluators of all benchmarks share."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator

from st_xlret.evaluation.embedding import Calibration, Pooling, TextEmbedder


@dataclass(frozen=True)
class BenchmarkResult:
    """The scores of a model on a benchmark, with the protocol by which they were measured.

    Attributes:
        benchmark: The benchmark's name, such as `"tatoeba"`.
        scores: Language to metric to value; fractions in [0, 1].
        average: Metric to its mean over the languages.
        protocol: What a reader must know for a comparison: direction, pooling, calibration, number of sentences.
    """

    benchmark: str
    scores: dict[str, dict[str, float]]
    average: dict[str, float]
    protocol: dict[str, str] = field(default_factory=dict)

    def as_json(self, model_name: str) -> dict[str, Any]:
        """The content of result files: `{"benchmark", "model", "scores", "average", "protocol"}`."""
        return {
            "benchmark": self.benchmark,
            "model": model_name,
            **{k: v for k, v in vars(self).items() if k != "benchmark"},
        }


def macro_average(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average every metric that all languages have over the languages."""
    first = next(iter(scores.values()), {})
    metrics = [metric for metric in first if all(metric in values for values in scores.values())]
    return {metric: sum(values[metric] for values in scores.values()) / len(scores) for metric in metrics}


class BenchmarkEvaluator(BaseEvaluator):
    """Base of the evaluator of a benchmark. A subclass measures (`score`) and describes how (`protocol`).

    Metrics: `average_{metric}`, the mean over the languages, and `{language}_{metric}`.

    Args:
        name: Prefix of the metrics. Default: the benchmark's.
        layer: See [`TextEmbedder`][st_xlret.evaluation.TextEmbedder].
        pooling: See `TextEmbedder`.
        calibration: Applied to each language's embeddings, such as a `CalibrationLayer`.
        query_prompt: Prompt put before queries, in retrieval. Default: that of the model.
        document_prompt: Prompt put before documents, in retrieval. Default: that of the model.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        show_progress_bar: Whether to show bars over languages and batches.
        write_csv: Whether to append the metrics to a CSV file where an output path is given.
        language_metrics: Whether to return each language's metrics, beside the means. Without them a training log stays
            readable; they are in the CSV file in any case.
    """

    benchmark: str = ""
    primary: str = ""
    """The metric by which the best model is chosen; the only one that the model card has for each language."""

    def __init__(
        self,
        *,
        name: str | None = None,
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: Calibration | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        batch_size: int = 128,
        precision: str = "fp32",
        show_progress_bar: bool = False,
        write_csv: bool = True,
        language_metrics: bool = True,
    ) -> None:
        super().__init__()
        self.name = self.benchmark if name is None else name
        self.csv_file = f"{(self.name or self.benchmark).replace('-', '_')}_evaluation_results.csv"
        self.primary_metric = f"average_{self.primary}"
        self.embedder = TextEmbedder(
            layer, pooling, calibration, batch_size, False, query_prompt, document_prompt, precision
        )
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv
        self.language_metrics = language_metrics

    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Language to metric to value."""
        raise NotImplementedError

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        raise NotImplementedError

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per language, their averages, and the protocol."""
        scores = self.score(model)
        return BenchmarkResult(self.benchmark, scores, macro_average(scores), self.protocol(model))

    def __call__(  # type: ignore[override]  # the host's own evaluators narrow the model's type too
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate and return the metrics, as Sentence Transformers calls it."""
        result = self.evaluate(model)
        averages = {f"average_{metric}": value for metric, value in result.average.items()}
        every = {f"{code}_{name}": value for code, found in result.scores.items() for name, value in found.items()}
        if output_path is not None and self.write_csv:
            append_csv_row(
                os.path.join(output_path, self.csv_file), {"epoch": epoch, "steps": steps, **averages, **every}
            )
        on_card = {f"{code}_{self.primary}": found[self.primary] for code, found in result.scores.items()}
        # Not the dictionary that is returned, as the host's card keeps a reference to it.
        card = self.prefix_name_to_metrics({**averages, **on_card}, self.name)
        self.store_metrics_in_model_card_data(model, card, epoch, steps)
        return self.prefix_name_to_metrics({**averages, **(every if self.language_metrics else {})}, self.name)

    def get_config_dict(self) -> dict[str, Any]:
        """The protocol, for the model card."""
        return self.protocol()


def append_csv_row(path: str, row: Mapping[str, object]) -> None:
    """Append one row to a CSV file, with a header if the file is new. Missing folders are made."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    is_new = not os.path.isfile(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(row))
        if is_new:
            writer.writeheader()
        writer.writerow(row)
