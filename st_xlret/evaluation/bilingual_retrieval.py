"""Bilingual retrieval: whether the nearest neighbour of a sentence in another language is its translation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.evaluation.encoding.embedding import Calibration, Pooling, TextEmbedder
from st_xlret.evaluation.reporting.benchmark_evaluator import append_csv_row
from st_xlret.search import top_k, unit_rows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_ROWS_PER_BLOCK = 4_096


def _first_equal_row(embeddings: Tensor) -> Tensor:
    """For every row, the lowest row with the same values, so that rounding does not decide between equal rows."""
    seen: dict[bytes, int] = {}
    rows = embeddings.cpu().numpy()
    return torch.tensor([seen.setdefault(row.tobytes(), index) for index, row in enumerate(rows)])


@torch.no_grad()
def retrieval_accuracy(source_embeddings: Tensor, target_embeddings: Tensor) -> tuple[float, float]:
    """Accuracy of the nearest neighbour by cosine, in both directions, for row-aligned translations.

    Row i of one side is counted right if its nearest neighbour on the other side is row i. Of equal cosines, the lower
    row is the nearest. The second of two identical sentences is thus counted wrong, as in the published protocol of
    Tatoeba.

    Args:
        source_embeddings: Shape (n, d), tensor or NumPy array, not necessarily normalised.
        target_embeddings: Shape (n, d), row-aligned with the source.

    Returns:
        `(forward, backward)`: source to target and target to source, fractions in [0, 1].

    Raises:
        ValueError: If the shapes differ, there are no rows, or a row holds NaN or infinite values.

    Example:
        >>> import torch
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> target = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
        >>> retrieval_accuracy(source, target)
        (1.0, 0.5)
    """
    source, target = torch.as_tensor(source_embeddings), torch.as_tensor(target_embeddings)
    if source.shape != target.shape:
        raise ValueError(
            f"source and target must be row-aligned, got shapes {tuple(source.shape)} and {tuple(target.shape)}."
        )
    source, target = unit_rows(source, "source"), unit_rows(target, "target", device=source.device)
    rows = len(source)
    if rows == 0:
        raise ValueError("there are no sentences: accuracy over nothing is undefined.")

    forward = torch.empty(rows, dtype=torch.int64, device=source.device)
    best_score = torch.full((rows,), -torch.inf, device=source.device)
    backward = torch.zeros(rows, dtype=torch.int64, device=source.device)
    for start in range(0, rows, _ROWS_PER_BLOCK):
        cosines = source[start : start + _ROWS_PER_BLOCK] @ target.T
        forward[start : start + _ROWS_PER_BLOCK] = cosines.argmax(dim=1)  # the first of equal maxima
        block_score, block_row = cosines.max(dim=0)
        better = block_score > best_score
        best_score = torch.where(better, block_score, best_score)
        backward = torch.where(better, block_row + start, backward)

    expected = torch.arange(rows)
    forward_hits = _first_equal_row(target)[forward.cpu()] == expected
    backward_hits = _first_equal_row(source)[backward.cpu()] == expected
    return int(forward_hits.sum()) / rows, int(backward_hits.sum()) / rows


@torch.no_grad()
def weighted_f1(source_embeddings: Tensor, target_embeddings: Tensor) -> float:
    """F1 of the nearest neighbour by cosine, source to target, for row-aligned translations.

    Each target row is a class, and the source rows whose nearest neighbour it is are predicted to belong to it. The
    mean of the F1 of all classes is what scikit-learn calls weighted, and what mteb reports as `f1` for Tatoeba. It is
    at most the accuracy, as it also penalises rows that are the nearest neighbours of several others. Of equal cosines,
    the lower row is the nearest.

    Args:
        source_embeddings: Shape (n, d), not necessarily normalised.
        target_embeddings: Shape (n, d), row-aligned with the source.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: If the shapes differ, there are no rows, or a row holds NaN or infinite values.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.9, 0.1]])
        >>> round(weighted_f1(source, torch.eye(2)), 4)
        0.3333
    """
    if source_embeddings.shape != target_embeddings.shape or not len(source_embeddings):
        shapes = f"{tuple(source_embeddings.shape)} and {tuple(target_embeddings.shape)}"
        raise ValueError(f"source and target must be row-aligned and not empty, got shapes {shapes}.")
    source = unit_rows(source_embeddings, "source")
    nearest = top_k(source, unit_rows(target_embeddings, "target", device=source.device), 1)[1][:, 0]
    found = torch.bincount(nearest, minlength=len(source))
    right = (nearest == torch.arange(len(source), device=nearest.device)).double()
    return float((2 * right / (1 + found)).mean())


def bilingual_accuracies(embeddings: Mapping[str, Tensor]) -> dict[tuple[str, str], float]:
    """Retrieval accuracy of every ordered pair of languages, from row-aligned embeddings.

    Args:
        embeddings: Language to tensor (n, d). Row i has the same meaning in every language.

    Returns:
        `{(from_language, to_language): accuracy}` for every ordered pair, fractions in [0, 1].

    Raises:
        ValueError: If there are fewer than two languages, or as for `retrieval_accuracy`.

    Example:
        >>> import torch
        >>> bilingual_accuracies({"en": torch.eye(3), "fr": torch.eye(3)})
        {('en', 'fr'): 1.0, ('fr', 'en'): 1.0}
    """
    if len(embeddings) < 2:
        raise ValueError(f"bilingual retrieval needs two languages or more, got {sorted(embeddings)}.")
    accuracies: dict[tuple[str, str], float] = {}
    for first, second in combinations(embeddings, 2):
        forward, backward = retrieval_accuracy(embeddings[first], embeddings[second])
        accuracies[first, second], accuracies[second, first] = forward, backward
    return accuracies


def summarise_accuracies(
    accuracies: Mapping[tuple[str, str], float],
    groups: Mapping[str, Iterable[str]] | None = None,
    *,
    within: Mapping[str, Iterable[str]] | None = None,
) -> dict[str, float]:
    """Average the accuracies of pairs: over all pairs, per language, and per group of languages.

    The mean of a language is over its pairs with all others, in both directions.

    Args:
        accuracies: As `bilingual_accuracies` returns them.
        groups: Name to languages, such as `{"without_parallel": ["zh"]}`: the mean over the pairs with at least one
            side in the group.
        within: Name to languages, such as `{"with_parallel": ["en", "fr"]}`: the mean over the pairs with both sides in
            the group.

    Returns:
        `{"accuracy": ..., "fr_accuracy": ..., "without_parallel_accuracy": ...}`.

    Raises:
        ValueError: If a group names languages that are not there, or has no pair.

    Example:
        >>> summarise_accuracies({("en", "fr"): 1.0, ("fr", "en"): 0.5})
        {'accuracy': 0.75, 'en_accuracy': 0.75, 'fr_accuracy': 0.75}
    """
    languages = list(dict.fromkeys(language for pair in accuracies for language in pair))

    def mean_touching(members: set[str]) -> float:
        touching = [accuracy for pair, accuracy in accuracies.items() if members & set(pair)]
        return sum(touching) / len(touching)

    def mean_within(name: str, members: set[str]) -> float:
        inside = [accuracy for pair, accuracy in accuracies.items() if members >= set(pair)]
        if not inside:
            raise ValueError(f"group {name!r} needs two languages or more for a pair within it, got {sorted(members)}.")
        return sum(inside) / len(inside)

    means = {"accuracy": sum(accuracies.values()) / len(accuracies)}
    means.update({f"{language}_accuracy": mean_touching({language}) for language in languages})
    for name, members in (groups or {}).items():
        _check_group(name, members, languages)
        means[f"{name}_accuracy"] = mean_touching(set(members))
    for name, members in (within or {}).items():
        _check_group(name, members, languages)
        means[f"{name}_accuracy"] = mean_within(name, set(members))
    return means


def _check_group(name: str, members: Iterable[str], languages: Sequence[str]) -> None:
    chosen = list(members)
    unknown = [language for language in chosen if language not in languages]
    if unknown or not chosen:
        raise ValueError(f"group {name!r} needs languages among {sorted(languages)}, got {chosen}.")


class BilingualRetrievalEvaluator(BaseEvaluator):
    """Retrieval between every two languages of a set of translations, in both directions.

    Each language is embedded once, which is quick enough for periodic evaluation during training: pass the evaluator to
    the Trainer.

    Args:
        sentences: Language to sentences. The i-th sentences of all languages are translations of each other.
        name: Prefix of the metrics.
        groups: Name to languages. Adds `{group}_accuracy`, the mean over the pairs with a side in the group.
        pair_metrics: Whether to add a metric for every ordered pair, `{from}-{to}_accuracy`.
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        calibration: Applied to the embeddings of each language, such as a `CalibrationLayer`.
        batch_size: Size of a forward pass, in texts of 64 tokens (see `encode_texts`).
        precision: Number format of the model, `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        show_progress_bar: Whether to show a bar over the languages.
        write_csv: Whether to append the means to a CSV file where an output path is given.

    Raises:
        ValueError: If there are fewer than two languages, lists are empty or differ in length, or a group or the
            calibration does not fit the languages.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel", "bus"])], device="cpu")
        >>> evaluator = BilingualRetrievalEvaluator({"en": ["taxi", "a hotel"], "de": ["Taxi", "Hotel"]})
        >>> evaluator(model)["accuracy"]
        1.0
    """

    def __init__(
        self,
        sentences: Mapping[str, Sequence[str]],
        *,
        name: str = "",
        groups: Mapping[str, Iterable[str]] | None = None,
        pair_metrics: bool = True,
        layer: int | None = None,
        pooling: Pooling | None = None,
        calibration: Calibration | None = None,
        batch_size: int = 32,
        precision: str = "fp32",
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()
        self.sentences = {language: list(texts) for language, texts in sentences.items()}
        if len(self.sentences) < 2:
            raise ValueError(f"bilingual retrieval needs two languages or more, got {sorted(self.sentences)}.")
        lengths = {language: len(texts) for language, texts in self.sentences.items()}
        if len(set(lengths.values())) > 1 or 0 in lengths.values():
            raise ValueError(f"every language needs the same, positive number of sentences, got {lengths}.")
        self.groups = {group: list(members) for group, members in (groups or {}).items()}
        for group, members in self.groups.items():
            _check_group(group, members, list(self.sentences))
        self.embedder = TextEmbedder(layer, pooling, calibration, batch_size, precision=precision)
        self.embedder.require_languages(list(self.sentences))
        self.name = name
        self.pair_metrics = pair_metrics
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv
        self.csv_file = f"bilingual_retrieval_evaluation{'_' + name if name else ''}_results.csv"
        self.primary_metric = "accuracy"

    def embed(self, model: SentenceTransformer) -> dict[str, Tensor]:
        """Embed every language once; returns language to float32 tensor (n, d)."""
        languages = tqdm(self.sentences.items(), desc="Languages", disable=not self.show_progress_bar)
        return {language: self.embedder.embed(model, texts, language) for language, texts in languages}

    def evaluate(self, model: SentenceTransformer) -> dict[tuple[str, str], float]:
        """Accuracy of every ordered pair of languages."""
        return bilingual_accuracies(self.embed(model))

    def __call__(  # type: ignore[override]  # the host's own evaluators narrow the model's type too
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate and return the metrics, as Sentence Transformers calls it."""
        accuracies = self.evaluate(model)
        means = summarise_accuracies(accuracies, self.groups)
        if output_path is not None and self.write_csv:
            append_csv_row(os.path.join(output_path, self.csv_file), {"epoch": epoch, "steps": steps, **means})
        pairs = {f"{source}-{target}_accuracy": value for (source, target), value in accuracies.items()}
        metrics = self.prefix_name_to_metrics({**means, **(pairs if self.pair_metrics else {})}, self.name)
        self.store_metrics_in_model_card_data(model, self.prefix_name_to_metrics(means, self.name), epoch, steps)
        return metrics

    def get_config_dict(self) -> dict[str, object]:
        """What the model card says about this evaluation."""
        return {"languages": list(self.sentences), "direction": "both, averaged", **self.embedder.describe()}
