"""Orthogonal maps between the spaces of two languages, with and without parallel sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        min_agreement: A rotation is only taken if the same search on two disjoint halves of the sentences
            gives two that agree: the cosine between their differences from the identity must reach this. At
            0.5 they are as near to each other as to the identity. 0 skips the check.
        prior: Weight of staying where we are, see :func:`procrustes`.
        adversarial: Of the adversarial stage.
    """

    initial: Literal["identity", "adversarial", "both"] = "both"
    refinements: int = 5
    neighbours: int = 10
    max_sentences: int = 5000
    validation_fraction: float = 0.25
    min_agreement: float = 0.5
    prior: float = 0.0
    adversarial: AdversarialOptions = field(default_factory=AdversarialOptions)

    def __post_init__(self) -> None:
        """Check the values."""
        if self.initial not in ("identity", "adversarial", "both"):
            raise ValueError(f"initial must be 'identity', 'adversarial' or 'both', got {self.initial!r}")
        if not -1 <= self.min_agreement <= 1:
            raise ValueError(f"min_agreement must lie between -1 and 1, got {self.min_agreement}")
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
        agreement: What two halves of the sentences say of it, see :class:`RotationOptions`; ``None``: not
            asked.
        trusted: Whether it may be taken.
    """

    name: str
    criterion: float
    rotation: Tensor
    agreement: float | None = None
    trusted: bool = True


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

    The criterion alone is not to be trusted here: for one encoder and documents on different topics it rises
    by turning topics onto each other while translations drift apart (on static embeddings of novels and
    articles retrieval fell from 47 to 25 %). Hence a start whose search on two halves of the sentences gives
    two different rotations is dropped, and the identity stays.

    Args:
        source: (S, d) embeddings, mean near the origin (shift first).
        target: (T, d).
        options: Of the search.
        seed: Same seed, same result.
        show_progress: A bar over the adversarial stage.

    Returns:
        All candidates, best first; those of dropped starts last.

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

    def criterion(rotation: Tensor) -> float:
        mapped = held_source @ rotation.T.to(held_source)
        return mean_csls_criterion(mapped, held_target, options.neighbours)

    def search(initial: str, half: slice) -> list[Candidate]:
        clouds = fit_source[half], fit_target[half]
        start = identity.rotation
        if initial == "adversarial":
            trained = adversarial_rotations(
                *clouds, options.adversarial, seed=seed, show_progress=show_progress
            )
            start = max((nearest_orthogonal(rotation) for rotation in trained), key=criterion)
        found = [start, *_refined(start, *clouds, options)]
        names = [initial, *(f"{initial}, refined {count}x" for count in range(1, len(found)))]
        return [Candidate(name, criterion(w), w) for name, w in zip(names, found, strict=True)]

    unchanged = torch.eye(source.shape[1], dtype=torch.float64, device=fit_source.device)
    identity = Candidate("identity", criterion(unchanged), unchanged)
    candidates = [identity]
    for initial in ("identity", "adversarial"):
        if options.initial not in (initial, "both"):
            continue
        path = [entry for entry in search(initial, slice(None)) if entry.name != "identity"]
        if path and options.min_agreement and max(entry.criterion for entry in path) > identity.criterion:
            # Every other row: two draws that share no sentence.
            halves = [search(initial, slice(first, None, 2))[-1].rotation - unchanged for first in (0, 1)]
            agreement = _cosine(*halves)
            trusted = agreement >= options.min_agreement
            path = [entry._replace(agreement=agreement, trusted=trusted) for entry in path]
        candidates += path
    return sorted(candidates, key=lambda entry: (not entry.trusted, -entry.criterion))


def describe_candidates(candidates: Sequence[Candidate]) -> str:
    """What was chosen and what was not, in a line.

    Example:
        >>> stay = Candidate("identity", 0.31, torch.eye(2))
        >>> describe_candidates([stay, Candidate("identity, refined 1x", 0.33, torch.eye(2), 0.2, False)])
        'identity (criterion 0.310); dropped: identity, refined 1x (criterion 0.330, agreement 0.20)'
    """

    def describe(entry: Candidate) -> str:
        agreement = "" if entry.agreement is None else f", agreement {entry.agreement:.2f}"
        return f"{entry.name} (criterion {entry.criterion:.3f}{agreement})"

    best, *others = candidates
    parts = [describe(best)]
    if best.name != "identity":
        parts.append(f"instead of {describe(next(entry for entry in others if entry.name == 'identity'))}")
    dropped = [entry for entry in others if not entry.trusted]
    if dropped:
        parts.append(f"dropped: {describe(dropped[0])}")
    return "; ".join(parts)


def _refined(start: Tensor, source: Tensor, target: Tensor, options: RotationOptions) -> Iterator[Tensor]:
    rotation = start
    for _ in range(options.refinements):
        mapped = source @ rotation.T.to(source)
        matches = mutual_nearest_neighbours(mapped, target, options.neighbours)
        if not len(matches.source):
            return
        # The prior keeps near to where we are, so it is applied to the mapped rows and chained.
        step = procrustes(mapped[matches.source], target[matches.target], prior=options.prior)
        rotation = nearest_orthogonal(step @ rotation)
        yield rotation


def _cosine(one: Tensor, other: Tensor) -> float:
    lengths = float(one.norm() * other.norm())
    return float((one * other).sum()) / lengths if lengths else 1.0


def _draw(rows: Tensor, options: RotationOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Unit-length rows to fit on and rows held out, by a seeded draw."""
    if len(rows) < 4:
        raise ValueError(f"a rotation wants at least 4 sentences of each language, got {len(rows)}")
    order = torch.randperm(len(rows), generator=generator)[: options.max_sentences]
    held = max(1, int(options.validation_fraction * len(order)))
    drawn = F.normalize(rows[order.to(rows.device)].float(), dim=1)
    return drawn[held:], drawn[:held]
