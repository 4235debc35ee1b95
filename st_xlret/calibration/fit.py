"""From embeddings of several languages to a `CalibrationLayer`."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.rotation import (
    RotationOptions,
    describe_candidates,
    partial_rotation,
    procrustes,
    unsupervised_rotation,
)
from st_xlret.calibration.steps import (
    Affine,
    Moments,
    coral_map,
    lir_map,
    lsar_map,
    moments_of,
    scale_map,
    shift_map,
)
from st_xlret.modules.calibration_layer import CalibrationLayer

logger = logging.getLogger(__name__)

STEPS = ("shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot")
"""The steps of a calibration, the first three in the order of the CCP paper."""

SEARCH_STEPS = frozenset({"lsar", "shift", "coral", "to_pivot"})
"""The steps that suit search. Where there are no others, a quarter of the mean of all languages is kept by default."""

QUERY_STEPS = ("lsar", "shift")
"""The steps that may map queries alone, while documents stay as they are."""

_KEPT_BY_DOCUMENTS, _KEPT_BY_QUERIES = 0.25, 0.5

Pairs = Mapping[str, tuple[Tensor, Tensor]]
"""Language -> embeddings of its sentences (n, d) and of their translations into the pivot (n, d)."""


@dataclass(frozen=True)
class CalibrationOptions:
    """Options of the steps.

    Attributes:
        keep_mean: Fraction of the mean of all languages that `"shift"` and `"lsar"` keep. None keeps 0.25 where all
            steps suit search (`SEARCH_STEPS`), 0.5 where queries alone are mapped, and else what the papers keep:
            nothing with `"shift"`, all of it with `"lsar"`.
        lir_components: Number of principal components that LIR removes from each language.
        lsar_rank: Number of dimensions that LSAR removes; None for all in which the languages' means differ.
        coral_ridge: Variance that CORAL adds to every direction, relative to the average one. Less text needs more.
        coral_shrink: How far CORAL first draws the covariance of a language to that of all, from 0 to 1. With 0, what
            the texts of a language are about is taken for the language.
        scale_by: Divide by standard deviations, or by variances as the paper words it.
        rotation: How a rotation is found without pairs. Its `prior` applies with pairs too.
        min_texts: Minimum number of texts of a language.
    """

    keep_mean: float | None = None
    lir_components: int = 1
    lsar_rank: int | None = None
    coral_ridge: float = 1.0
    coral_shrink: float = 0.5
    scale_by: Literal["std", "variance"] = "std"
    rotation: RotationOptions = field(default_factory=RotationOptions)
    min_texts: int = 50


class RoleCalibrations(NamedTuple):
    """A calibration for each role of a text: of documents, and of queries where they have one of their own."""

    document: CalibrationLayer
    query: CalibrationLayer | None = None

    @property
    def queries_only(self) -> bool:
        """Whether documents stay as they are."""
        return self.query is not None and not self.document.steps

    @property
    def strength(self) -> float:
        """How much of the calibration is done: 0 leaves all directions as they are."""
        return (self.query or self.document).strength


def fit_calibration(
    embeddings: Mapping[str, Tensor],
    *,
    steps: Sequence[str] = ("lsar",),
    pivot: str = "en",
    pairs: Pairs | None = None,
    strength: float = 1.0,
    seed: int = 0,
    options: CalibrationOptions | None = None,
    show_progress_bar: bool = False,
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
            calibration will be applied to: the output of `model.encode`, with its final normalisation if it has one.
        steps: Any of `STEPS`, each once. `("shift", "scale", "rotate")` is the paper's calibration.
        pivot: The language into whose space the others are rotated or moved, and of texts that name none. If it has no
            embeddings and no step needs them, the first language takes its place.
        pairs: Language -> row-aligned embeddings of its sentences and of their translations into the pivot. They are
            used by `"rotate"` only.
        strength: In [0, 1], of each step. 0 leaves the embeddings as they are.
        seed: Seed of the draws and of the adversarial stage.
        options: Further options.
        show_progress_bar: Show progress bars.

    Returns:
        The layer in float32 on the CPU. It is computed in float64.

    Raises:
        ValueError: If a step is unknown, the pivot has no embeddings, a language has too few texts (the message gives
            its count; a rotation needs at least as many as dimensions), dimensions differ, or a strength is outside
            [0, 1].

    Example:
        >>> _ = torch.manual_seed(0)
        >>> clouds = {"en": torch.randn(100, 4) + 3, "fr": torch.randn(100, 4) - 5}
        >>> layer = fit_calibration(clouds)
        >>> means = [layer.transform(rows).mean(dim=0) for rows in clouds.values()]
        >>> round(float((means[0] - means[1]).norm()), 4)
        0.0
    """
    how: Any = {"pairs": pairs, "strength": strength, "seed": seed, "options": options}
    *_, layer = fit_calibration_stages(
        embeddings, steps=steps, pivot=pivot, show_progress_bar=show_progress_bar, **how
    ).values()
    return layer


def fit_calibration_stages(
    embeddings: Mapping[str, Tensor],
    *,
    steps: Sequence[str] = ("shift", "scale", "rotate"),
    pivot: str = "en",
    pairs: Pairs | None = None,
    strength: float = 1.0,
    seed: int = 0,
    options: CalibrationOptions | None = None,
    show_progress_bar: bool = False,
) -> dict[str, CalibrationLayer]:
    """Fit a calibration and return a layer after each step: "+ shift", "+ scale", "+ rotate".

    It takes no longer than fitting the last layer alone. Arguments and errors are those of `fit_calibration`; the steps
    are the paper's by default.

    Returns:
        Step -> the layer of all steps up to it, in the order of the steps.
    """
    found = _stages(embeddings, None, steps, pivot, pairs, strength, seed, options, show_progress_bar)
    return {step: layers.document for step, layers in found}


def fit_role_calibrations(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    *,
    steps: Sequence[str] = ("lsar",),
    pivot: str = "en",
    strength: float = 1.0,
    options: CalibrationOptions | None = None,
    queries_only: bool = False,
) -> RoleCalibrations:
    """Fit a calibration to documents and one to queries, each on the embeddings of its own role.

    An encoder with prompts, such as E5, embeds a text differently as a query and as a document, and the difference
    depends on the language. Each role gets the maps of [`fit_calibration`][st_xlret.fit_calibration], except that what
    `keep_mean` keeps of the common mean is that of the documents for both roles. Queries thus keep their offset from
    documents: to centre them on their own mean costs accuracy. `"to_pivot"` leaves queries as they are.

    With `queries_only`, an index of documents need not be touched. LSAR is a projection P, and (Pq)·(Pd) = (Pq)·d: a
    mapped query ranks documents as they are like mapped ones, up to the lengths of the mapped documents.

    Args:
        documents: Language -> (n, d) embeddings of texts as documents.
        queries: Language -> (m, d) embeddings of texts as queries: real questions without labels, or the documents'
            texts embedded with the prompt for queries. A language that has none gets the map of its documents. None
            gives queries the maps of documents.
        steps: As in [`fit_calibration`][st_xlret.fit_calibration]; with `queries` all but `"rotate"`, with
            `queries_only` those of `QUERY_STEPS`.
        pivot: As in `fit_calibration`.
        strength: In [0, 1], of each step.
        options: Further options.
        queries_only: Map queries alone. The layer of documents is then the identity.

    Raises:
        ValueError: If `"rotate"` is among the steps, or another one cannot map queries alone, the queries have no
            language of the documents, fewer than two languages for `"lsar"`, or as
            [`fit_calibration`][st_xlret.fit_calibration].

    Example:
        >>> _ = torch.manual_seed(0)
        >>> documents = {"en": torch.randn(99, 4) + 3, "fr": torch.randn(99, 4) - 5}
        >>> queries = {"en": torch.randn(60, 4) + 4, "fr": torch.randn(60, 4) - 2}
        >>> fitted = fit_role_calibrations(documents, queries, steps=["shift"])
        >>> means = [fitted.query.transform(rows, code).mean(dim=0) for code, rows in queries.items()]
        >>> round(float((means[0] - means[1]).norm()), 4)
        0.0
    """
    options = options or CalibrationOptions()
    if queries_only:
        if others := [step for step in steps if step not in QUERY_STEPS]:
            raise ValueError(
                f"queries_only: the step {others[0]!r} moves documents; {' and '.join(QUERY_STEPS)} map queries alone"
            )
        kept = _KEPT_BY_QUERIES if options.keep_mean is None else options.keep_mean
        options = replace(options, keep_mean=kept)
    *_, (_, layers) = _stages(documents, queries, steps, pivot, None, strength, 0, options, False)
    if not queries_only:
        return layers
    fitted = layers.query or layers.document
    return RoleCalibrations(CalibrationLayer(fitted.dimension, fitted.languages, pivot=fitted.pivot), fitted)


def _stages(
    embeddings: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None,
    steps: Sequence[str],
    pivot: str,
    pairs: Pairs | None,
    strength: float,
    seed: int,
    options: CalibrationOptions | None,
    show_progress_bar: bool,
) -> Iterator[tuple[str, RoleCalibrations]]:
    """Each step, and the layers of all steps up to it."""
    options = options or CalibrationOptions()
    _check_steps(steps, strength)
    if pivot not in embeddings and embeddings and not {"rotate", "to_pivot"} & set(steps):
        pivot = next(iter(embeddings))
    rows = _check_embeddings(embeddings, pivot)
    parallel = _check_pairs(pairs or {}, rows, pivot)
    if "rotate" in steps and strength:
        _check_rotation(rows, parallel, pivot, options)
    clouds = {"document": rows}
    if queries is not None:
        clouds["query"] = _check_queries(queries, rows, steps)
    moments = {
        role: {
            code: moments_of(cloud, code, min_texts=options.min_texts)
            for code, cloud in tqdm(found.items(), desc="means and spreads", disable=not show_progress_bar, leave=False)
        }
        for role, found in clouds.items()
    }
    identity = Affine.identity(len(moments["document"][pivot].mean))
    maps = {role: dict.fromkeys(found, identity) for role, found in clouds.items()}
    keep_mean = options.keep_mean
    if keep_mean is None and set(steps) <= SEARCH_STEPS:
        keep_mean = _KEPT_BY_DOCUMENTS
    notes: dict[str, str] = {}
    for number, step in enumerate(steps, start=1):
        common = _mean_of_all(moments["document"])
        for role, own in moments.items():
            if step == "rotate":
                turned = _rotations(
                    rows, maps[role], parallel, pivot, strength, seed, options.rotation, show_progress_bar
                )
                additions = {code: addition for code, (addition, _) in turned.items()}
                notes |= {f"rotate {code}": note for code, (_, note) in turned.items() if note}
            elif step == "to_pivot" and role == "query":
                additions = dict.fromkeys(own, identity)
            else:
                additions = _moment_step(step, own, strength, options, pivot, keep_mean, common)
            maps[role] = {code: maps[role][code].then(addition) for code, addition in additions.items()}
            moments[role] = {code: own[code].after(addition) for code, addition in additions.items()}
        how: Any = {"steps": list(steps[:number]), "strength": float(strength), "pivot": pivot}
        of_queries = None
        if queries is not None:
            found = maps["query"]
            # LSAR alone has one map for all languages; else a language without queries gets the map of its documents.
            rest = dict.fromkeys(rows, next(iter(found.values()))) if how["steps"] == ["lsar"] else maps["document"]
            of_queries = _layer(rest | found, **how)
        yield step, RoleCalibrations(_layer(maps["document"], **how, notes=notes), of_queries)


def _layer(maps: Mapping[str, Affine], *, steps: list[str], pivot: str, **about: Any) -> CalibrationLayer:
    """A layer of each language's map after some steps: one map for all if the only step is LSAR."""
    agnostic = steps == ["lsar"]
    languages = () if agnostic else tuple(maps)
    layer = CalibrationLayer(len(maps[pivot].bias), languages, pivot=pivot, steps=steps, **about)
    kept = [maps[pivot]] if agnostic else list(maps.values())
    layer.weight.copy_(torch.stack([entry.weight for entry in kept]))
    layer.bias.copy_(torch.stack([entry.bias for entry in kept]))
    return layer


def _mean_of_all(moments: Mapping[str, Moments]) -> Tensor:
    """The mean (d,) of all languages, with equal weights."""
    return torch.stack([entry.mean for entry in moments.values()]).mean(dim=0)


def _moment_step(
    step: str,
    moments: Mapping[str, Moments],
    amount: float,
    options: CalibrationOptions,
    pivot: str,
    keep_mean: float | None,
    common: Tensor,
) -> dict[str, Affine]:
    """The maps of a step that means and covariances determine; shift and LSAR keep a part of the mean `common`."""
    if step == "lsar":
        kept = 1.0 if keep_mean is None else keep_mean
        shared = lsar_map([entry.mean for entry in moments.values()], options.lsar_rank, amount, kept, common)
        return dict.fromkeys(moments, shared)
    if step == "shift":
        back = Affine.translation(amount * (_mean_of_all(moments) - (1 - (keep_mean or 0.0)) * common))
        return {code: shift_map(entry, amount).then(back) for code, entry in moments.items()}
    if step == "to_pivot":
        goal = moments[pivot].mean
        return {code: Affine.translation(amount * (goal - entry.mean)) for code, entry in moments.items()}
    if step == "coral":
        covariance = torch.stack([entry.covariance for entry in moments.values()]).mean(dim=0)
        how = (covariance, options.coral_ridge, options.coral_shrink, amount)
        return {code: coral_map(entry, *how) for code, entry in moments.items()}
    if step == "lir":
        return {code: lir_map(entry, options.lir_components, amount) for code, entry in moments.items()}
    return {code: scale_map(entry, code, amount, scale_by=options.scale_by) for code, entry in moments.items()}


def _rotations(
    rows: Mapping[str, Tensor],
    maps: Mapping[str, Affine],
    pairs: Pairs,
    pivot: str,
    amount: float,
    seed: int,
    options: RotationOptions,
    show_progress_bar: bool,
) -> dict[str, tuple[Affine, str]]:
    """A rotation into the pivot's space for every language, with a note, fitted on rows as the steps so far map."""
    dimension = len(maps[pivot].bias)
    rotations = {pivot: (Affine.identity(dimension), "")}
    pivot_rows = maps[pivot](draw_rows(rows[pivot], options.max_texts, seed))
    for code in tqdm([code for code in rows if code != pivot], desc="rotations", disable=not show_progress_bar):
        if amount == 0:
            rotation, note = torch.eye(dimension, dtype=torch.float64), "none: strength 0"
        elif code in pairs:
            own, other = pairs[code]
            rotation = procrustes(maps[code](own.double()), maps[pivot](other.double()), prior=options.prior)
            note = f"Procrustes on {len(own)} pairs"
        else:
            own_seed = seed + zlib.crc32(code.encode())
            own = maps[code](draw_rows(rows[code], options.max_texts, own_seed))
            how: Any = {"seed": own_seed, "show_progress_bar": show_progress_bar}
            candidates = unsupervised_rotation(own, pivot_rows, options, **how)
            rotation, note = candidates[0].rotation, describe_candidates(candidates)
        logger.info("rotation of %s into %s: %s", code, pivot, note)
        rotations[code] = Affine.linear(partial_rotation(rotation.cpu(), amount)), note
    return {code: rotations[code] for code in rows}


def draw_rows(rows: Tensor, size: int, seed: int) -> Tensor:
    """Draw at most `size` rows with a seed. If there are no more than that, return all of them in order."""
    if len(rows) <= size:
        return rows
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:size]
    return rows[drawn.to(rows.device)]


def _check_steps(steps: Sequence[str], strength: float) -> None:
    """Refuse unknown steps, and a strength beyond [0, 1]."""
    if isinstance(steps, str) or not steps:
        raise ValueError(f"steps must be a sequence out of {', '.join(STEPS)}, got {steps!r}")
    for step in steps:
        if step not in STEPS:
            raise ValueError(f"unknown calibration step {step!r}: choose from {', '.join(STEPS)}")
    if len(set(steps)) != len(steps):
        raise ValueError(f"each step can be taken once, got {list(steps)}")
    if not 0 <= strength <= 1:
        raise ValueError(f"strength must lie in [0, 1], got {strength}")


def _check_embeddings(embeddings: Mapping[str, Tensor], pivot: str) -> dict[str, Tensor]:
    """Embeddings as tensors of one width."""
    if pivot not in embeddings:
        known = ", ".join(embeddings) or "none"
        raise ValueError(f"no embeddings of the pivot language {pivot!r}: there are {known}")
    rows = {language: torch.as_tensor(cloud).detach() for language, cloud in embeddings.items()}
    widths = {language: cloud.shape[-1] for language, cloud in rows.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"embeddings of all languages must have one dimension, got {widths}")
    return rows


def _check_queries(
    queries: Mapping[str, Tensor], rows: Mapping[str, Tensor], steps: Sequence[str]
) -> dict[str, Tensor]:
    """The queries in languages of the documents."""
    if "rotate" in steps:
        raise ValueError("the step 'rotate' has no maps for queries of their own: fit it with fit_calibration")
    both = {code: queries[code] for code in rows if code in queries}
    if len(both) < (2 if "lsar" in steps else 1):
        known = ", ".join(queries) or "none"
        raise ValueError(
            f"the queries are in {known}, the documents in {', '.join(rows)}: too few languages are shared"
        )
    return _check_embeddings(both, next(iter(both)))


def _check_rotation(
    rows: Mapping[str, Tensor], pairs: Mapping[str, tuple[Tensor, Tensor]], pivot: str, options: CalibrationOptions
) -> None:
    """Refuse to fit a rotation of d dimensions to fewer than d texts without a prior: most of it is arbitrary."""
    others = set(rows) - {pivot}
    if options.rotation.prior > 0 or not others:
        return
    dimension, most = rows[pivot].shape[-1], options.rotation.max_texts
    counts = {language: (min(len(cloud), most), "texts") for language, cloud in rows.items()}
    counts |= {language: (len(own), "pairs") for language, (own, _) in pairs.items()}
    if others <= set(pairs):
        del counts[pivot]  # its own texts are not used then
    few = [f"{language!r} has {count} {kind}" for language, (count, kind) in counts.items() if count < dimension]
    if few:
        raise ValueError(
            f"a rotation in {dimension} dimensions needs at least {dimension} texts, or pairs, of each language: "
            f"{', '.join(few)}. Give more text or pairs, leave these languages or the step 'rotate' out, or keep the "
            "rotation near the identity by a prior: RotationOptions(prior=1.0)"
        )


def _check_pairs(pairs: Pairs, rows: Mapping[str, Tensor], pivot: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Pairs as tensors of the embeddings' width."""
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
        checked[language] = (own, other)
    return checked
