"""The result of a benchmark, and what the evaluators of all benchmarks share."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator

from st_xlret.evaluation.embedding import Pooling, TextEmbedder
from st_xlret.modules import CalibrationLayer

Evaluator = TypeVar("Evaluator", bound="BenchmarkEvaluator")


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
    """Base of the evaluator of a benchmark.

    A subclass reads its files (`read`), measures (`score`) and describes how (`protocol`). Metrics: `average_{metric}`,
    the mean over the languages, and `{language}_{metric}`.

    Args:
        name: Prefix of the metrics. Default: the benchmark's.
        layer: See [`TextEmbedder`][st_xlret.evaluation.TextEmbedder].
        pooling: See `TextEmbedder`.
        calibration: Applied to each language's embeddings, a `CalibrationLayer`.
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
    layout: str = ""
    """Files of the official layout."""
    splits: tuple[str, ...] = ("test",)
    is_on_hub: bool = False
    published_metrics: tuple[str, ...] = ()
    """The metrics that published rows are compared by."""
    languages_in_all: int = 0
    """How many languages the whole benchmark has."""

    def __init__(
        self,
        *,
        name: str | None = None,
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: CalibrationLayer | None = None,
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

    @classmethod
    def from_directory(
        cls: type[Evaluator],
        path: str | os.PathLike[str],
        languages: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Evaluator:
        """Read the files of the benchmark as they were published, plain or gzip.

        Args:
            path: Their folder.
            languages: ISO 639-1 codes of the languages (of the queries) to evaluate, in this order. Default: all there.
            **options: Options of reading, which the class describes, such as `split`, and those of the evaluator.

        Raises:
            ValueError: If an option, split or language is unknown, or a file is malformed (file and line are named).
            FileNotFoundError: If the folder or a file is missing.
        """
        folder = Path(path).expanduser()
        load = cls._reader(options)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is no directory: expected one with {cls.layout}.")
        return load(folder, languages)

    @classmethod
    def from_hub(cls: type[Evaluator], languages: str | Sequence[str] | None = None, **options: Any) -> Evaluator:
        """Load the benchmark from the Hugging Face Hub or, when offline, from its cache; see `from_directory`."""
        if not cls.is_on_hub:
            raise ValueError(f"{cls.benchmark} is not on the Hub: give the folder of {cls.layout}.")
        return cls._reader(options)(None, languages)

    @classmethod
    def _reader(
        cls: type[Evaluator], options: Mapping[str, Any]
    ) -> Callable[[Path | None, str | Sequence[str] | None], Evaluator]:
        """Check the options, before any file is read, as reading a corpus can take minutes."""
        of_reading = signature(cls.read).parameters
        constructors = [vars(kind)["__init__"] for kind in cls.__mro__ if "__init__" in vars(kind)]
        accepted = {*of_reading, *(name for each in constructors for name in signature(each).parameters)}
        if unknown := sorted(set(options) - accepted):
            raise ValueError(f"{cls.benchmark} has no such option: {', '.join(unknown)}.")
        if (split := options.get("split", cls.splits[0])) not in cls.splits:
            raise ValueError(f"split must be one of {cls.splits}, got {split!r}.")

        def load(folder: Path | None, languages: str | Sequence[str] | None) -> Evaluator:
            chosen = [languages] if isinstance(languages, str) else languages
            reading = {name: value for name, value in options.items() if name in of_reading}
            found = cls.read(folder, None if chosen is None else list(chosen), **reading)
            return cls(**{**found, **{name: value for name, value in options.items() if name not in of_reading}})

        return load

    @classmethod
    def read(cls, folder: Path | None, languages: list[str] | None, **_: Any) -> dict[str, Any]:
        """What the files of a folder, or of the Hub if it is None, are for the constructor: name to argument."""
        raise NotImplementedError

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
            row = {"epoch": epoch, "steps": steps, **averages, **every}
            file = Path(output_path, self.csv_file)
            file.parent.mkdir(parents=True, exist_ok=True)
            is_new = not file.is_file()
            with open(file, "a", newline="", encoding="utf-8") as target:
                writer = csv.DictWriter(target, fieldnames=list(row))
                if is_new:
                    writer.writeheader()
                writer.writerow(row)
        on_card = {f"{code}_{self.primary}": found[self.primary] for code, found in result.scores.items()}
        # Not the dictionary that is returned, as the host's card keeps a reference to it.
        card = self.prefix_name_to_metrics({**averages, **on_card}, self.name)
        self.store_metrics_in_model_card_data(model, card, epoch, steps)
        return self.prefix_name_to_metrics({**averages, **(every if self.language_metrics else {})}, self.name)

    def get_config_dict(self) -> dict[str, Any]:
        """The protocol, for the model card."""
        return self.protocol()
