"""The calibration that `st-xlret calibrate` is asked for, and those that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from st_xlret.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from st_xlret.calibration import CalibrationOptions
    from st_xlret.calibration.inputs import Pairs
    from st_xlret.commands.comparison import Variant

COMPARED: tuple[tuple[str, ...], ...] = (("lsar",), ("shift",), ("shift", "coral"), ("to_pivot",))
"""The steps that are compared for search; the first one needs no language."""

COMPARED_STRENGTH = 0.75
FOR_SEARCH = {"lsar", "shift", "coral", "to_pivot"}
KEEP_MEAN = 0.25


@dataclass
class Method:
    """How to calibrate."""

    _argument_group_name = "method"

    steps: list[str] = option(
        ["lsar"],
        "In this order: lsar (minus the subspace in which the languages' means differ; needs no language), "
        "shift (minus the language's mean), coral (the same covariance for all), scale (divided by the standard "
        "deviation), rotate (orthogonal map into the pivot), lir (minus the language's top principal component), "
        "to_pivot (documents moved to the pivot's mean, queries in the pivot untouched).",
        choices=["shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot"],
    )
    by_role: bool = option(
        False,
        "Maps of queries apart from those of documents, fitted on the documents' texts with the prompt for queries. "
        "With --queries this is so anyway, on the questions.",
    )
    strength: float = option(
        1.0, "From 0, which leaves the model as it is, to 1, the full calibration.", minimum=0, maximum=1
    )
    keep_mean: float | None = option(
        None,
        f"Share of the mean of all languages that shift and lsar keep. By default {KEEP_MEAN}, which suits search; "
        "with scale, rotate or lir as in their papers.",
        minimum=0,
        maximum=1,
    )
    lsar_rank: int | None = option(None, "Dimensions that lsar removes. By default languages - 1.", minimum=1)
    coral_ridge: float = option(
        1.0, "Variance that coral adds to each direction, relative to the average. Less text needs more.", minimum=0
    )
    coral_shrink: float = option(
        0.5,
        "How far coral draws each covariance to the average first, from 0 to 1. 0 fits the languages' contents too.",
        minimum=0,
        maximum=1,
    )
    scale_by: str = option(
        "std", "scale: divide by the standard deviation or the variance.", choices=["std", "variance"]
    )
    pivot: str = option("en", "The language into which rotate and to_pivot map, and of texts that name none.")
    rotation_start: str = option(
        "both",
        "rotate without pairs: start from the identity (fast), by adversarial training, or take the better of both by "
        "an unsupervised criterion.",
        choices=["identity", "adversarial", "both"],
    )
    rotation_prior: float = option(
        0.0,
        "rotate: 0 fits the pairs alone; 1 stays nearer to the model's own alignment, safer where pairs are few.",
        minimum=0,
    )
    min_texts: int = option(50, "Fewer texts of a language are an error.", minimum=1)
    seed: int = option(0, "Seed of the draw and of the rotation.", minimum=0, maximum=2**32 - 1)


def name_of(method: Method, by_role: bool) -> str:
    """The calibration in the words of its options."""
    parts = [" ".join(method.steps)]
    parts += [f"strength {method.strength:g}"] if method.strength != 1 else []
    parts += [f"keep_mean {method.keep_mean:g}"] if method.keep_mean is not None else []
    return ", ".join([*parts, "queries apart"] if by_role else parts)


def options_of(method: Method) -> CalibrationOptions:
    """The options of the fit."""
    from st_xlret.calibration import CalibrationOptions, RotationOptions

    kept = KEEP_MEAN if set(method.steps) <= FOR_SEARCH else None
    return CalibrationOptions(
        scale_by=method.scale_by,  # type: ignore[arg-type]
        rotation=RotationOptions(initial=method.rotation_start, prior=method.rotation_prior),  # type: ignore[arg-type]
        lsar_rank=method.lsar_rank,
        coral_ridge=method.coral_ridge,
        coral_shrink=method.coral_shrink,
        keep_mean=kept if method.keep_mean is None else method.keep_mean,
        min_sentences=method.min_texts,
    )


def fit(
    method: Method,
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    pairs: Pairs | None = None,
    pivot: str = "en",
) -> Variant:
    """Fit the calibration that the user asked for.

    Args:
        method: The options.
        documents: Language to (n, d).
        queries: Language to (m, d), for maps of queries of their own.
        pairs: Parallel sentences, for the step rotate.
        pivot: A language of the documents.
    """
    from st_xlret.calibration import alignment_table, fit_calibration_stages
    from st_xlret.commands.comparison import Variant

    if queries is not None:
        return _fit_one(method, documents, queries, pivot)
    stages = fit_calibration_stages(
        documents,
        steps=method.steps,
        pivot=pivot,
        pairs=pairs,
        strength=method.strength,
        seed=method.seed,
        options=options_of(method),
        show_progress=True,
    )
    if not set(method.steps) <= FOR_SEARCH:
        print(alignment_table(documents, stages, pivot))
    return Variant(name_of(method, False), stages[method.steps[-1]])


def fit_others(
    method: Method, documents: Mapping[str, Tensor], queries: Mapping[str, Tensor] | None, pivot: str
) -> list[Variant]:
    """Fit the calibrations for search that the user did not ask for."""
    from tqdm.auto import tqdm

    plain = replace(method, keep_mean=None, lsar_rank=None, strength=1.0)
    wanted = [(replace(plain, steps=list(steps)), None) for steps in COMPARED]
    wanted.insert(1, (replace(wanted[0][0], strength=COMPARED_STRENGTH), None))
    # Queries stay as they are with to_pivot.
    jobs = wanted if queries is None else wanted + [(entry, queries) for entry, _ in wanted[:-1]]
    own = name_of(method, queries is not None)
    left = [(entry, asked) for entry, asked in jobs if name_of(entry, asked is not None) != own]
    return [
        _fit_one(entry, documents, asked, pivot)
        for entry, asked in tqdm(left, desc="fitting calibrations to compare with", unit="calibration")
    ]


def _fit_one(
    method: Method, documents: Mapping[str, Tensor], queries: Mapping[str, Tensor] | None, pivot: str
) -> Variant:
    from st_xlret.calibration import fit_calibration, fit_role_calibrations
    from st_xlret.commands.comparison import Variant

    how = {"steps": method.steps, "pivot": pivot, "strength": method.strength, "options": options_of(method)}
    name = name_of(method, queries is not None)
    if queries is None:
        return Variant(name, fit_calibration(documents, **how))  # type: ignore[arg-type]
    return Variant(name, *fit_role_calibrations(documents, queries, **how))  # type: ignore[arg-type]
