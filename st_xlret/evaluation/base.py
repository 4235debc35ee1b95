"""The result of a benchmark, and what the evaluators of all benchmarks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor
from typing_extensions import Self

from st_xlret.columns import Role
from st_xlret.data.reading import DataError
from st_xlret.encoding import (
    cut_at_layer,
    encode,
    known_languages,
    role_prompt,
    task_languages,
)
from st_xlret.evaluation.score_log import append_row
from st_xlret.files import PathLike, check_output_file
from st_xlret.languages import language_form
from st_xlret.modules import CalibrationLayer
from st_xlret.precision import resolve_precision

Scores: TypeAlias = dict[str, dict[str, float]]
"""Language to metric to a fraction in [0, 1]."""

COMPARED = (
    "split",
    "candidate",
    "corpus_size",
    "sentences",
    "sentences_per_language",
    "threshold",
)
"""Entries of a protocol in which results that are compared do not differ.

Their texts are compared letter by letter, also with result files of before and with `measured_as`
in `published_results.json`: whoever words one differently parts results that belong together.
"""


def sizes_in_words(sizes: Mapping[str, object], separator: str = ", ") -> str:
    """Sizes after their names, such as "de 10, fr 12", for an entry of `COMPARED`."""
    return separator.join(f"{name} {size}" for name, size in sizes.items())


@dataclass(frozen=True)
class BenchmarkResult:
    """The scores of a model.

    Attributes:
        average: Metric to its mean over the languages.
        protocol: What results are compared by, such as direction and pooling; see `COMPARED`.
    """

    benchmark: str
    scores: Scores
    average: dict[str, float]
    protocol: dict[str, str] = field(default_factory=dict)

    def as_json(self, model_name: str) -> dict[str, Any]:
        """The content of result files."""
        return {
            "benchmark": self.benchmark,
            "model": model_name,
            "scores": self.scores,
            "average": self.average,
            "protocol": self.protocol,
        }


def macro_average(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average every metric that all languages have over the languages.

    Example:
        >>> macro_average({"de": {"f1": 0.5, "map": 0.2}, "fr": {"f1": 1.0}})
        {'f1': 0.75}
    """
    values_of_languages = list(scores.values())
    if not values_of_languages:
        return {}
    means = {}
    for name in values_of_languages[0]:
        if all(name in values for values in values_of_languages):
            total = sum(values[name] for values in values_of_languages)
            means[name] = total / len(values_of_languages)
    return means


def chosen_names(names: Sequence[str] | None, known: Collection[str], where: str) -> list[str]:
    """The names that are asked for, by default all known ones.

    A language may be spelled in another way. A ValueError for an unknown name, or none, lists the
    known ones.
    """
    known_as = {language_form(name): name for name in known}
    known_as.update({name: name for name in known})
    chosen = []
    for name in known if names is None else names:
        known_name = known_as.get(name) or known_as.get(language_form(name), name)
        if known_name not in chosen:
            chosen.append(known_name)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"{where} has no {unknown}; it has {sorted(known)}")
    if not chosen:
        raise ValueError(f"{where} has no such files; it has {sorted(known)}")
    return chosen


@contextmanager
def name_file_in_errors(file: PathLike, line: int = 0) -> Iterator[None]:
    """Within it, an error of what is read becomes a `DataError` that has the file and the line."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        problem = f"not as expected ({type(error).__name__}: {error})"
        raise DataError(problem, file=str(file), line=line) from error


class BenchmarkEvaluator(BaseEvaluator, ABC):
    """Base of the evaluator of a benchmark.

    A subclass reads its files (`from_files`) and measures (`score`). Metrics: `average_{metric}`,
    the mean over the languages, and `{language}_{metric}`.

    Args:
        name: Prefix of the metrics. Default: the benchmark's.
        layer: Embed by the hidden states of this layer, see
            [`cut_at_layer`][st_xlret.encoding.cut_at_layer].
        pooling: `"mean"` of the hidden states, or `"model"`. Default: mean with a layer, model
            without.
        calibration: Applied to each language's vectors after all else, as CCP does after a layer.
        query_prompt: Prompt put before queries, and before all texts where none is a document.
            Default: that of the model.
        document_prompt: The same before documents.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device
            computes in it).
        show_progress_bar: Whether to show bars.
        language_metrics: Whether to return each language's metrics beside the means. The CSV file
            has them in any case.
    """

    benchmark: str = ""
    """Its name, as in `--benchmark`."""
    primary: str = ""
    """The metric that chooses the best model, and that the card has for each language."""
    layout: str = ""
    """Files of the official layout."""
    options: tuple[str, ...] = ()
    """Options of the command that it reads, of those that not every benchmark does."""
    splits: tuple[str, ...] = ("test",)
    """The first is the default."""
    is_on_hub: bool = False
    """Whether `from_files` also takes None for a folder."""
    published_metrics: tuple[str, ...] = ()
    """By which published rows are compared."""
    languages_in_all: int = 0
    """Of the whole benchmark."""
    title: str = ""
    """Its name in mteb, after `XLRet`; empty for what is no task there."""
    question_languages: tuple[str, ...] = ()
    """ISO 639-1 codes, for mteb."""
    reference: str = ""
    """Where it is described."""
    license: str | None = None
    """Of its data, as mteb spells it; None where it is not said."""

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
        self.layer = layer
        self.pooling = pooling
        self.calibration = calibration
        self.prompts: dict[Role, str | None] = {"query": query_prompt, "document": document_prompt}
        self.batch_size = batch_size
        self.precision = precision
        self.show_progress_bar = show_progress_bar
        self.language_metrics = language_metrics

    @classmethod
    def from_directory(
        cls,
        path: PathLike | None,
        languages: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """The evaluator of the files of the benchmark as they were published, or compressed.

        A `FileNotFoundError` says which files are expected.

        Args:
            path: Their folder. None: the Hugging Face Hub or, when offline, its cache.
            languages: Codes of the languages (of the queries) to evaluate, in this order. Default:
                all there.
            **options: Those of reading, which the class describes, such as `split`, and those of
                the evaluator.
        """
        split = options.get("split", cls.splits[0])
        chosen_names([split], cls.splits, f"{cls.benchmark} (split)")
        folder = None if path is None else Path(path).expanduser()
        is_there = cls.is_on_hub if folder is None else folder.is_dir()
        if not is_there:
            place = path or f"{cls.benchmark} on the Hub"
            raise FileNotFoundError(f"{place}: expected a folder with {cls.layout}")
        if isinstance(languages, str):
            languages = [languages]
        return cls.from_files(folder, languages, **options)

    @classmethod
    def from_files(cls, folder: Any, languages: Sequence[str] | None, **options: Any) -> Self:
        """What `from_directory` returns, of a folder or, if None, of the Hub.

        A TypeError for texts in memory alone.
        """
        return cls(**options)

    def evaluated_languages(self) -> list[str]:
        """The languages that `score` has scores of, before it is called."""
        return list(self.question_languages)

    @abstractmethod
    def score(self, model: SentenceTransformer) -> Scores:
        """Language to metric to value."""

    def embed_texts(
        self,
        model: SentenceTransformer,
        texts: Sequence[str],
        languages: Sequence[str],
        role: Role | None = None,
    ) -> Tensor:
        """Vectors (n, d) of texts in float32, calibrated.

        Each distinct text is encoded once and has one vector.
        """
        codes: Sequence[str | None] = languages
        if self.calibration is None and not task_languages(model):
            codes = [None] * len(texts)  # the language makes no difference
        keys = list(zip(texts, codes, strict=True))
        row_of = {key: row for row, key in enumerate(dict.fromkeys(keys))}
        distinct_codes = [code for _, code in row_of]
        vectors: Tensor = encode(
            model,
            [text for text, _ in row_of],
            known_languages(model, distinct_codes),
            role=role,
            precision=self.precision,
            prompt=self._prompt_of_role(model, role),
            batch_size=self.batch_size,
            show_progress_bar=self.show_progress_bar,
            convert_to_tensor=True,
        ).float()
        if self.calibration is not None:
            vectors = _map_by_language(self.calibration, vectors, distinct_codes)
        if len(row_of) == len(keys):
            return vectors
        return vectors[[row_of[key] for key in keys]]

    def _prompt_of_role(self, model: SentenceTransformer, role: Role | None) -> str | None:
        """The prompt of a role; None leaves it to the model.

        Texts without a role take that of queries, if it is given.
        """
        given = self.prompts[role or "query"]
        if role is not None or given is not None:
            return role_prompt(model, role, given)
        if self._uses_whole_model:
            return None
        return ""  # hidden states have no prompt of their own

    def check_prompts(self, role: Role) -> None:
        """Refuse the prompt of another role, where all texts are embedded in one."""
        for other, prompt in self.prompts.items():
            if prompt is not None and other != role:
                raise ValueError(
                    f"{self.benchmark} puts {role}_prompt before all texts, and {other}_prompt "
                    "before none"
                )

    @property
    def _uses_whole_model(self) -> bool:
        """Whether the sentence embeddings are the model's own, not the mean of hidden states."""
        return self.layer is None and self.pooling in (None, "model")

    def protocol(self, model: SentenceTransformer) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model.

        `evaluate` calls it after `score`. Of the entries, `COMPARED` are compared letter by letter.
        """
        entries = {
            "pooling": self._pooling_in_words(),
            "calibration": self._calibration_in_words(model),
            "precision": resolve_precision(self.precision, model.device),
        }
        for role, prompt in self.prompts.items():
            if prompt is not None:
                entries[f"{role}_prompt"] = prompt
        return entries

    def _pooling_in_words(self) -> str:
        """How a sentence embedding is made, for the protocol."""
        if self._uses_whole_model:
            return "the model's own sentence embedding"
        states = "last hidden states"
        if self.layer is not None:
            states = f"hidden states of layer {self.layer}"
        if self.pooling == "model":
            return f"the model's own pooling over the {states}"
        return f"mean of the {states}"

    def _calibration_in_words(self, model: SentenceTransformer) -> str:
        """The maps that vectors go through, for the protocol."""
        parts = []
        maps_in_model = dict.fromkeys(task_languages(model).values())
        if self._uses_whole_model and maps_in_model:
            parts.append(f"in the model, by the language of the texts ({', '.join(maps_in_model)})")
        if self.calibration is not None:
            parts.append(type(self.calibration).__name__)
        return ", then ".join(parts) or "no separate map"

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult:
        """Scores per language, their averages, and the protocol."""
        with cut_at_layer(model, self.layer, self.pooling) as part:
            if self.calibration is not None:
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
        """Evaluate and return the metrics, as Sentence Transformers calls it.

        The CSV file has all of them. Where there is one with other columns, a new one is written
        beside it.
        """
        file = None
        if output_path is not None:
            name = (self.name or self.benchmark).replace("-", "_")
            file = check_output_file(Path(output_path, f"{name}_evaluation_results.csv"))
        result = self.evaluate(model)
        averages = {f"average_{metric}": value for metric, value in result.average.items()}
        of_languages = {}
        on_card = dict(averages)
        for code, values in result.scores.items():
            on_card[f"{code}_{self.primary}"] = values[self.primary]
            for metric, value in values.items():
                of_languages[f"{code}_{metric}"] = value

        if file is not None:
            append_row(file, {"epoch": epoch, "steps": steps, **averages, **of_languages})
        card = self.prefix_name_to_metrics(on_card, self.name)
        self.store_metrics_in_model_card_data(model, card, epoch, steps)
        # A dict of its own: the host keeps the one of the card.
        metrics = averages | of_languages if self.language_metrics else averages
        return self.prefix_name_to_metrics(metrics, self.name)


def _map_by_language(
    calibration: CalibrationLayer, vectors: Tensor, codes: Sequence[str | None]
) -> Tensor:
    """Vectors (n, d), each mapped by the calibration of its language."""
    mapped = torch.empty_like(vectors)
    with torch.inference_mode():
        for code in dict.fromkeys(codes):
            rows = [row for row, other in enumerate(codes) if other == code]
            mapped[rows] = calibration.transform(vectors[rows], code).float()
    return mapped
