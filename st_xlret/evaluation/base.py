"""The result of a benchmark, and what the evaluators of all benchmarks share."""

import csv
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor
from typing_extensions import Self

from st_xlret.data.reading import DataError
from st_xlret.encoding import (
    Role,
    cut_at_layer,
    encode,
    known_languages,
    role_prompt,
    task_languages,
)
from st_xlret.languages import normal_form
from st_xlret.modules import CalibrationLayer
from st_xlret.precision import resolve_precision


@dataclass(frozen=True)
class BenchmarkResult:
    """The scores of a model: language to metric to a fraction in [0, 1], and metric to its mean over the languages."""

    benchmark: str
    scores: dict[str, dict[str, float]]
    average: dict[str, float]
    protocol: dict[str, str] = field(
        default_factory=dict
    )  # to compare by, such as direction and pooling

    def as_json(self, model_name: str) -> dict[str, Any]:
        """The content of result files: `{"benchmark", "model", "scores", "average", "protocol"}`."""
        return {"benchmark": self.benchmark, "model": model_name, **vars(self)}


def macro_average(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average every metric that all languages have over the languages.

    Example:
        >>> macro_average({"de": {"f1": 0.5, "map": 0.2}, "fr": {"f1": 1.0}})
        {'f1': 0.75}
    """
    shared = [
        name
        for name in next(iter(scores.values()), {})
        if all(name in values for values in scores.values())
    ]
    return {name: sum(values[name] for values in scores.values()) / len(scores) for name in shared}


def chosen_names(
    names: Sequence[str] | None, known: Mapping[str, Any] | Sequence[str], where: str
) -> list[str]:
    """The names that are asked for, by default all known ones; a ValueError for an unknown one, or none, lists them."""
    if names is not None:  # languages may be spelled in other ways
        known_as = {normal_form(name) or name: name for name in known}
        names = [
            name if name in known else known_as.get(normal_form(name) or name, name)
            for name in names
        ]
    chosen = list(known if names is None else dict.fromkeys(names))
    if not chosen or (unknown := [name for name in chosen if name not in known]):
        raise ValueError(
            f"{where} has no {unknown if chosen else 'such files'}; it has {sorted(known)}"
        )
    return chosen


@contextmanager
def name_file_in_errors(file: str | os.PathLike[str], line: int = 0) -> Iterator[None]:
    """Within it, an error of what is read becomes a `DataError` that has the file and the line."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise DataError(
            f"not as expected ({type(error).__name__}: {error})", file=str(file), line=line
        ) from error


class BenchmarkEvaluator(BaseEvaluator, ABC):
    """Base of the evaluator of a benchmark: a subclass reads its files (`from_files`) and measures (`score`).

    Metrics: `average_{metric}`, the mean over the languages, and `{language}_{metric}`.

    Args:
        name: Prefix of the metrics. Default: the benchmark's.
        layer: Embed by the hidden states of this layer, see [`cut_at_layer`][st_xlret.encoding.cut_at_layer].
        pooling: `"mean"` of the hidden states, or `"model"`. Default: mean with a layer, model without.
        calibration: Applied to each language's vectors after all else, as CCP does after a layer.
        query_prompt: Prompt put before queries, in retrieval. Default: that of the model.
        document_prompt: The same before documents.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        show_progress_bar: Whether to show bars.
        language_metrics: Whether to return each language's metrics beside the means. The CSV file has them in any case.
    """

    benchmark: str = ""  # its name, as in `--benchmark`
    primary: str = ""  # the metric that chooses the best model, and the one that the card has for each language
    layout: str = ""  # files of the official layout
    splits: tuple[str, ...] = ("test",)  # the first is the default
    is_on_hub: bool = False  # whether `from_files` also takes None for a folder
    published_metrics: tuple[str, ...] = ()  # by which published rows are compared
    languages_in_all: int = 0  # of the whole benchmark

    def __init__(
        self,
        *,
        name: str | None = None,
        layer: int | None = None,
        pooling: Literal["model", "mean"] | None = None,
        calibration: CalibrationLayer | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        batch_size: int = 128,
        precision: str = "fp32",
        show_progress_bar: bool = False,
        language_metrics: bool = True,
    ) -> None:
        super().__init__()
        self.name = self.benchmark if name is None else name
        self.primary_metric = f"average_{self.primary}"
        self.layer, self.pooling, self.calibration, self.precision = (
            layer,
            pooling,
            calibration,
            precision,
        )
        self.prompts: dict[Role, str | None] = {"query": query_prompt, "document": document_prompt}
        self.batch_size, self.show_progress_bar = batch_size, show_progress_bar
        self.language_metrics = language_metrics

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str] | None,
        languages: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """The evaluator of the files of the benchmark as they were published, plain or gzip.

        Args:
            path: Their folder. None: the Hugging Face Hub or, when offline, its cache.
            languages: Codes of the languages (of the queries) to evaluate, in this order. Default: all there.
            **options: Those of reading, which the class describes, such as `split`, and those of the evaluator.
        """
        chosen_names([options.get("split", cls.splits[0])], cls.splits, f"{cls.benchmark} (split)")
        folder = None if path is None else Path(path).expanduser()
        if not (cls.is_on_hub if folder is None else folder.is_dir()):
            raise FileNotFoundError(
                f"{path or f'{cls.benchmark} on the Hub'}: expected a folder with {cls.layout}"
            )
        return cls.from_files(
            folder, [languages] if isinstance(languages, str) else languages, **options
        )

    @classmethod
    def from_files(cls, folder: Any, languages: Sequence[str] | None, **options: Any) -> Self:
        """What `from_directory` returns, of a folder or, if None, of the Hub; a TypeError for texts in memory alone."""
        return cls(**options)

    @abstractmethod
    def score(self, model: SentenceTransformer) -> dict[str, dict[str, float]]:
        """Language to metric to value."""

    def embed_texts(
        self,
        model: SentenceTransformer,
        texts: Sequence[str],
        languages: Sequence[str],
        role: Role | None = None,
    ) -> Tensor:
        """Vectors (n, d) of texts in float32, calibrated; each distinct text is encoded once and has one vector."""
        by_language = self.calibration is not None or task_languages(model)
        keys = list(zip(texts, languages if by_language else [None] * len(texts), strict=True))
        row_of = {key: row for row, key in enumerate(dict.fromkeys(keys))}
        options: dict[str, Any] = {
            "batch_size": self.batch_size,
            "show_progress_bar": self.show_progress_bar,
        }
        if role is not None:
            options["prompt"] = role_prompt(model, role, self.prompts[role])
        elif not self._uses_whole_model:
            options["prompt"] = ""  # hidden states have no prompt of their own
        distinct, codes = ([key[side] for key in row_of] for side in (0, 1))
        options |= {"role": role, "precision": self.precision, "convert_to_tensor": True}
        vectors: Tensor = encode(model, distinct, known_languages(model, codes), **options).float()  # type: ignore[arg-type]
        if self.calibration is not None:
            with torch.inference_mode():
                vectors = (
                    torch.nn.functional.normalize(vectors)
                    if self.calibration.normalize
                    else vectors
                )
                for code in dict.fromkeys(codes):
                    rows = [row for row, other in enumerate(codes) if other == code]
                    vectors[rows] = self.calibration.transform(vectors[rows], code).float()
        return vectors if len(row_of) == len(keys) else vectors[[row_of[key] for key in keys]]

    @property
    def _uses_whole_model(self) -> bool:
        """Whether the sentence embeddings are the model's own, not the mean of hidden states."""
        return self.layer is None and self.pooling in (None, "model")

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        states = (
            "last hidden states" if self.layer is None else f"hidden states of layer {self.layer}"
        )
        pooling = "the model's own pooling over" if self.pooling == "model" else "mean of"
        maps = (
            ", ".join(dict.fromkeys(task_languages(model).values()))
            if self._uses_whole_model
            else ""
        )
        calibration = [f"in the model, by the language of the texts ({maps})"] if maps else []
        calibration += [] if self.calibration is None else [type(self.calibration).__name__]
        return {
            "pooling": "the model's own sentence embedding"
            if self._uses_whole_model
            else f"{pooling} the {states}",
            "calibration": ", then ".join(calibration) or "none",
            "precision": resolve_precision(self.precision, model.device),
            **{
                f"{role}_prompt": prompt
                for role, prompt in self.prompts.items()
                if prompt is not None
            },
        }

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per language, their averages, and the protocol."""
        with cut_at_layer(model, self.layer, self.pooling) as part:
            if self.calibration:
                self.calibration.check_width(part.get_embedding_dimension())
            scores = self.score(part)
        return BenchmarkResult(self.benchmark, scores, macro_average(scores), self.protocol(model))

    def __call__(  # type: ignore[override]  # the host's own evaluators narrow the model's type too
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate and return the metrics, as Sentence Transformers calls it; the CSV file has all of them."""
        result = self.evaluate(model)
        averages = {f"average_{metric}": value for metric, value in result.average.items()}
        every = {
            f"{code}_{name}": value
            for code, values in result.scores.items()
            for name, value in values.items()
        }
        if output_path is not None:
            file = Path(
                output_path,
                f"{(self.name or self.benchmark).replace('-', '_')}_evaluation_results.csv",
            )
            file.parent.mkdir(parents=True, exist_ok=True)
            is_new, row = not file.is_file(), {"epoch": epoch, "steps": steps, **averages, **every}
            with open(file, "a", newline="", encoding="utf-8") as target:
                csv.writer(target).writerows([list(row)] * is_new + [list(row.values())])
        on_card = {
            f"{code}_{self.primary}": values[self.primary] for code, values in result.scores.items()
        }
        card = self.prefix_name_to_metrics(
            {**averages, **on_card}, self.name
        )  # the host keeps it: not what we return
        self.store_metrics_in_model_card_data(model, card, epoch, steps)
        return self.prefix_name_to_metrics(
            {**averages, **(every if self.language_metrics else {})}, self.name
        )
