"""From embeddings of several languages to a `CalibrationLayer`."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.bias_removal import coral_map, lir_map, lsar_map
from st_xlret.calibration.inputs import (
    CalibrationOptions,
    Pairs,
    check_embeddings,
    check_pairs,
    check_rotation,
    check_steps,
)
from st_xlret.calibration.rotation import partial_rotation, procrustes
from st_xlret.calibration.statistics import Affine, Moments, moments_of, scale_map, shift_map
from st_xlret.calibration.unsupervised import RotationOptions, describe_candidates, unsupervised_rotation
from st_xlret.modules.calibration_layer import CalibrationLayer

logger = logging.getLogger(__name__)


def fit_calibration(
    embeddings: Mapping[str, Tensor],
    *,
    steps: Sequence[str] = ("shift", "scale", "rotate"),
    pivot: str = "en",
    pairs: Pairs | None = None,
    strength: float | Mapping[str, float] = 1.0,
    seed: int = 0,
    options: CalibrationOptions | None = None,
    show_progress: bool = False,
) -> CalibrationLayer:
    """Fit the maps that align the embeddings of several languages (CCP, Wu et al. 2022, section 3.2).

    Steps run in the order given. Each is estimated on the output of the steps before it, at their strength:

    - `"shift"` subtracts the language's mean. At strength s: `x - s mean`.
    - `"scale"` divides by the language's standard deviation in each dimension. At strength s: `x / std ** s`.
    - `"rotate"` applies an orthogonal map into the pivot's space. Languages with `pairs` get the closed-form solution
      (Procrustes), the others the unsupervised search of Conneau et al. (2018). At strength s: the orthogonal matrix
      nearest to `(1 - s) I + s W`. The pivot is not rotated.
    - `"lir"` subtracts the projection P on the language's top principal components (Yang et al. 2021). At strength s:
      `x - s P x`.
    - `"lsar"` subtracts the projection on the subspace in which the languages' means differ (Xie et al. 2022), in the
      same way. It is the only step that is equal for all languages: alone, it gives a layer that needs no language.
    - `"coral"` gives every language the average covariance (correlation alignment, Sun et al. 2016). Put it after
      `"shift"`.
    - `"to_pivot"` adds the difference of the pivot's mean and the language's ("Shift", arXiv 2606.18801). At strength
      s: `x + s (mean_pivot - mean)`. It is for the documents alone: queries in the pivot stay as they are.

    Args:
        embeddings: Language -> (n, d) tensor or NumPy array of texts in that language, parallel or not. Pass what the
            model's `encode` returns: if the model ends with a normalisation, its output is calibrated.
        steps: Any of the steps, each at most once.
        pivot: The language into which the others are rotated.
        pairs: Language -> row-aligned embeddings of parallel sentences, its own and the pivot's, for `"rotate"`. Not
            every language needs them.
        strength: In [0, 1], for all steps or by step (1 for steps without one). At 0 the layer is the identity.
        seed: Seed. Equal seeds and embeddings give equal layers on one machine.
        options: Further options.
        show_progress: Show a progress bar over languages.

    Returns:
        The layer in float32 on the CPU. It is computed in float64.

    Raises:
        ValueError: If a step is unknown, the pivot has no embeddings, a language has too few sentences (the message
            gives its count; a rotation needs at least as many as dimensions), dimensions differ, or a strength is
            outside [0, 1].

    Example:
        >>> _ = torch.manual_seed(0)
        >>> clouds = {"en": torch.randn(100, 4) + 3, "fr": torch.randn(100, 4) - 5}
        >>> layer = fit_calibration(clouds, steps=["shift"])
        >>> round(float(layer.transform(clouds["fr"], "fr").mean(dim=0).norm()), 4)
        0.0
    """
    stages = fit_calibration_stages(
        embeddings,
        steps=steps,
        pivot=pivot,
        pairs=pairs,
        strength=strength,
        seed=seed,
        options=options,
        show_progress=show_progress,
    )
    return stages[steps[-1]]


def fit_calibration_stages(
    embeddings: Mapping[str, Tensor],
    *,
    steps: Sequence[str] = ("shift", "scale", "rotate"),
    pivot: str = "en",
    pairs: Pairs | None = None,
    strength: float | Mapping[str, float] = 1.0,
    seed: int = 0,
    options: CalibrationOptions | None = None,
    show_progress: bool = False,
) -> dict[str, CalibrationLayer]:
    """Fit a calibration and return a layer after each step: "+ shift", "+ scale", "+ rotate".

    It takes no longer than fitting the last layer alone. Arguments and errors are those of `fit_calibration`.

    Returns:
        Step -> the layer of all steps up to it, in the order of the steps.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> clouds = {"en": torch.randn(100, 4) + 3, "fr": torch.randn(100, 4) - 5}
        >>> stages = fit_calibration_stages(clouds, steps=["shift", "scale"])
        >>> {name: layer.steps for name, layer in stages.items()}
        {'shift': ['shift'], 'scale': ['shift', 'scale']}
    """
    options = options or CalibrationOptions()
    strengths = check_steps(steps, strength)
    rows = check_embeddings(embeddings, pivot, options)
    parallel = check_pairs(pairs or {}, rows, pivot, options)
    if strengths.get("rotate"):
        check_rotation(rows, parallel, pivot, options)
    moments = {
        language: moments_of(cloud, language, min_sentences=options.min_sentences)
        for language, cloud in tqdm(rows.items(), desc="means and spreads", disable=not show_progress, leave=False)
    }
    dimension = len(moments[pivot].mean)
    maps = {language: Affine.identity(dimension) for language in rows}
    notes: dict[str, str] = {}
    stages: dict[str, CalibrationLayer] = {}
    for number, (step, amount) in enumerate(strengths.items(), start=1):
        if step == "rotate":
            additions = _rotations(rows, maps, parallel, pivot, amount, seed, options.rotation, notes, show_progress)
        else:
            additions = moment_step(step, moments, amount, options, pivot)
        maps = {language: maps[language].then(addition) for language, addition in additions.items()}
        moments = {language: moments[language].after(addition) for language, addition in additions.items()}
        taken = {name: strengths[name] for name in list(strengths)[:number]}
        stages[step] = layer_of(maps, taken, pivot, options, notes)
    return stages


def layer_of(
    maps: Mapping[str, Affine],
    strengths: Mapping[str, float],
    pivot: str,
    options: CalibrationOptions,
    notes: dict[str, str] | None = None,
) -> CalibrationLayer:
    """A layer of each language's map after the steps of `strengths`: one map for all if the only step is LSAR."""
    agnostic = list(strengths) == ["lsar"]
    layer = CalibrationLayer(
        len(maps[pivot].bias),
        () if agnostic else tuple(maps),
        pivot=pivot,
        normalize_inputs=options.normalize_inputs,
        steps=list(strengths),
        strength=dict(strengths),
        notes=notes,
    )
    kept = [maps[pivot]] if agnostic else list(maps.values())
    layer.weight.copy_(torch.stack([entry.weight for entry in kept]))
    layer.bias.copy_(torch.stack([entry.bias for entry in kept]))
    return layer


def common_mean(moments: Mapping[str, Moments]) -> Tensor:
    """The mean (d,) of all languages, with equal weights."""
    return torch.stack([entry.mean for entry in moments.values()]).mean(dim=0)


def moment_step(
    step: str,
    moments: Mapping[str, Moments],
    amount: float,
    options: CalibrationOptions,
    pivot: str,
    common: Tensor | None = None,
) -> dict[str, Affine]:
    """The maps of a step that means and covariances determine.

    `common` is the mean (d,) of which shift and LSAR keep a part; by default that of all languages.
    """
    common = common_mean(moments) if common is None else common
    if step == "lsar":
        kept = 1.0 if options.keep_mean is None else options.keep_mean
        shared = lsar_map([entry.mean for entry in moments.values()], options.lsar_rank, amount, kept, common)
        return dict.fromkeys(moments, shared)
    if step == "shift":
        back = Affine.translation(amount * (common_mean(moments) - (1 - (options.keep_mean or 0.0)) * common))
        return {language: shift_map(entry, amount).then(back) for language, entry in moments.items()}
    if step == "to_pivot":
        return {
            language: Affine.translation(amount * (moments[pivot].mean - entry.mean))
            for language, entry in moments.items()
        }
    if step == "coral":
        covariance = torch.stack([entry.covariance for entry in moments.values()]).mean(dim=0)
        how = (covariance, options.coral_ridge, options.coral_shrink, amount)
        return {language: coral_map(entry, *how) for language, entry in moments.items()}
    if step == "lir":
        return {language: lir_map(entry, options.lir_components, amount) for language, entry in moments.items()}
    return {
        language: scale_map(entry, language, amount, scale_by=options.scale_by, floor=options.scale_floor)
        for language, entry in moments.items()
    }


def _rotations(
    rows: Mapping[str, Tensor],
    maps: Mapping[str, Affine],
    pairs: Pairs,
    pivot: str,
    amount: float,
    seed: int,
    options: RotationOptions,
    notes: dict[str, str],
    show_progress: bool,
) -> dict[str, Affine]:
    """A rotation into the pivot's space for every language, fitted on rows as the steps so far map them."""
    dimension = len(maps[pivot].bias)
    rotations = {pivot: Affine.identity(dimension)}
    pivot_rows = maps[pivot](sample_rows(rows[pivot], options.max_sentences, seed))
    others = [language for language in rows if language != pivot]
    for language in tqdm(others, desc="rotations", disable=not show_progress):
        if amount == 0:
            rotation, note = torch.eye(dimension, dtype=torch.float64), "none: strength 0"
        elif language in pairs:
            own, other = pairs[language]
            rotation = procrustes(maps[language](own.double()), maps[pivot](other.double()), prior=options.prior)
            note = f"Procrustes on {len(own)} pairs"
        else:
            own_seed = seed + zlib.crc32(language.encode())
            own = maps[language](sample_rows(rows[language], options.max_sentences, own_seed))
            candidates = unsupervised_rotation(own, pivot_rows, options, seed=own_seed, show_progress=show_progress)
            rotation = candidates[0].rotation
            note = describe_candidates(candidates)
        notes[f"rotate {language}"] = note
        logger.info("rotation of %s into %s: %s", language, pivot, note)
        rotations[language] = Affine.linear(partial_rotation(rotation.cpu(), amount))
    return {language: rotations[language] for language in rows}


def sample_rows(rows: Tensor, size: int, seed: int) -> Tensor:
    """Draw at most `size` rows with a seed. If there are no more than that, return all of them in order."""
    if len(rows) <= size:
        return rows
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:size]
    return rows[drawn.to(rows.device)]
