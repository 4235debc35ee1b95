"""Options of a calibration, and checks of what it is fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration.unsupervised import RotationOptions

STEPS = ("shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot")
"""The steps of a calibration, the first three in the order of the paper."""

Pairs = Mapping[str, tuple[Tensor, Tensor]]
"""Language -> embeddings of its sentences (n, d) and of their translations into the pivot (n, d)."""


@dataclass(frozen=True)
class CalibrationOptions:
    """Options of the steps.

    Attributes:
        scale_by: Divide by standard deviations, or by variances as the paper words it.
        scale_floor: Smallest standard deviation of a dimension, relative to the root mean square over all dimensions
            (see `scale_map`).
        rotation: How a rotation is found without pairs. Its `prior` applies with pairs too.
        lir_components: Number of principal components that LIR removes from each language.
        lsar_rank: Number of dimensions that LSAR removes; None for all in which the languages' means differ.
        keep_mean: Fraction of the mean of all languages that `"shift"` and `"lsar"` keep. None keeps what the papers
            keep: nothing with `"shift"`, all of it with `"lsar"`.
        coral_ridge: Variance that CORAL adds to every direction, relative to the average one.
        coral_shrink: How far CORAL first draws the covariance of a language to that of all, from 0 to 1.
        normalize_inputs: Scale embeddings to unit length before the first step, in the fit and in the layer.
        min_sentences: Minimum number of sentences of a language.
    """

    scale_by: Literal["std", "variance"] = "std"
    scale_floor: float = 0.01
    rotation: RotationOptions = field(default_factory=RotationOptions)
    lir_components: int = 1
    lsar_rank: int | None = None
    keep_mean: float | None = None
    coral_ridge: float = 1.0
    coral_shrink: float = 0.5
    normalize_inputs: bool = False
    min_sentences: int = 50


def check_steps(steps: Sequence[str], strength: float | Mapping[str, float]) -> dict[str, float]:
    """Return the strength of each step, in the order of the steps.

    Raises:
        ValueError: If a step is unknown or named twice, or a strength is outside [0, 1] or of no step.
    """
    if isinstance(steps, str) or not steps:
        raise ValueError(f"steps must be a sequence out of {', '.join(STEPS)}, got {steps!r}")
    for step in steps:
        if step not in STEPS:
            raise ValueError(f"unknown calibration step {step!r}: choose from {', '.join(STEPS)}")
    if len(set(steps)) != len(steps):
        raise ValueError(f"each step can be taken once, got {list(steps)}")
    by_step = dict(strength) if isinstance(strength, Mapping) else dict.fromkeys(steps, strength)
    for step, amount in by_step.items():
        if step not in steps:
            raise ValueError(f"strength is given for {step!r}, which is none of the steps {list(steps)}")
        if not 0 <= amount <= 1:
            raise ValueError(f"strength must lie in [0, 1], got {amount} for {step!r}")
    return {step: float(by_step.get(step, 1.0)) for step in steps}


def check_embeddings(embeddings: Mapping[str, Tensor], pivot: str, options: CalibrationOptions) -> dict[str, Tensor]:
    """Return embeddings as tensors of one width, scaled to unit length if the options say so.

    Raises:
        ValueError: If the pivot has no embeddings, or widths differ.
    """
    if pivot not in embeddings:
        known = ", ".join(embeddings) or "none"
        raise ValueError(f"no embeddings of the pivot language {pivot!r}: there are {known}")
    rows = {language: torch.as_tensor(cloud).detach() for language, cloud in embeddings.items()}
    widths = {language: cloud.shape[-1] for language, cloud in rows.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"embeddings of all languages must have one dimension, got {widths}")
    if options.normalize_inputs:
        return {language: F.normalize(cloud, dim=-1) for language, cloud in rows.items()}
    return rows


def check_rotation(
    rows: Mapping[str, Tensor], pairs: Mapping[str, tuple[Tensor, Tensor]], pivot: str, options: CalibrationOptions
) -> None:
    """Refuse to fit a rotation of d dimensions to fewer than d sentences: most of it would be arbitrary.

    A prior decides the directions about which the sentences say nothing, so fewer sentences are allowed with one.

    Raises:
        ValueError: If languages have fewer sentences, or pairs, than dimensions; the message names all of them.
    """
    others = set(rows) - {pivot}
    if options.rotation.prior > 0 or not others:
        return
    dimension, most = rows[pivot].shape[-1], options.rotation.max_sentences
    counts = {language: (min(len(cloud), most), "sentences") for language, cloud in rows.items()}
    counts |= {language: (len(own), "pairs") for language, (own, _) in pairs.items()}
    if others <= set(pairs):
        del counts[pivot]  # its own sentences are not used then
    few = [f"{language!r} has {count} {kind}" for language, (count, kind) in counts.items() if count < dimension]
    if few:
        raise ValueError(
            f"a rotation in {dimension} dimensions needs at least {dimension} sentences, or pairs, of each language: "
            f"{', '.join(few)}. Give more text or pairs, leave these languages or the step 'rotate' out, or keep the "
            "rotation near the identity with RotationOptions(prior=1.0) (--rotation-prior 1)"
        )


def check_pairs(
    pairs: Pairs, rows: Mapping[str, Tensor], pivot: str, options: CalibrationOptions
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return pairs as tensors of the embeddings' width, scaled to unit length if the options say so.

    Raises:
        ValueError: If pairs are not row-aligned, have another width, or belong to no language of the embeddings.
    """
    checked = {}
    for language, (own, other) in pairs.items():
        if language not in rows or language == pivot:
            raise ValueError(f"pairs are given for {language!r}: expected one of {', '.join(rows)} but {pivot!r}")
        own, other = torch.as_tensor(own).detach(), torch.as_tensor(other).detach()
        if own.shape != other.shape or own.shape[-1] != rows[pivot].shape[-1]:
            raise ValueError(
                f"pairs of {language!r} must be row-aligned, of {rows[pivot].shape[-1]} dimensions: "
                f"got {tuple(own.shape)} and {tuple(other.shape)}"
            )
        if options.normalize_inputs:
            own, other = F.normalize(own, dim=-1), F.normalize(other, dim=-1)
        checked[language] = (own, other)
    return checked
