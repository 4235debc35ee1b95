"""Orthogonal maps between the spaces of two languages: from pairs, or without any (Conneau et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from st_xlret.search import csls_nearest, mutual_nearest_neighbours

_MOST_OF_THE_WAY = 0.75


@dataclass(frozen=True)
class AdversarialOptions:
    """Options of the adversarial training, by SGD.

    The defaults are those of Conneau et al. (2018, section 3.2) except for a smaller discriminator (`hidden` is 2,048
    there), far fewer steps and, to make up for that, a higher learning rate of the rotation (0.1 there).
    `beta` is the strength of the pull towards orthogonal matrices: `W <- (1 + beta) W - beta (W W^T) W`. Each epoch
    yields a candidate rotation.
    """

    epochs: int = 10
    steps_per_epoch: int = 400
    discriminator_steps: int = 2
    batch_size: int = 32
    hidden: int = 128
    learning_rate: float = 0.1
    rotation_learning_rate: float = 1.0
    learning_rate_decay: float = 0.95
    input_dropout: float = 0.1
    smoothing: float = 0.2
    beta: float = 0.01


@dataclass(frozen=True)
class RotationOptions:
    """Options of the search for a rotation without parallel sentences.

    Attributes:
        initial: Start of the refinement: "identity" (seconds), "adversarial" (about a minute per language on one
            core), or "both", between which the criterion chooses.
        refinements: Rounds of matching by CSLS and Procrustes on the matches.
        neighbours: k of CSLS.
        max_texts: Maximum number of texts drawn from each language. The time grows with its square.
        validation_fraction: Fraction of the texts on which candidates are compared, and which are not fitted to.
        min_agreement: A rotation is used only if the same search on two disjoint halves of the texts gives two
            rotations that agree at least this well (see `rotation_agreement`), and if the criterion rises three
            quarters of the way from the identity's to that of a language matched with itself. 0 skips both checks.
            Few texts in many dimensions lower the agreement of right rotations, too: planted ones of 1 190 sentences in
            64 dimensions had 0.53 to 0.64, and wrong ones of 300 noisy texts 0.57 and 0.59. 0.5 takes both kinds.
        prior: Weight of staying near the current map (see `procrustes`). The fit applies it with pairs too.
        adversarial: Options of the adversarial stage.
    """

    initial: Literal["identity", "adversarial", "both"] = "both"
    refinements: int = 5
    neighbours: int = 10
    max_texts: int = 5000
    validation_fraction: float = 0.25
    min_agreement: float = 0.8
    prior: float = 0.0
    adversarial: AdversarialOptions = field(default_factory=AdversarialOptions)

    def __post_init__(self) -> None:
        if self.initial not in ("identity", "adversarial", "both"):
            raise ValueError(f"initial must be 'identity', 'adversarial' or 'both', got {self.initial!r}")
        if not 0 <= self.min_agreement <= 1:
            raise ValueError(f"min_agreement must lie between 0 and 1, got {self.min_agreement}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}")
        if self.refinements < 0 or self.neighbours < 1 or self.max_texts < 4:
            raise ValueError(
                "refinements must be at least 0, neighbours at least 1 and max_texts at least 4, got "
                f"{self.refinements}, {self.neighbours} and {self.max_texts}"
            )


class Candidate(NamedTuple):
    """A rotation that was considered.

    Its name is its origin, for example "adversarial, refined 2x"; the criterion is `mean_csls_criterion` on held-out
    texts; agreement is that of two halves of the texts, None if it was not checked; one not trusted is not used.
    """

    name: str
    criterion: float
    rotation: Tensor
    agreement: float | None = None
    trusted: bool = True


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """Compute the orthogonal matrix nearest to a square one (its polar factor), in float64.

    Example:
        >>> nearest_orthogonal(3 * torch.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    left, _, right = torch.linalg.svd(matrix.double())
    return left @ right


def procrustes(source: Tensor, target: Tensor, *, prior: float = 0.0) -> Tensor:
    """Compute the orthogonal W for which `source W^T` is nearest to `target` in squared distance, in closed form.

    The solution is `W = U V^T` with `U S V^T = SVD(target^T source)` (Conneau et al. 2018, Eq. 2).

    Args:
        source: Rows (n, d).
        target: Rows (n, d), aligned with `source`.
        prior: Weight of the identity. The mean singular value times `prior` is added to the diagonal: directions about
            which the pairs say little stay as they are. If there are fewer pairs than dimensions, a small weight is
            always added, since some directions would be rotated at random otherwise.

    Raises:
        ValueError: If the shapes differ, there is no pair, or `prior` is negative.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> procrustes(source, torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    if source.shape != target.shape or source.ndim != 2 or not len(source):
        raise ValueError(
            f"Procrustes needs row-aligned pairs, got shapes {tuple(source.shape)} and {tuple(target.shape)}"
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
    """Go part of the way from the identity to W: the orthogonal matrix nearest to `(1 - s) I + s W`, float64.

    Half of a plane rotation is the rotation by half of its angle. (A reflection, which no path of rotations reaches,
    switches at s = 1/2.)

    Example:
        >>> quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> half = partial_rotation(quarter_turn, 0.5)
        >>> torch.allclose(half @ half, quarter_turn.double())
        True
    """
    identity = torch.eye(len(rotation), dtype=torch.float64, device=rotation.device)
    return nearest_orthogonal((1 - strength) * identity + strength * rotation.double())


def rotation_agreement(one: Tensor, other: Tensor) -> float:
    """Measure what two rotations have in common beyond the identity: the cosine of their parts off it.

    The part of W off the identity is `W - (tr W / d) I`. Rotations that were fitted to noise give about 0 (0.1 for
    static embeddings of unrelated documents in two languages), and rotations that follow a true one give nearly 1.

    It is 1 if either is the identity.

    Example:
        >>> turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
        >>> round(rotation_agreement(turn, turn), 6), round(rotation_agreement(turn, turn.T), 6)
        (1.0, -1.0)
    """
    parts = [matrix - matrix.diagonal().mean() * torch.eye(len(matrix)).to(matrix) for matrix in (one, other)]
    lengths = float(parts[0].norm() * parts[1].norm())
    return float((parts[0] * parts[1]).sum()) / lengths if lengths else 1.0


def mean_csls_criterion(source: Tensor, target: Tensor, neighbours: int = 10) -> float:
    """Mean cosine of the source rows to the target rows that CSLS matches them with.

    It is the unsupervised criterion of Conneau et al. (2018, section 3.3): it needs no pairs and follows translation
    accuracy. Higher is better between rotations of the same rows.

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
    show_progress_bar: bool = False,
) -> list[Candidate]:
    """Find the rotation of one language's embeddings onto another's without any pairs (Conneau et al. 2018).

    Both the identity and the result of the adversarial stage are refined by Procrustes on the mutual nearest neighbours
    under CSLS. Every matrix on the way is a candidate, the identity too, and the criterion on held-out texts ranks
    them.

    The criterion alone cannot be trusted. For one encoder and documents on different topics it rises when topics are
    turned onto each other while translations drift apart: on static embeddings of novels and articles, retrieval fell
    from 47 to 25 %. Two checks refuse what cannot be verified, and the identity remains. First, two halves of the texts
    must give nearly the same rotation. Second, the criterion must come three quarters of the way from the identity's to
    that of a language whose texts are matched with other texts of its own: a search that ends in a wrong optimum is as
    stable as one that ends in the right one, but its matches stay far from each other.

    Args:
        source: Embeddings (S, d) with their mean near the origin (shift first).
        target: Embeddings (T, d), likewise.
        options: Options of the search.
        seed: Seed. Equal seeds give equal results on one machine.
        show_progress_bar: Show a progress bar over the adversarial stage.

    Returns:
        All candidates, the best first and those of refused starts last.

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
        return mean_csls_criterion(held_source @ rotation.T.to(held_source), held_target, options.neighbours)

    def start(initial: str, part: slice) -> Tensor:
        if initial == "identity":
            return unchanged
        trained = adversarial_rotations(
            fit_source[part],
            fit_target[part],
            options.adversarial,
            seed=seed + (part.start or 0),
            show_progress_bar=show_progress_bar,
        )
        return max((nearest_orthogonal(rotation) for rotation in trained), key=criterion)

    def refined(rotation: Tensor, part: slice) -> list[Tensor]:
        return [rotation, *_refinements(rotation, fit_source[part], fit_target[part], options)]

    everything, halves = slice(None), (slice(0, None, 2), slice(1, None, 2))
    unchanged = torch.eye(source.shape[1], dtype=torch.float64, device=fit_source.device)
    identity = Candidate("identity", criterion(unchanged), unchanged)
    # What a right rotation comes near to: a language's held-out texts, matched with others of its own.
    own = min(
        mean_csls_criterion(held, fitted[: len(held)], options.neighbours)
        for held, fitted in ((held_source, fit_source), (held_target, fit_target))
    )
    wanted = identity.criterion + _MOST_OF_THE_WAY * max(0.0, own - identity.criterion)
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
            agree = agreement >= options.min_agreement
            path = [entry._replace(agreement=agreement, trusted=agree and entry.criterion >= wanted) for entry in path]
        candidates += path
    return sorted(candidates, key=lambda entry: (not entry.trusted, -entry.criterion))


def describe_candidates(candidates: Sequence[Candidate]) -> str:
    """Describe in one line which candidate was chosen and which were not."""

    def describe(entry: Candidate) -> str:
        agreement = "" if entry.agreement is None else f", agreement {entry.agreement:.2f}"
        return f"{entry.name} (criterion {entry.criterion:.3f}{agreement})"

    best, *others = candidates
    parts = [describe(best)]
    if best.name != "identity":
        parts.append(f"instead of {describe(next(entry for entry in others if entry.name == 'identity'))}")
    refused = [entry for entry in others if not entry.trusted]
    if refused:
        parts.append(f"not verified: {describe(refused[0])}")
    return "; ".join(parts)


def pull_to_orthogonal(matrix: Tensor, beta: float) -> Tensor:
    """Compute `(1 + beta) W - beta (W W^T) W`, which keeps W near the orthogonal matrices (Conneau et al., Eq. 7)."""
    return (1 + beta) * matrix - beta * (matrix @ matrix.T) @ matrix


def adversarial_rotations(
    source: Tensor,
    target: Tensor,
    options: AdversarialOptions | None = None,
    *,
    seed: int = 0,
    show_progress_bar: bool = False,
) -> Iterator[Tensor]:
    """Train a rotation against a discriminator that tells rotated source rows from target rows (Conneau et al. 2018).

    The training starts from the identity and compares the shapes of the two point clouds. It finds rotations around the
    identity reliably, but not arbitrary ones: of ten seeds on a cloud of 30 topics in six dimensions, all recovered
    half of a random rotation and two to four recovered a whole one. Which seeds succeed changes with the rounding of
    the machine. The criterion on held-out texts tells failures from successes.

    Rows have unit length. Equal seeds give equal rotations on one machine; PyTorch's random state is not changed.

    Yields:
        The matrix W (d, d), float64, after each epoch. It is nearly orthogonal, and `W x` is in the target's space.
    """
    options = options or AdversarialOptions()
    dimension = source.shape[1]
    # Rows of length sqrt(d) have entries of about 1, which the discriminator's initial weights are made for.
    source, target = (rows.float() * dimension**0.5 for rows in (source, target))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        widths = (dimension, options.hidden, options.hidden)
        layers = [part for i in (0, 1) for part in (nn.Linear(widths[i], widths[i + 1]), nn.LeakyReLU(0.2))]
        discriminator = nn.Sequential(*layers, nn.Linear(options.hidden, 1)).to(source.device)
    parameters = list(discriminator.parameters())
    rotation = torch.eye(dimension, device=source.device, requires_grad=True)
    comes_from_source = torch.full((2 * options.batch_size,), options.smoothing, device=source.device)
    comes_from_source[: options.batch_size] = 1 - options.smoothing

    def draw(rows: Tensor) -> Tensor:
        return rows[torch.randint(len(rows), (options.batch_size,), generator=generator).to(rows.device)]

    def loss(matrix: Tensor, labels: Tensor) -> Tensor:
        rows = torch.cat([draw(source) @ matrix.T, draw(target)])
        # Dropout by hand: nn.Dropout would draw from PyTorch's global random state.
        keep = torch.rand(rows.shape, generator=generator) >= options.input_dropout
        rows = rows * keep.to(rows) / (1 - options.input_dropout)
        return F.binary_cross_entropy_with_logits(discriminator(rows)[:, 0], labels)

    steps = options.epochs * options.steps_per_epoch
    with tqdm(total=steps, desc="adversarial", disable=not show_progress_bar, leave=False) as bar:
        for epoch in range(options.epochs):
            decay = options.learning_rate_decay**epoch
            for _ in range(options.steps_per_epoch):
                for _ in range(options.discriminator_steps):
                    seen_through = loss(rotation.detach(), comes_from_source)
                    _descend(seen_through, parameters, decay * options.learning_rate)
                fooled = loss(rotation, 1 - comes_from_source)
                _descend(fooled, [rotation], decay * options.rotation_learning_rate)
                with torch.no_grad():
                    rotation.copy_(pull_to_orthogonal(rotation, options.beta))
                bar.update()
            yield rotation.detach().double()


@torch.no_grad()
def _descend(loss: Tensor, parameters: Sequence[Tensor], rate: float) -> None:
    """Take a step of plain SGD on these parameters only; the bookkeeping of torch.optim would double the time."""
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.sub_(gradient, alpha=rate)


def _refinements(start: Tensor, source: Tensor, target: Tensor, options: RotationOptions) -> Iterator[Tensor]:
    rotation = start
    for _ in range(options.refinements):
        mapped = source @ rotation.T.to(source)
        matches = mutual_nearest_neighbours(mapped, target, options.neighbours)
        if not len(matches.source):
            return
        # The prior keeps near to where we are: it is applied to the mapped rows and chained.
        step = procrustes(mapped[matches.source], target[matches.target], prior=options.prior)
        rotation = nearest_orthogonal(step @ rotation)
        yield rotation


def _draw(rows: Tensor, options: RotationOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw unit-length rows to fit on, and rows to hold out, with a seed."""
    if len(rows) < 4:
        raise ValueError(f"a rotation needs at least 4 texts of each language, got {len(rows)}")
    order = torch.randperm(len(rows), generator=generator)[: options.max_texts]
    held = max(1, int(options.validation_fraction * len(order)))
    drawn = F.normalize(rows[order.to(rows.device)].float(), dim=1)
    return drawn[held:], drawn[:held]
