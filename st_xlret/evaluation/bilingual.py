"""Bilingual retrieval: whether the nearest neighbour of a sentence in another language is its translation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.evaluation.base import append_csv_row
from st_xlret.evaluation.embedding import TextEmbedder
from st_xlret.search import neighbours_both_ways, unit_rows


def retrieval_accuracy(source_embeddings: Tensor, target_embeddings: Tensor) -> tuple[float, float]:
    """Accuracy of the nearest neighbour by cosine, in both directions, for row-aligned translations.

    Of equal cosines, the lower row is the nearest: the second of two identical sentences is counted wrong, as in the
    published protocol of Tatoeba.

    Args:
        source_embeddings: Shape (n, d), tensor or NumPy array, not necessarily normalised.
        target_embeddings: Shape (n, d), row-aligned with the source.

    Returns:
        `(forward, backward)`: source to target and target to source, fractions in [0, 1].

    Raises:
        ValueError: If the shapes differ, there are no rows, or a row holds NaN or infinite values.
    """
    (forward, target), (backward, source) = _nearest(source_embeddings, target_embeddings)
    expected = torch.arange(len(forward))
    # Rounding must not decide between equal rows: the first of them is the nearest.
    return _share(_first_equal_row(target)[forward] == expected), _share(_first_equal_row(source)[backward] == expected)


def weighted_f1(source_embeddings: Tensor, target_embeddings: Tensor) -> float:
    """F1 of the nearest neighbour by cosine, source to target: what mteb reports as `f1` for Tatoeba.

    Each target row is a class, and the source rows whose nearest neighbour it is are predicted to belong to it. The
    mean of the F1 of all classes, which scikit-learn calls weighted, is at most the accuracy. The arguments and errors
    are those of `retrieval_accuracy`.

    Example:
        >>> round(weighted_f1(torch.tensor([[1.0, 0.0], [0.9, 0.1]]), torch.eye(2)), 4)
        0.3333
    """
    (nearest, _), _ = _nearest(source_embeddings, target_embeddings)
    found = torch.bincount(nearest, minlength=len(nearest))
    right = (nearest == torch.arange(len(nearest))).double()
    return float((2 * right / (1 + found)).mean())


def _nearest(source: Any, target: Any) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """For each direction, the nearest rows and the unit rows that they are of, on the CPU."""
    source, target = torch.as_tensor(source), torch.as_tensor(target)
    if source.shape != target.shape or not len(source):
        shapes = f"{tuple(source.shape)} and {tuple(target.shape)}"
        raise ValueError(f"source and target must be row-aligned and not empty, got shapes {shapes}.")
    x, y = unit_rows(source, "source"), unit_rows(target, "target", device=source.device)
    _, forward, _, backward = neighbours_both_ways(x, y, 1, cosine=False)
    return (forward[:, 0].cpu(), y.cpu()), (backward[:, 0].cpu(), x.cpu())


def _first_equal_row(embeddings: Tensor) -> Tensor:
    """For every row, the lowest row with the same values."""
    seen: dict[bytes, int] = {}
    return torch.tensor([seen.setdefault(row.tobytes(), index) for index, row in enumerate(embeddings.numpy())])


def _share(hits: Tensor) -> float:
    return int(hits.sum()) / len(hits)


def bilingual_accuracies(embeddings: Mapping[str, Tensor]) -> dict[tuple[str, str], float]:
    """Retrieval accuracy of every ordered pair of languages, from row-aligned embeddings: language to (n, d).

    Raises:
        ValueError: If there are fewer than two languages, or as for `retrieval_accuracy`.

    Example:
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
    accuracies: Mapping[tuple[str, str], float], groups: Mapping[str, Iterable[str]] | None = None
) -> dict[str, float]:
    """Average the accuracies of pairs: over all pairs, per language, and per group of languages.

    Args:
        accuracies: As `bilingual_accuracies` returns them.
        groups: Name to languages; its mean is over the pairs with at least one side in the group.

    Returns:
        `"accuracy"`, `"{language}_accuracy"` and `"{group}_accuracy"`, in both directions.

    Raises:
        ValueError: If a group names languages that are not there.
    """
    languages = list(dict.fromkeys(language for pair in accuracies for language in pair))
    means = {"accuracy": sum(accuracies.values()) / len(accuracies)}
    for name, members in {**{language: [language] for language in languages}, **(groups or {})}.items():
        chosen = set(members)
        if not chosen or not chosen <= set(languages):
            raise ValueError(f"group {name!r} needs languages among {sorted(languages)}, got {sorted(chosen)}.")
        touching = [accuracy for pair, accuracy in accuracies.items() if chosen & set(pair)]
        means[f"{name}_accuracy"] = sum(touching) / len(touching)
    return means


class BilingualRetrievalEvaluator(BaseEvaluator):
    """Retrieval between every two languages of a set of translations, in both directions.

    Args:
        sentences: Language to sentences. The i-th sentences of all languages are translations of each other.
        name: Prefix of the metrics.
        groups: Name to languages. Adds `{group}_accuracy`, the mean over the pairs with a side in the group.
        show_progress_bar: Whether to show a bar over the languages.
        write_csv: Whether to append the means to a CSV file where an output path is given.
        **embedder: Options of [`TextEmbedder`][st_xlret.evaluation.TextEmbedder], such as `layer` and `calibration`.

    Raises:
        ValueError: If there are fewer than two languages, lists are empty or differ in length, or a group or the
            calibration does not fit the languages.
    """

    def __init__(
        self,
        sentences: Mapping[str, Sequence[str]],
        *,
        name: str = "",
        groups: Mapping[str, Iterable[str]] | None = None,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        **embedder: Any,
    ) -> None:
        super().__init__()
        self.sentences = {language: list(texts) for language, texts in sentences.items()}
        lengths = {language: len(texts) for language, texts in self.sentences.items()}
        if len(set(lengths.values())) > 1 or 0 in lengths.values():
            raise ValueError(f"every language needs the same, positive number of sentences, got {lengths}.")
        if len(lengths) < 2:
            raise ValueError(f"bilingual retrieval needs two languages or more, got {sorted(lengths)}.")
        self.groups = {group: list(members) for group, members in (groups or {}).items()}
        summarise_accuracies(dict.fromkeys(combinations(lengths, 2), 0.0), self.groups)  # checks the groups
        self.embedder = TextEmbedder(**embedder)
        self.embedder.require_languages(list(lengths))
        self.name = name
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv
        self.csv_file = f"bilingual_retrieval_evaluation{'_' + name if name else ''}_results.csv"
        self.primary_metric = "accuracy"

    def evaluate(self, model: SentenceTransformer) -> dict[tuple[str, str], float]:
        """Accuracy of every ordered pair of languages."""
        languages = tqdm(self.sentences.items(), desc="Languages", disable=not self.show_progress_bar)
        return bilingual_accuracies({code: self.embedder.embed(model, texts, code) for code, texts in languages})

    def __call__(  # type: ignore[override]  # the host's own evaluators narrow the model's type too
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluate and return the metrics, as Sentence Transformers calls it."""
        accuracies = self.evaluate(model)
        means = summarise_accuracies(accuracies, self.groups)
        if output_path is not None and self.write_csv:
            append_csv_row(os.path.join(output_path, self.csv_file), {"epoch": epoch, "steps": steps, **means})
        pairs = {f"{source}-{target}_accuracy": value for (source, target), value in accuracies.items()}
        metrics = self.prefix_name_to_metrics({**means, **pairs}, self.name)
        self.store_metrics_in_model_card_data(model, self.prefix_name_to_metrics(means, self.name), epoch, steps)
        return metrics

    def get_config_dict(self) -> dict[str, object]:
        """What the model card says about this evaluation."""
        return {"languages": list(self.sentences), "direction": "both, averaged", **self.embedder.describe()}
