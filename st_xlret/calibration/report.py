"""How far apart the languages are, before and after each step of a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration.fit import sample_rows
from st_xlret.calibration.rotation import mean_csls_criterion
from st_xlret.calibration.statistics import distance_between_means
from st_xlret.modules.calibration_layer import CalibrationLayer

NOTE = """\
distance of means: how far apart the centres of two languages are, on average, in units of the spread of a language's
  sentences around its centre. Lower is better; 0 means that all languages share one centre.
cosine of matches: mean cosine of a sentence to the {pivot} sentence that CSLS matches it with. Higher is better, but
  compare it between rotations only: shift and scale change all cosines, and usually lower them, because they remove
  what all texts have in common.
lead of matches: cosine of matches minus the mean cosine of arbitrary sentences of the two languages. Higher is better,
  between all rows."""


class Alignment(NamedTuple):
    """How well the embeddings of several languages are aligned with each other.

    Attributes:
        distance: Mean distance between the means of two languages, divided by the root-mean-square distance of a
            sentence to the mean of its language, so that scaling alone does not change it. Lower is better.
        criterion: Mean cosine of a sentence to the sentence of the pivot that CSLS matches it with, averaged over
            languages (`mean_csls_criterion`, Conneau et al. 2018, section 3.3). Higher is better between rotations.
            Shift and scale change the cosines of all sentences, matched or not, and usually lower them.
        lead: `criterion` minus the mean cosine of all pairs of sentences of the two languages. Higher is better, also
            between stages with different steps.
    """

    distance: float
    criterion: float
    lead: float


def measure_alignment(
    embeddings: Mapping[str, Tensor],
    pivot: str = "en",
    calibration: CalibrationLayer | None = None,
    *,
    max_sentences: int = 2000,
    seed: int = 0,
) -> Alignment:
    """Measure how far apart the languages are. It needs no pairs.

    Args:
        embeddings: Language -> (n, d).
        pivot: The language with which the others are compared.
        calibration: Calibration to apply first; None to measure the embeddings as they are.
        max_sentences: Maximum number of sentences drawn from each language.
        seed: Seed of the draw.

    Returns:
        The three measures. A single language is aligned with itself: distance 0, criterion and lead 1.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> measure_alignment({"en": rows, "fr": rows + torch.tensor([3.0, 4.0])}).distance
        5.0
    """
    clouds = {}
    for language, rows in embeddings.items():
        drawn = sample_rows(torch.as_tensor(rows), max_sentences, seed).float()
        clouds[language] = drawn if calibration is None else calibration.transform(drawn, language)
    means = {language: cloud.mean(dim=0) for language, cloud in clouds.items()}
    squares = [(cloud - means[language]).square().sum(dim=1).mean() for language, cloud in clouds.items()]
    spread = float(torch.stack(squares).mean().sqrt())
    others = [language for language in clouds if language != pivot]
    if not others:
        return Alignment(0.0, 1.0, 1.0)
    matched = [mean_csls_criterion(clouds[language], clouds[pivot]) for language in others]
    # The mean over all pairs of cosines is the product of the mean unit vectors.
    directions = {language: F.normalize(cloud, dim=1).mean(dim=0) for language, cloud in clouds.items()}
    arbitrary = [float(directions[language] @ directions[pivot]) for language in others]
    criterion = sum(matched) / len(others)
    distance = distance_between_means(means) / spread if spread else 0.0
    return Alignment(distance, criterion, criterion - sum(arbitrary) / len(others))


def alignment_table(
    embeddings: Mapping[str, Tensor],
    stages: Mapping[str, CalibrationLayer],
    pivot: str = "en",
    *,
    max_sentences: int = 2000,
) -> str:
    """Show `measure_alignment` before and after each stage as a small table, with a note on how to read it.

    Args:
        embeddings: Language -> (n, d).
        stages: What `fit_calibration_stages` returns.
        pivot: The language with which the others are compared.
        max_sentences: Maximum number of sentences drawn from each language.

    Returns:
        The table and its note, lines of at most 120 characters.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> print(alignment_table({"en": rows, "fr": rows + torch.tensor([3.0, 4.0])}, {}))
        after    distance of means  cosine of matches  lead of matches
        before               5.000              0.792            0.792
        <BLANKLINE>
        distance of means: ...
    """
    columns = ["distance of means", "cosine of matches", "lead of matches"]
    lines = ["after    " + "  ".join(columns)]
    for name, layer in [("before", None), *stages.items()]:
        measured = measure_alignment(embeddings, pivot, layer, max_sentences=max_sentences)
        label = name if layer is None else f"+ {name}"
        figures = (f"{value:>{len(column)}.3f}" for value, column in zip(measured, columns, strict=True))
        lines.append(f"{label:<8} " + "  ".join(figures))
    return "\n".join([*lines, "", NOTE.format(pivot=pivot)])
