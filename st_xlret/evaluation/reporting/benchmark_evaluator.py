"""The base of the evaluators of benchmarks: how a result reaches the host, its logs, CSV file and model card."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sentence_transformers.base.evaluation import BaseEvaluator

from st_xlret.evaluation.reporting.tables import BenchmarkResult

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class BenchmarkEvaluator(BaseEvaluator):
    """Base of an evaluator of one benchmark. A subclass measures (`evaluate`) and describes how (`_protocol`).

    Args:
        name: Prefix of the metrics.
        csv_file: Name of the CSV file to which every evaluation adds a row.
        primary_metric: The metric by which the best model is chosen, without the prefix.
        write_csv: Whether to write that file if an output path is given.
        language_metrics: Whether to return each language's metrics, beside the means.
    """

    card_metric: str | None = None
    """The one metric that the model card has for each language, so that it stays readable."""

    def __init__(
        self, *, name: str, csv_file: str, primary_metric: str, write_csv: bool = True, language_metrics: bool = True
    ) -> None:
        super().__init__()
        self.name = name
        self.csv_file = csv_file
        self.primary_metric = primary_metric
        self.write_csv = write_csv
        self.language_metrics = language_metrics

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per language, their averages, and the protocol."""
        raise NotImplementedError

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        raise NotImplementedError

    def __call__(  # type: ignore[override]  # the host's own evaluators narrow the model's type too
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate and return the metrics, as Sentence Transformers calls it."""
        result = self.evaluate(model)
        averages = {f"average_{metric}": value for metric, value in result.average.items()}
        of_languages = {
            (language, metric): value for language, found in result.scores.items() for metric, value in found.items()
        }
        per_language = {f"{language}_{metric}": value for (language, metric), value in of_languages.items()}
        if output_path is not None and self.write_csv:
            row = {"epoch": epoch, "steps": steps, **averages, **per_language}
            append_csv_row(os.path.join(output_path, self.csv_file), row)
        on_card = {f"{code}_{name}": value for (code, name), value in of_languages.items() if name == self.card_metric}
        # Not the dictionary that is returned, as the host's card keeps a reference to it.
        card = self.prefix_name_to_metrics({**averages, **on_card}, self.name)
        self.store_metrics_in_model_card_data(model, card, epoch, steps)
        return self.prefix_name_to_metrics({**averages, **(per_language if self.language_metrics else {})}, self.name)

    def get_config_dict(self) -> dict[str, Any]:
        """The protocol, for the model card."""
        return self._protocol()


def append_csv_row(path: str, row: Mapping[str, object]) -> None:
    """Append one row to a CSV file, with a header if the file is new. Missing folders are made."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    is_new = not os.path.isfile(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(row))
        if is_new:
            writer.writeheader()
        writer.writerow(row)
