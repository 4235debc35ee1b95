"""Orthogonal maps between the spaces of two languages: from pairs, or without any (Conneau et al. 2018)."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from st_xlret.calibration.steps import Maps
from st_xlret.search import unit_rows

MAX_TEXTS, HELD_OUT = 5000, 0.25
NEIGHBOURS, REFINEMENTS = 10, 5
MOST_OF_THE_WAY = 0.75

# Conneau et al. (2018, section 3.2) have a discriminator of 2,048, far more steps and, instead, a rotation rate of 0.1.
EPOCHS, STEPS_PER_EPOCH, DISCRIMINATOR_STEPS = 10, 400, 2
BATCH_SIZE, HIDDEN, DROPOUT, SMOOTHING = 32, 128, 0.1, 0.2
RATE, ROTATION_RATE, DECAY, BETA = 0.1, 1.0, 0.95, 0.01


def rotate_into_pivot(
    rows: Mapping[str, NDArray[Any]],
    pivot: str,
    pairs: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    maps: Maps,
    strength: float,
    *,
    adversarial: bool = True,
    seed: int = 0,
) -> tuple[Maps, dict[str, str]]:
    """The part `strength` of the rotation of vectors, after maps, into the pivot's space, and how each was found."""
    codes, width = list(rows), maps.offset.shape[1]
    counts = {
        code: len(pairs[code][0]) if code in pairs else len(vectors)
        for code, vectors in rows.items()
    }
    if set(codes) - {pivot} <= set(pairs):
        del counts[pivot]  # its own texts are not used then
    few = {
        code: count for code, count in counts.items() if count < width
    }  # most of it would be arbitrary
    if strength and (few or not pairs.keys() <= rows.keys()):
        needed = f"a rotation in {width} dimensions needs as many texts, or pairs, of each language"
        raise ValueError(f"{needed}: {few}; pairs are in {list(pairs)}, and texts in {codes}")

    def mapped_rows(code: str, vectors: NDArray[Any]) -> Tensor:
        matrix, offset = maps.of_language(codes.index(code))
        change = 0 if matrix is None else vectors @ matrix.T.astype(vectors.dtype)
        return torch.from_numpy(vectors + change + offset.astype(vectors.dtype))

    matrices, notes = np.zeros((len(codes), width, width)), {}
    for number, code in enumerate(codes):
        if code == pivot or not strength:
            continue
        if code in pairs:
            source, target = (
                mapped_rows(code, pairs[code][0]).double(),
                mapped_rows(pivot, pairs[code][1]).double(),
            )
            rotation, note = procrustes(source, target), f"Procrustes on {len(source)} pairs"
        else:
            source, target = mapped_rows(code, rows[code]), mapped_rows(pivot, rows[pivot])
            language_seed = seed + zlib.crc32(code.encode())
            rotation, note = unsupervised_rotation(
                source, target, adversarial=adversarial, seed=language_seed
            )
        notes[f"rotate {code}"] = note
        matrices[number] = partial_rotation(rotation, strength).numpy() - np.eye(width)
    return Maps(matrices, np.zeros((len(codes), width))), notes


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """The orthogonal matrix nearest to a square one (its polar factor), in float64."""
    left, _, right = torch.linalg.svd(matrix.double())
    return left @ right


def procrustes(source: Tensor, target: Tensor) -> Tensor:
    """Compute the orthogonal W for which `source W^T` is nearest to `target` in squared distance, in closed form.

    It is `W = U V^T` with `U S V^T = SVD(target^T source)` (Conneau et al. 2018, Eq. 2). Rows (n, d) are aligned.
    Directions about which fewer pairs than dimensions say nothing stay as they are.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> procrustes(source, torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    correlation = target.double().T @ source.double()
    singular = torch.linalg.svdvals(correlation)
    if singular[-1] <= 1e-12 * singular[0]:  # else some directions would be rotated at random
        correlation = correlation + 1e-6 * singular.mean() * torch.eye(len(correlation)).to(
            correlation
        )
    return nearest_orthogonal(correlation)


def partial_rotation(rotation: Tensor, strength: float) -> Tensor:
    """Part of the way from the identity to W: the orthogonal matrix nearest to `(1 - s) I + s W`, float64.

    Half of a plane rotation is that by half of its angle. (A reflection switches at s = 1/2.)
    """
    identity = torch.eye(len(rotation), dtype=torch.float64, device=rotation.device)
    return nearest_orthogonal((1 - strength) * identity + strength * rotation.double()).cpu()


def rotation_agreement(one: Tensor, other: Tensor) -> float:
    """What two rotations have in common beyond the identity: the cosine of `W - (tr W / d) I`, about 0 for noise."""
    parts = [
        matrix - matrix.diagonal().mean() * torch.eye(len(matrix)).to(matrix)
        for matrix in (one, other)
    ]
    lengths = float(parts[0].norm() * parts[1].norm())
    return float((parts[0] * parts[1]).sum()) / lengths if lengths else 1.0


def mean_csls_criterion(source: Tensor, target: Tensor, neighbours: int = NEIGHBOURS) -> float:
    """Mean cosine of the source rows to the target rows that CSLS matches them with (Conneau et al. 2018, section 3.3).

    Between rotations of the same rows, it follows the accuracy of translation.
    """
    cosines, scores = cosines_and_csls(source, target, neighbours)
    return float(cosines.gather(1, scores.argmax(dim=1, keepdim=True)).mean())


def cosines_and_csls(
    source: Tensor, target: Tensor, neighbours: int = NEIGHBOURS
) -> tuple[Tensor, Tensor]:
    """The cosines (S, T) of all rows, and `CSLS(x, y) = 2 cos(x, y) - r_T(x) - r_S(y)` (Conneau et al. 2018, Eq. 3).

    r_T(x) is the mean cosine of x with its nearest target rows, and r_S(y) that of y with its nearest source rows.
    """
    cosines = unit_rows(source, "source") @ unit_rows(target, "target").T
    of_source, of_target = (
        side.topk(min(neighbours, side.shape[1]), dim=1).values.mean(dim=1)
        for side in (cosines, cosines.T)
    )
    return cosines, 2 * cosines - of_source[:, None] - of_target


class _Candidate(NamedTuple):
    """A rotation with its origin, its criterion, and whether it was verified by two halves of the texts."""

    name: str
    criterion: float
    rotation: Tensor
    agreement: float | None = None
    trusted: bool = True

    def __str__(self) -> str:
        agreement = "" if self.agreement is None else f", agreement {self.agreement:.2f}"
        return f"{self.name} (criterion {self.criterion:.3f}{agreement})"


def unsupervised_rotation(
    source: Tensor,
    target: Tensor,
    *,
    adversarial: bool = True,
    min_agreement: float = 0.8,
    seed: int = 0,
) -> tuple[Tensor, str]:
    """Find the rotation of one language's embeddings onto another's without any pairs (Conneau et al. 2018).

    The identity, and the result of the adversarial stage, are refined by Procrustes on the mutual nearest neighbours
    under CSLS. Every matrix on the way is a candidate, and the criterion on held-out texts ranks them.

    Two checks refuse what cannot be verified, and the identity remains: the criterion alone also rises where topics are
    turned onto each other while translations drift apart. Two halves of the texts must give nearly the same rotation,
    and the criterion must come three quarters of the way from the identity's to that of a language whose texts are
    matched with other texts of its own.

    Embeddings (n, d), 4 at least, have their mean near the origin (shift first); 5 000 are drawn at most. `adversarial`
    takes about a minute on one core; `min_agreement` is the least `rotation_agreement`, and 0 skips both checks. Equal
    seeds give equal results on one machine.

    Returns the rotation W (d, d), float64, for `source @ W.T`, and a line about it and what it is preferred to.

    Example:
        >>> rows = torch.randn(80, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([3.0, 1.0])
        >>> unsupervised_rotation(rows, rows, adversarial=False)[0].round().abs().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    generator = torch.Generator().manual_seed(seed)
    fit_source, held_source = _draw_and_hold_out(source, generator)
    fit_target, held_target = _draw_and_hold_out(target, generator)
    whole, halves = (
        (fit_source, fit_target),
        [(fit_source[half::2], fit_target[half::2]) for half in (0, 1)],
    )
    unchanged = torch.eye(source.shape[1], dtype=torch.float64, device=source.device)

    def criterion(rotation: Tensor) -> float:
        return mean_csls_criterion(held_source @ rotation.T.to(held_source), held_target)

    def starting_rotation(name: str, texts: tuple[Tensor, Tensor], half: int = 0) -> Tensor:
        if name == "identity":
            return unchanged
        epochs = adversarial_rotations(*texts, seed=seed + half)
        return max((nearest_orthogonal(rotation) for rotation in epochs), key=criterion)

    identity = _Candidate("identity", criterion(unchanged), unchanged)
    reachable = min(  # what a right rotation comes near to: a language's held-out texts, matched with others of its own
        mean_csls_criterion(held_source, fit_source[: len(held_source)]),
        mean_csls_criterion(held_target, fit_target[: len(held_target)]),
    )
    least = identity.criterion + MOST_OF_THE_WAY * max(0.0, reachable - identity.criterion)
    candidates = [identity]
    for name in ["identity", *["adversarial"] * adversarial]:
        # Where halves are to agree, the first one's start serves the whole: training is what takes the time.
        first = starting_rotation(name, halves[0] if min_agreement else whole)
        path = [
            _Candidate(
                f"{name}, refined {rounds}x" if rounds else name, criterion(rotation), rotation
            )
            for rounds, rotation in enumerate(_refined_rotations(first, *whole))
        ]
        if min_agreement and max(each.criterion for each in path) > identity.criterion:
            *_, of_first_half = _refined_rotations(first, *halves[0])
            *_, of_second_half = _refined_rotations(
                starting_rotation(name, halves[1], 1), *halves[1]
            )
            agreement = rotation_agreement(of_first_half, of_second_half)
            agree = agreement >= min_agreement
            path = [
                each._replace(agreement=agreement, trusted=agree and each.criterion >= least)
                for each in path
            ]
        candidates += [each for each in path if each.rotation is not unchanged]
    best = min(candidates, key=lambda candidate: (not candidate.trusted, -candidate.criterion))
    words = [str(best)] + [f"instead of {identity}"] * (best is not identity)
    refused = [candidate for candidate in candidates if not candidate.trusted]
    words += (
        [f"not verified: {max(refused, key=lambda candidate: candidate.criterion)}"]
        if refused
        else []
    )
    return best.rotation, "; ".join(words)


def adversarial_rotations(source: Tensor, target: Tensor, *, seed: int = 0) -> Iterator[Tensor]:
    """Train a rotation against a discriminator that tells rotated source rows from target rows (Conneau et al. 2018).

    Yields the nearly orthogonal W (d, d), float64, after each epoch. It finds rotations around the identity reliably,
    but not arbitrary ones. Rows have unit length. PyTorch's random state is not changed.
    """
    dimension = source.shape[1]
    # Rows of length sqrt(d) have entries of about 1, which the discriminator's initial weights are made for.
    source, target = (rows.float() * dimension**0.5 for rows in (source, target))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        widths = (dimension, HIDDEN, HIDDEN)
        layers = [
            part
            for i in (0, 1)
            for part in (nn.Linear(widths[i], widths[i + 1]), nn.LeakyReLU(0.2))
        ]
        discriminator = nn.Sequential(*layers, nn.Linear(HIDDEN, 1)).to(source.device)
    parameters = list(discriminator.parameters())
    rotation = torch.eye(dimension, device=source.device, requires_grad=True)
    source_labels = torch.full((2 * BATCH_SIZE,), SMOOTHING, device=source.device)
    source_labels[:BATCH_SIZE] = 1 - SMOOTHING

    def draw_batch(rows: Tensor) -> Tensor:
        return rows[torch.randint(len(rows), (BATCH_SIZE,), generator=generator).to(rows.device)]

    def discriminator_loss(matrix: Tensor, labels: Tensor) -> Tensor:
        rows = torch.cat([draw_batch(source) @ matrix.T, draw_batch(target)])
        # Dropout by hand: nn.Dropout would draw from PyTorch's global random state.
        keep = torch.rand(rows.shape, generator=generator) >= DROPOUT
        rows = rows * keep.to(rows) / (1 - DROPOUT)
        return F.binary_cross_entropy_with_logits(discriminator(rows)[:, 0], labels)

    for epoch in range(EPOCHS):
        for _ in range(STEPS_PER_EPOCH):
            for _ in range(DISCRIMINATOR_STEPS):
                _take_sgd_step(
                    discriminator_loss(rotation.detach(), source_labels),
                    parameters,
                    DECAY**epoch * RATE,
                )
            _take_sgd_step(
                discriminator_loss(rotation, 1 - source_labels),
                [rotation],
                DECAY**epoch * ROTATION_RATE,
            )
            with torch.no_grad():  # back towards the orthogonal matrices (Eq. 7)
                rotation.copy_((1 + BETA) * rotation - BETA * (rotation @ rotation.T) @ rotation)
        yield rotation.detach().double()


@torch.no_grad()
def _take_sgd_step(loss: Tensor, parameters: Sequence[Tensor], rate: float) -> None:
    """Take a step of plain SGD on these parameters only; the bookkeeping of torch.optim would double the time."""
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.sub_(gradient, alpha=rate)


def _refined_rotations(rotation: Tensor, source: Tensor, target: Tensor) -> Iterator[Tensor]:
    """A rotation, and after rounds of Procrustes on the rows that are each other's best match under CSLS."""
    yield rotation
    for _ in range(REFINEMENTS):
        mapped = source @ rotation.T.to(source)
        scores = cosines_and_csls(mapped, target)[1]
        best, rows = scores.argmax(dim=1), torch.arange(len(scores), device=scores.device)
        mutual = scores.argmax(dim=0)[best] == rows
        if not mutual.any():
            return
        rotation = nearest_orthogonal(procrustes(mapped[mutual], target[best[mutual]]) @ rotation)
        yield rotation


def _draw_and_hold_out(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw unit-length rows to fit on, and rows to hold out, with a seed."""
    order = torch.randperm(len(rows), generator=generator)[:MAX_TEXTS]
    held = max(1, int(HELD_OUT * len(order)))
    drawn = F.normalize(rows[order.to(rows.device)].float(), dim=1)
    return drawn[held:], drawn[:held]
