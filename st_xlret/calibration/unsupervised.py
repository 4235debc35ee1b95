"""The search for a rotation without parallel sentences (Conneau et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration.adversarial import AdversarialOptions, adversarial_rotations
from st_xlret.calibration.rotation import (
    mean_csls_criterion,
    nearest_orthogonal,
    procrustes,
    rotation_agreement,
)
from st_xlret.search.neighbours import mutual_nearest_neighbours


@dataclass(frozen=True)
class RotationOptions:
    """Options of the search for a rotation without parallel sentences.

    Attributes:
        initial: Start of the refinement: "identity" (takes seconds; the spaces of one encoder are often nearly aligned
            after shift and scale), "adversarial" (takes about a minute per language on one core), or "both", between
            which the criterion chooses.
        refinements: Rounds of matching by CSLS and Procrustes on the matches.
        neighbours: k of CSLS.
        max_sentences: Maximum number of sentences drawn from each language. The time grows with its square.
        validation_fraction: Fraction of the sentences on which candidates are compared and which are not used in the
            fit. On its own matches, Procrustes always looks better than what it started from.
        min_agreement: A rotation is used only if the same search on two disjoint halves of the sentences gives two
            rotations that agree at least this well (see `rotation_agreement`); -1 accepts all, 0 skips the check.
        prior: Weight of staying near the current map (see `procrustes`). The fit applies it with pairs too.
        adversarial: Options of the adversarial stage.

    Raises:
        ValueError: If an option is out of its range.
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
        """Check the ranges."""
        if self.initial not in ("identity", "adversarial", "both"):
            raise ValueError(f"initial must be 'identity', 'adversarial' or 'both', got {self.initial!r}")
        if not -1 <= self.min_agreement <= 1:
            raise ValueError(f"min_agreement must lie between -1 and 1, got {self.min_agreement}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}")
        if self.refinements < 0 or self.neighbours < 1 or self.max_sentences < 4:
            raise ValueError(
                "refinements must be at least 0, neighbours at least 1 and max_sentences at least 4, got "
                f"{self.refinements}, {self.neighbours} and {self.max_sentences}"
            )


class Candidate(NamedTuple):
    """A rotation that was considered.

    Attributes:
        name: Origin of the rotation, for example "identity" or "adversarial, refined 2x".
        criterion: `mean_csls_criterion` on held-out sentences.
        rotation: W (d, d), float64.
        agreement: How well two halves of the sentences agree on it (see `RotationOptions`); None if this was not
            checked.
        trusted: Whether it may be used.
    """

    name: str
    criterion: float
    rotation: Tensor
    agreement: float | None = None
    trusted: bool = True


def unsupervised_rotation(
    source: Tensor,
    target: Tensor,
    options: RotationOptions | None = None,
    *,
    seed: int = 0,
    show_progress: bool = False,
) -> list[Candidate]:
    """Find the rotation of one language's embeddings onto another's without any pairs (Conneau et al. 2018).

    Both the identity and the result of the adversarial stage are refined by Procrustes on the mutual nearest neighbours
    under CSLS. Every matrix on the way is a candidate, the identity too, and the criterion on held-out sentences ranks
    them.

    The criterion alone cannot be trusted here. For one encoder and documents on different topics it rises when topics
    are turned onto each other while translations drift apart: on static embeddings of novels and articles, retrieval
    fell from 47 to 25 %. A start whose search on two halves of the sentences gives two different rotations is therefore
    dropped, and the identity remains.

    Args:
        source: Embeddings (S, d) with their mean near the origin (shift first).
        target: Embeddings (T, d), likewise.
        options: Options of the search.
        seed: Seed. Equal seeds give equal results on one machine.
        show_progress: Show a progress bar over the adversarial stage.

    Returns:
        All candidates, the best first and those of dropped starts last.

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

    def start(initial: str, part: slice) -> Tensor:
        if initial == "identity":
            return unchanged
        trained = adversarial_rotations(
            fit_source[part],
            fit_target[part],
            options.adversarial,
            seed=seed + (part.start or 0),
            show_progress=show_progress,
        )
        return max((nearest_orthogonal(rotation) for rotation in trained), key=criterion)

    def refined(rotation: Tensor, part: slice) -> list[Tensor]:
        return [rotation, *_refinements(rotation, fit_source[part], fit_target[part], options)]

    everything, halves = slice(None), (slice(0, None, 2), slice(1, None, 2))
    unchanged = torch.eye(source.shape[1], dtype=torch.float64, device=fit_source.device)
    identity = Candidate("identity", criterion(unchanged), unchanged)
    candidates = [identity]
    for initial in ("identity", "adversarial"):
        if options.initial not in (initial, "both"):
            continue
        # Where halves are to agree, the first one's start serves the whole: training is what takes the time.
        first = start(initial, halves[0] if options.min_agreement else everything)
        path = [
            Candidate(f"{initial}, refined {rounds}x" if rounds else initial, criterion(rotation), rotation)
            for rounds, rotation in enumerate(refined(first, everything))
        ]
        path = [entry for entry in path if entry.name != "identity"]
        if options.min_agreement and any(entry.criterion > identity.criterion for entry in path):
            second = start(initial, halves[1])
            agreement = rotation_agreement(refined(first, halves[0])[-1], refined(second, halves[1])[-1])
            trusted = agreement >= options.min_agreement
            path = [entry._replace(agreement=agreement, trusted=trusted) for entry in path]
        candidates += path
    return sorted(candidates, key=lambda entry: (not entry.trusted, -entry.criterion))


def describe_candidates(candidates: Sequence[Candidate]) -> str:
    """Describe in one line which candidate was chosen and which were not.

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


def _refinements(start: Tensor, source: Tensor, target: Tensor, options: RotationOptions) -> Iterator[Tensor]:
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


def _draw(rows: Tensor, options: RotationOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw unit-length rows to fit on, and rows to hold out, with a seed."""
    if len(rows) < 4:
        raise ValueError(f"a rotation needs at least 4 sentences of each language, got {len(rows)}")
    order = torch.randperm(len(rows), generator=generator)[: options.max_sentences]
    held = max(1, int(options.validation_fraction * len(order)))
    drawn = F.normalize(rows[order.to(rows.device)].float(), dim=1)
    return drawn[held:], drawn[:held]
