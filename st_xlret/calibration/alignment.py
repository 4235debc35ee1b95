"""How far apart the languages are, before and after each step of a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration.fit import draw_rows
from st_xlret.calibration.rotation import mean_csls_criterion
from st_xlret.modules.calibration_layer import CalibrationLayer

NOTE = """\
distance of means: how far apart the centres of two languages are, on average, in units of the spread of a language's
  texts around its centre. Lower is better; 0 means that all languages share one centre.
cosine of matches: mean cosine of a text to the {pivot} text that CSLS matches it with. Higher is better, but compare it
  between rotations only: shift and scale change all cosines, and usually lower them, because they remove what all texts
  have in common.
lead of matches: cosine of matches minus the mean cosine of arbitrary texts of the two languages. Higher is better,
  between all rows."""


class Alignment(NamedTuple):
    """How well the embeddings of several languages are aligned with each other; `NOTE` says what the measures are.

    The criterion is that of Conneau et al. (2018, section 3.3), averaged over languages.
    """

    distance: float
    criterion: float
    lead: float


def measure_alignment(
    embeddings: Mapping[str, Tensor],
    pivot: str = "en",
    calibration: CalibrationLayer | None = None,
    *,
    max_texts: int = 2000,
    seed: int = 0,
) -> Alignment:
    """Measure how far apart the languages are. It needs no pairs.

    Args:
        embeddings: Language -> (n, d).
        pivot: The language with which the others are compared.
        calibration: Calibration to apply first; None to measure the embeddings as they are.
        max_texts: Maximum number of texts drawn from each language.
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
        drawn = draw_rows(torch.as_tensor(rows), max_texts, seed).float()
        clouds[language] = drawn if calibration is None else calibration.transform(drawn, language)
    others = [language for language in clouds if language != pivot]
    if not others:
        return Alignment(0.0, 1.0, 1.0)
    means = {language: cloud.mean(dim=0) for language, cloud in clouds.items()}
    squares = [(cloud - means[language]).square().sum(dim=1).mean() for language, cloud in clouds.items()]
    spread = float(torch.stack(squares).mean().sqrt())
    distances = [float((left - right).norm()) for left, right in combinations(means.values(), 2)]
    distance = sum(distances) / len(distances) / spread if spread else 0.0
    matched = [mean_csls_criterion(clouds[language], clouds[pivot]) for language in others]
    # The mean over all pairs of cosines is the product of the mean unit vectors.
    directions = {language: F.normalize(cloud, dim=1).mean(dim=0) for language, cloud in clouds.items()}
    arbitrary = [float(directions[language] @ directions[pivot]) for language in others]
    criterion = sum(matched) / len(others)
    return Alignment(distance, criterion, criterion - sum(arbitrary) / len(others))


def alignment_table(
    embeddings: Mapping[str, Tensor],
    stages: Mapping[str, CalibrationLayer],
    pivot: str = "en",
    *,
    max_texts: int = 2000,
) -> str:
    """Show `measure_alignment` before and after each stage as a small table, with a note on how to read it.

    `stages` is what `fit_calibration_stages` returns; the other arguments are those of `measure_alignment`.

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
        measured = measure_alignment(embeddings, pivot, layer, max_texts=max_texts)
        label = name if layer is None else f"+ {name}"
        figures = (f"{value:>{len(column)}.3f}" for value, column in zip(measured, columns, strict=True))
        lines.append(f"{label:<8} " + "  ".join(figures))
    return "\n".join([*lines, "", NOTE.format(pivot=pivot)])
