"""Fit the calibration that was asked for, and what it is compared with: other steps, other strengths, halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.comparison import Compared, Comparison, best_strength, compare_calibrations
from st_xlret.calibration.fit import (
    QUERY_STEPS,
    CalibrationOptions,
    Pairs,
    RoleCalibrations,
    fit_calibration,
    fit_role_calibrations,
)

STRENGTHS = tuple(tenth / 10 for tenth in range(11))

_COMPARED = (("lsar",), ("shift",), ("shift", "coral"))
_TO_HALVE = 20


def fit_and_compare(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    ids: Mapping[str, Tensor] | None = None,
    *,
    asked: Mapping[str, Tensor] | None = None,
    steps: Sequence[str] = ("lsar",),
    strength: float | Literal["auto"] = 1.0,
    pivot: str = "en",
    pairs: Pairs | None = None,
    options: CalibrationOptions | None = None,
    queries_only: bool = False,
    seed: int = 0,
    others: bool = True,
    show_progress_bar: bool = False,
) -> tuple[RoleCalibrations, Comparison]:
    """Fit a calibration at a strength, or the best one, and compare it with `others`.

    The arguments are those of `compare_strengths` and of `fit_calibration`. A rotation, which takes minutes, is fitted
    once: not at other strengths, and not on halves.

    Raises:
        ValueError: As in `fit_role_calibrations`, or if the strength is `"auto"` and `"rotate"` is among the steps.
    """
    sides = (documents, queries, ids)
    how: Any = {"steps": list(steps), "pivot": pivot, "options": options}
    both: Any = {**how, "asked": asked, "queries_only": queries_only}
    once = "rotate" in steps
    if strength == "auto" and once:
        raise ValueError("the strength 'auto' fits eleven times, which takes too long with 'rotate': give a number")
    strengths: Mapping[float, Compared] = {}
    if strength == "auto" or (others and not once):
        strengths = compare_strengths(*sides, **both, show_progress_bar=show_progress_bar)
    amount = best_strength(strengths) if strength == "auto" else strength
    if asked is not None or queries_only:
        fitted = fit_role_calibrations(documents, asked, strength=amount, queries_only=queries_only, **how)
    else:
        more: Any = {"pairs": pairs, "seed": seed, "show_progress_bar": show_progress_bar}
        fitted = RoleCalibrations(fit_calibration(documents, strength=amount, **how, **more))
    keep_mean = options.keep_mean if options is not None else None
    own = name_of(steps, amount, keep_mean, by_role=asked is not None, queries_only=queries_only)
    usual = {}
    if others:
        usual = usual_calibrations(documents, asked, options=options, show_progress_bar=show_progress_bar)
        usual.pop(own, None)
    comparison = compare_calibrations({**usual, own: fitted}, *sides, chosen=own, show_progress_bar=show_progress_bar)
    halves = measure_halves(*sides, strength=amount, **both) if others and not once else []
    return fitted, replace(comparison, strengths=strengths, halves=halves)


def compare_strengths(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    ids: Mapping[str, Tensor] | None = None,
    *,
    asked: Mapping[str, Tensor] | None = None,
    steps: Sequence[str] = ("lsar",),
    pivot: str = "en",
    options: CalibrationOptions | None = None,
    queries_only: bool = False,
    show_progress_bar: bool = False,
) -> dict[float, Compared]:
    """Measure a calibration at the strengths 0, 0.1 to 1: what is kept within a language, what is found across them.

    Args:
        documents: Language -> (n, d) embeddings of texts as documents; this and the next two are those of
            `compare_calibrations`.
        queries: The same texts as queries.
        ids: Numbers of the texts' documents.
        asked: Language -> (m, d), what maps of queries are fitted to; the other arguments are those of
            `fit_role_calibrations`.
        steps: The steps. `"rotate"` takes minutes at each strength.
        pivot: The pivot language.
        options: Further options of the steps.
        queries_only: Map queries alone.
        show_progress_bar: Show a progress bar.

    Returns:
        Strength -> what was measured.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> clouds = {"en": torch.randn(60, 8) + 1, "fr": torch.randn(60, 8) - 1}
        >>> rows = compare_strengths(clouds)
        >>> rows[0.0].kept, rows[0.0].biases["search"].same_language_share > rows[1.0].biases["search"].chance
        (1.0, True)
    """
    how: Any = {"steps": steps, "pivot": pivot, "options": options, "queries_only": queries_only}
    fitted = {f"{amount}": fit_role_calibrations(documents, asked, strength=amount, **how) for amount in STRENGTHS}
    rows = compare_calibrations(fitted, documents, queries, ids, show_progress_bar=show_progress_bar).rows
    return {amount: rows[f"{amount}"] for amount in STRENGTHS}


def measure_halves(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    ids: Mapping[str, Tensor] | None = None,
    *,
    asked: Mapping[str, Tensor] | None = None,
    options: CalibrationOptions | None = None,
    **how: Any,
) -> list[Compared]:
    """Fit a calibration on one half of the texts and measure it on the other, and the other way round.

    How far the two lie apart, and from a fit on all texts, says how sure the measures are. The arguments are those of
    `compare_strengths`, and `strength`. Nothing is measured where a language has fewer than 20 texts.
    """
    if min(map(len, documents.values())) < _TO_HALVE:
        return []
    few = replace(options or CalibrationOptions(), min_texts=2)
    found = []
    for first in (0, 1):
        own = [_half(side, first) for side in (documents, asked)]
        rest = [_half(side, 1 - first) for side in (documents, queries, ids)]
        layers = fit_role_calibrations(own[0] or {}, own[1], options=few, **how)
        found.append(compare_calibrations({"half": layers}, rest[0] or {}, *rest[1:]).rows["half"])
    return found


def _half(side: Mapping[str, Tensor] | None, first: int) -> dict[str, Tensor] | None:
    """Every second row of each language, from the first or the second one."""
    return None if side is None else {code: rows[first::2] for code, rows in side.items()}


def usual_calibrations(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    *,
    options: CalibrationOptions | None = None,
    show_progress_bar: bool = False,
) -> dict[str, RoleCalibrations]:
    """Fit the calibrations that suit search: LSAR, shift, and shift and CORAL.

    LSAR and shift are also fitted for queries only; with embeddings of queries, so are those with maps of their own for
    queries. Of the options, `keep_mean` and `lsar_rank` keep their defaults. With more languages than dimensions, LSAR
    would leave nothing, and is left out.

    Returns:
        Name -> calibration.
    """
    plain = replace(options or CalibrationOptions(), keep_mean=None, lsar_rank=None)
    dimension = next(iter(documents.values())).shape[1]
    compared = [steps for steps in _COMPARED if steps != ("lsar",) or len(documents) <= dimension]
    jobs = [(steps, False, False) for steps in compared]
    if queries is not None:
        jobs += [(steps, True, False) for steps in compared]
    jobs += [(steps, False, True) for steps in compared if set(steps) <= {*QUERY_STEPS}]
    fitted = {}
    for steps, apart, queries_only in tqdm(
        jobs, desc="fitting calibrations to compare with", unit="calibration", disable=not show_progress_bar
    ):
        fitted[name_of(steps, by_role=apart, queries_only=queries_only)] = fit_role_calibrations(
            documents, queries if apart else None, steps=steps, options=plain, queries_only=queries_only
        )
    return fitted


def name_of(
    steps: Any,
    strength: float = 1.0,
    keep_mean: float | None = None,
    *,
    by_role: bool = False,
    queries_only: bool = False,
) -> str:
    """A calibration in words, such as "shift coral, strength 0.75, queries apart"."""
    parts = [" ".join(steps)]
    parts += [f"strength {strength:g}"] if strength != 1 else []
    parts += [f"keep_mean {keep_mean:g}"] if keep_mean is not None else []
    parts += ["queries apart"] if by_role else []
    return ", ".join([*parts, "queries only"] if queries_only else parts)
