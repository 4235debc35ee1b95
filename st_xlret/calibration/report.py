"""How far apart the languages are, before and after each step of a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from st_xlret.calibration.fit import sample_rows
from st_xlret.calibration.rotation import mean_csls_criterion
from st_xlret.calibration.statistics import distance_between_means
from st_xlret.modules.calibration_layer import CalibrationLayer


class Alignment(NamedTuple):
    """How well the clouds of several languages lie on each other.

    Attributes:
        distance: Mean distance between the means of two languages, in units of the root-mean-square distance
            of a sentence from the mean of its language, so that scaling does not change it by itself.
        criterion: Mean over languages of :func:`mean_csls_criterion` into the pivot; higher is better.
    """

    distance: float
    criterion: float


def measure_alignment(
    embeddings: Mapping[str, Tensor],
    pivot: str = "en",
    calibration: CalibrationLayer | None = None,
    *,
    max_sentences: int = 2000,
    seed: int = 0,
) -> Alignment:
    """Measure how far apart the languages are; no pairs needed.

    Args:
        embeddings: Language -> (n, d).
        pivot: The language that the others are compared with.
        calibration: Applied first; ``None``: the embeddings as they are.
        max_sentences: Drawn from each language.
        seed: Of the draw.

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
    criteria = [mean_csls_criterion(clouds[language], clouds[pivot]) for language in others]
    return Alignment(
        distance_between_means(means) / spread if spread else 0.0,
        sum(criteria) / len(criteria) if criteria else 1.0,
    )


def alignment_table(
    embeddings: Mapping[str, Tensor],
    stages: Mapping[str, CalibrationLayer],
    pivot: str = "en",
    *,
    max_sentences: int = 2000,
) -> str:
    """:func:`measure_alignment` before and after each stage, as a small table.

    Args:
        embeddings: Language -> (n, d).
        stages: As :func:`st_xlret.calibration.fit_calibration_stages` gives them.
        pivot: The language that the others are compared with.
        max_sentences: Drawn from each language.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> print(alignment_table({"en": rows, "fr": rows + torch.tensor([3.0, 4.0])}, {}))
        after    distance of means  CSLS criterion
        before               5.000           ...
    """
    lines = [f"{'after':<8} {'distance of means':>17}  {'CSLS criterion':>14}"]
    for name, layer in [("before", None), *stages.items()]:
        measured = measure_alignment(embeddings, pivot, layer, max_sentences=max_sentences)
        label = name if layer is None else f"+ {name}"
        lines.append(f"{label:<8} {measured.distance:>17.3f}  {measured.criterion:>14.3f}")
    return "\n".join(lines)
