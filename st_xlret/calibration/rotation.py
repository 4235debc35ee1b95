"""Orthogonal maps between the spaces of two languages, with and without parallel sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration.adversarial import AdversarialOptions, adversarial_rotations
from st_xlret.search.neighbours import csls_nearest, mutual_nearest_neighbours


@dataclass(frozen=True)
class RotationOptions:
    """How a rotation is found without parallel sentences.

    Attributes:
        initial: Where refinement starts: ``"identity"`` (one encoder's spaces are often nearly aligned once
            shifted and scaled), ``"adversarial"``, or ``"both"``, of which the criterion chooses.
        refinements: Rounds of matching by CSLS and Procrustes on the matches.
        neighbours: k of CSLS.
        max_sentences: Sentences drawn from each language; time grows with the square.
        validation_fraction: Share of them on which candidates are compared and never fitted: on its own
            matches Procrustes would always look better than what it started from.
        prior: Weight of staying where we are, see :func:`procrustes`.
        adversarial: Of the adversarial stage.
    """

    initial: Literal["identity", "adversarial", "both"] = "both"
    refinements: int = 5
    neighbours: int = 10
    max_sentences: int = 5000
    validation_fraction: float = 0.25
    prior: float = 0.0
    adversarial: AdversarialOptions = field(default_factory=AdversarialOptions)

    def __post_init__(self) -> None:
        """Check the values."""
        if self.initial not in ("identity", "adversarial", "both"):
            raise ValueError(f"initial must be 'identity', 'adversarial' or 'both', got {self.initial!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}")
        if self.refinements < 0 or self.neighbours < 1 or self.max_sentences < 4:
            raise ValueError(
                "refinements >= 0, neighbours >= 1 and max_sentences >= 4 are wanted, got "
                f"{self.refinements}, {self.neighbours} and {self.max_sentences}"
            )


class Candidate(NamedTuple):
    """A rotation that was considered.

    Attributes:
        name: Where it comes from, such as ``"identity"`` or ``"adversarial, refined 2x"``.
        criterion: :func:`mean_csls_criterion` on held-out sentences.
        rotation: W (d, d), float64.
    """

    name: str
    criterion: float
    rotation: Tensor


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """The orthogonal matrix nearest to a square one (its polar factor), in float64.

    Example:
        >>> nearest_orthogonal(3 * torch.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    left, _, right = torch.linalg.svd(matrix.double())
    return left @ right


def procrustes(source: Tensor, target: Tensor, *, prior: float = 0.0) -> Tensor:
    """The orthogonal W for which ``source W^T`` is nearest to ``target`` in squared distance, in closed form.

    ``W = U V^T`` with ``U S V^T = SVD(target^T source)`` (Conneau et al. 2018, Eq. 2).

    Args:
        source: (n, d).
        target: (n, d), row-aligned.
        prior: Weight of the identity: adds ``prior`` times the mean singular value to the diagonal, so that
            directions of which the pairs say little are left alone. With fewer pairs than dimensions a trace
            of it is always added, since some directions would be rotated at random otherwise.

    Returns:
        (d, d) float64.

    Raises:
        ValueError: If the shapes differ, there is no pair, or ``prior`` is negative.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> procrustes(source, torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    if source.shape != target.shape or source.ndim != 2 or not len(source):
        raise ValueError(
            f"Procrustes wants row-aligned pairs, got {tuple(source.shape)} and {tuple(target.shape)}"
        )
    if prior < 0:
        raise ValueError(f"prior must not be negative, got {prior}")
    correlation = target.double().T @ source.double()
    singular = torch.linalg.svdvals(correlation)
    if singular[-1] <= 1e-12 * singular[0]:
        prior = max(prior, 1e-6)
    identity = torch.eye(len(correlation), dtype=correlation.dtype, device=correlation.device)
    return nearest_orthogonal(correlation + prior * singular.mean() * identity)


def partial_rotation(rotation: Tensor, strength: float) -> Tensor:
    """Part of the way from the identity to W: the orthogonal matrix nearest to ``(1 - s) I + s W``.

    Half-way to a plane rotation by an angle is the rotation by half of it. (For a reflection, which no path
    of rotations reaches, the step happens at s = 1/2.)

    Example:
        >>> quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> half = partial_rotation(quarter_turn, 0.5)
        >>> torch.allclose(half @ half, quarter_turn.double())
        True
    """
    identity = torch.eye(len(rotation), dtype=torch.float64, device=rotation.device)
    if strength == 0:
        return identity
    if strength == 1:
        return rotation.double()
    return nearest_orthogonal((1 - strength) * identity + strength * rotation.double())


def mean_csls_criterion(source: Tensor, target: Tensor, neighbours: int = 10) -> float:
    """Mean cosine of source rows to the target rows that CSLS matches them with: higher is better aligned.

    The unsupervised criterion of Conneau et al. 2018, section 3.3: it needs no pairs and follows translation
    accuracy.

    Args:
        source: (S, d), already mapped.
        target: (T, d).
        neighbours: k of CSLS.

    Example:
        >>> mean_csls_criterion(torch.eye(3), torch.eye(3).flip(0), neighbours=1)
        1.0
    """
    return float(csls_nearest(source, target, neighbours)[1].mean())


def unsupervised_rotation(
    source: Tensor,
    target: Tensor,
    options: RotationOptions | None = None,
    *,
    seed: int = 0,
    show_progress: bool = False,
) -> list[Candidate]:
    """Find the rotation of one language's cloud onto another's without any pairs (Conneau et al. 2018).

    Identity and adversarial start, each refined by Procrustes on the mutual nearest neighbours under CSLS.
    Every matrix on the way is a candidate, the identity too, and the criterion on held-out sentences ranks
    them.

    Args:
        source: (S, d) embeddings, mean near the origin (shift first).
        target: (T, d).
        options: Of the search.
        seed: Same seed, same result.
        show_progress: A bar over the adversarial stage.

    Returns:
        All candidates, best first.

    Raises:
        ValueError: If a side has fewer than 4 rows.

    Example:
        >>> rows = torch.randn(80, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 1.0])
        >>> options = RotationOptions(initial="identity", refinements=1)
        >>> unsupervised_rotation(rows, rows, options)[0].rotation.round().abs().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    options = options or RotationOptions()
    generator = torch.Generator().manual_seed(seed)
    fit_source, held_source = _draw(source, options, generator)
    fit_target, held_target = _draw(target, options, generator)

    def candidate(name: str, rotation: Tensor) -> Candidate:
        mapped = held_source @ rotation.T.to(held_source)
        return Candidate(name, mean_csls_criterion(mapped, held_target, options.neighbours), rotation)

    def refined(start: Candidate) -> Iterator[Candidate]:
        rotation = start.rotation
        for round_number in range(1, options.refinements + 1):
            mapped = fit_source @ rotation.T.to(fit_source)
            matches = mutual_nearest_neighbours(mapped, fit_target, options.neighbours)
            if not len(matches.source):
                return
            # The prior keeps near to where we are, so it is applied to the mapped rows and chained.
            step = procrustes(mapped[matches.source], fit_target[matches.target], prior=options.prior)
            rotation = nearest_orthogonal(step @ rotation)
            yield candidate(f"{start.name}, refined {round_number}x", rotation)

    identity = torch.eye(source.shape[1], dtype=torch.float64, device=fit_source.device)
    candidates = [candidate("identity", identity)]
    if options.initial in ("identity", "both"):
        candidates += refined(candidates[0])
    if options.initial in ("adversarial", "both"):
        trained = adversarial_rotations(
            fit_source, fit_target, options.adversarial, seed=seed, show_progress=show_progress
        )
        stages = [candidate("adversarial", nearest_orthogonal(rotation)) for rotation in trained]
        best_stage = max(stages, key=lambda stage: stage.criterion)
        candidates += [best_stage, *refined(best_stage)]
    return sorted(candidates, key=lambda entry: -entry.criterion)


def _draw(rows: Tensor, options: RotationOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Unit-length rows to fit on and rows held out, by a seeded draw."""
    if len(rows) < 4:
        raise ValueError(f"a rotation wants at least 4 sentences of each language, got {len(rows)}")
    order = torch.randperm(len(rows), generator=generator)[: options.max_sentences]
    held = max(1, int(options.validation_fraction * len(order)))
    drawn = F.normalize(rows[order.to(rows.device)].float(), dim=1)
    return drawn[held:], drawn[:held]
