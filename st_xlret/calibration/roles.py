"""Calibrations of queries and documents apart, for encoders that embed them differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from st_xlret.calibration.fit import common_mean, layer_of, moment_step
from st_xlret.calibration.inputs import CalibrationOptions, check_embeddings, check_steps
from st_xlret.calibration.statistics import Affine, moments_of
from st_xlret.modules.calibration_layer import CalibrationLayer


class RoleCalibrations(NamedTuple):
    """A calibration for each role of a text.

    Attributes:
        document: The one of documents.
        query: The one of queries.
    """

    document: CalibrationLayer
    query: CalibrationLayer


def fit_role_calibrations(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor],
    *,
    steps: Sequence[str] = ("lsar",),
    pivot: str = "en",
    strength: float | Mapping[str, float] = 1.0,
    options: CalibrationOptions | None = None,
) -> RoleCalibrations:
    """Fit a calibration to documents and one to queries, each on the embeddings of its own role.

    An encoder with prompts, such as E5, embeds a text differently as a query and as a document, and the difference
    depends on the language. Each role gets the maps of [`fit_calibration`][st_xlret.fit_calibration], except that what
    `keep_mean` keeps of the common mean is that of the documents for both roles. Queries thus keep their offset from
    documents: to centre them on their own mean costs accuracy. `"to_pivot"` leaves queries as they are.

    Args:
        documents: Language -> (n, d) embeddings of texts as documents.
        queries: Language -> (m, d) embeddings of texts as queries: real questions without labels, or the documents'
            texts embedded with the prompt for queries. A language that has none gets the map of its documents.
        steps: Any of the steps of [`fit_calibration`][st_xlret.fit_calibration] except `"rotate"`.
        pivot: The language of texts that name none, and that of `"to_pivot"`.
        strength: In [0, 1], for all steps or by step.
        options: Further options.

    Returns:
        Both calibrations, to be passed to [`export`][st_xlret.export].

    Raises:
        ValueError: If `"rotate"` is among the steps, the queries have no language of the documents, fewer than two
            languages for `"lsar"`, or what [`fit_calibration`][st_xlret.fit_calibration] raises.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> documents = {"en": torch.randn(99, 4) + 3, "fr": torch.randn(99, 4) - 5}
        >>> queries = {"en": torch.randn(60, 4) + 4, "fr": torch.randn(60, 4) - 2}
        >>> fitted = fit_role_calibrations(documents, queries, steps=["shift"])
        >>> means = [fitted.query.transform(rows, code).mean(dim=0) for code, rows in queries.items()]
        >>> round(float((means[0] - means[1]).norm()), 4)
        0.0
    """
    options = options or CalibrationOptions()
    strengths = check_steps(steps, strength)
    if "rotate" in strengths:
        raise ValueError("the step 'rotate' has no maps for queries of their own: fit it with fit_calibration")
    rows = check_embeddings(documents, pivot, options)
    both = {code: queries[code] for code in rows if code in queries}
    if len(both) < (2 if "lsar" in strengths else 1):
        known = ", ".join(queries) or "none"
        raise ValueError(
            f"the queries are in {known}, the documents in {', '.join(rows)}: too few languages are shared"
        )
    # The pivot of `check_embeddings` only has to be there: the queries' may have none of their own.
    asked = check_embeddings(both, next(iter(both)), options)
    moments = {code: moments_of(cloud, code, min_sentences=options.min_sentences) for code, cloud in rows.items()}
    of_queries = {code: moments_of(cloud, code, min_sentences=options.min_sentences) for code, cloud in asked.items()}
    identity = Affine.identity(len(moments[pivot].mean))
    maps, query_maps = dict.fromkeys(moments, identity), dict.fromkeys(of_queries, identity)
    for step, amount in strengths.items():
        common = common_mean(moments)
        additions = moment_step(step, moments, amount, options, pivot)
        if step == "to_pivot":
            query_additions = dict.fromkeys(of_queries, identity)
        else:
            query_additions = moment_step(step, of_queries, amount, options, pivot, common)
        maps = {code: maps[code].then(addition) for code, addition in additions.items()}
        query_maps = {code: query_maps[code].then(addition) for code, addition in query_additions.items()}
        moments = {code: moments[code].after(addition) for code, addition in additions.items()}
        of_queries = {code: of_queries[code].after(addition) for code, addition in query_additions.items()}
    if list(strengths) == ["lsar"]:  # one map for all languages
        query_maps = dict.fromkeys(maps, next(iter(query_maps.values())))
    return RoleCalibrations(
        layer_of(maps, strengths, pivot, options),
        layer_of({code: query_maps.get(code, maps[code]) for code in maps}, strengths, pivot, options),
    )
