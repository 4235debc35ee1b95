"""Orthogonal maps between the spaces of two languages: from pairs, or without any.

(Conneau et al. 2018.)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration.adversarial import adversarial_rotations
from st_xlret.calibration.rows import Array
from st_xlret.calibration.steps import Maps
from st_xlret.search import unit_rows

MAX_TEXTS = 5000
HELD_OUT = 0.25
NEIGHBOURS = 10
REFINEMENTS = 5
MOST_OF_THE_WAY = 0.75
MIN_AGREEMENT = 0.8  # of what two halves of the texts give, see `rotation_agreement`


def rotate_into_pivot(
    rows: Mapping[str, Array],
    pivot: str,
    pairs: Mapping[str, tuple[Array, Array]],
    maps: Maps,
    strength: float,
    *,
    adversarial: bool = True,
    seed: int = 0,
) -> tuple[Maps, dict[str, str]]:
    """The part `strength` of the rotation of vectors, after maps, into the pivot's space.

    `rows` have the vectors (n, d) of each language, and `pairs` those that mean the same, in a
    language and in the pivot, row by row. `maps` are in the order of `rows`, and so are those that
    are returned, to put after them: as in all `Maps`, a matrix is what is added to the identity, so
    that of the pivot is 0. Beside them, how each was found: `rotate fr` -> a line.
    """
    codes = list(rows)
    width = maps.offset.shape[1]
    matrices = np.zeros((len(codes), width, width))
    no_offsets = np.zeros((len(codes), width))
    notes: dict[str, str] = {}
    if not strength:
        return Maps(matrices, no_offsets), notes
    _check_counts(rows, pivot, pairs, width)

    def mapped_rows(code: str, vectors: Array) -> Tensor:
        """Vectors (n, d) of a language, as the steps before leave them, in their own type."""
        matrix, offset = maps.of_language(codes.index(code))
        mapped = vectors
        if matrix is not None:
            mapped = mapped + vectors @ matrix.T.astype(vectors.dtype)
        return torch.from_numpy(mapped + offset.astype(vectors.dtype))

    for number, code in enumerate(codes):
        if code == pivot:
            continue
        if code in pairs:
            of_language, of_pivot = pairs[code]
            source = mapped_rows(code, of_language).double()
            rotation = procrustes(source, mapped_rows(pivot, of_pivot).double())
            note = f"Procrustes on {len(source)} pairs"
        else:
            rotation, note = unsupervised_rotation(
                mapped_rows(code, rows[code]),
                mapped_rows(pivot, rows[pivot]),
                adversarial=adversarial,
                seed=seed + zlib.crc32(code.encode()),
            )
        notes[f"rotate {code}"] = note
        matrices[number] = partial_rotation(rotation, strength).numpy() - np.eye(width)
    return Maps(matrices, no_offsets), notes


def _check_counts(
    rows: Mapping[str, Array],
    pivot: str,
    pairs: Mapping[str, tuple[Array, Array]],
    width: int,
) -> None:
    """Refuse fewer texts, or pairs, than dimensions: most of a rotation would be arbitrary."""
    counts = {code: len(vectors) for code, vectors in rows.items()}
    counts |= {code: len(of_language) for code, (of_language, _) in pairs.items()}
    if rows.keys() - {pivot} <= pairs.keys():  # else the texts of the pivot are read
        counts.pop(pivot)
    few = {code: count for code, count in counts.items() if count < width}
    if few or not pairs.keys() <= rows.keys():
        raise ValueError(
            f"a rotation in {width} dimensions needs as many texts, or pairs, of each language: "
            f"{few}; pairs are in {list(pairs)}, and texts in {list(rows)}"
        )


def nearest_orthogonal(matrix: Tensor) -> Tensor:
    """The orthogonal matrix nearest to a square one (its polar factor), in float64."""
    left, _, right = torch.linalg.svd(matrix.double())
    return left @ right


def procrustes(source: Tensor, target: Tensor) -> Tensor:
    """The orthogonal W for which `source W^T` is nearest to `target` in squared distance.

    It has a closed form, `W = U V^T` with `U S V^T = SVD(target^T source)` (Conneau et al. 2018,
    Eq. 2). Rows (n, d) are aligned. Directions about which fewer pairs than dimensions say nothing
    stay as they are.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> procrustes(source, torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    correlation = target.double().T @ source.double()
    singular = torch.linalg.svdvals(correlation)
    if singular[-1] <= 1e-12 * singular[0]:  # else some directions would be rotated at random
        correlation = correlation + 1e-6 * singular.mean() * _identity_like(correlation)
    return nearest_orthogonal(correlation)


def partial_rotation(rotation: Tensor, strength: float) -> Tensor:
    """Part of the way from the identity to W, float64.

    It is the orthogonal matrix nearest to `(1 - s) I + s W`. Half of a plane rotation is that by
    half of its angle. (A reflection switches at s = 1/2.)
    """
    whole = rotation.double()
    mixture = (1 - strength) * _identity_like(whole) + strength * whole
    return nearest_orthogonal(mixture).cpu()


def _identity_like(matrix: Tensor) -> Tensor:
    return torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)


def rotation_agreement(one: Tensor, other: Tensor) -> float:
    """What two rotations have in common beyond the identity.

    It is the cosine of their `W - (tr W / d) I`, about 0 for noise.
    """
    part = _beyond_identity(one)
    other_part = _beyond_identity(other)
    lengths = float(part.norm() * other_part.norm())
    if not lengths:
        return 1.0
    return float((part * other_part).sum()) / lengths


def _beyond_identity(matrix: Tensor) -> Tensor:
    """W without its part along the identity: `W - (tr W / d) I`."""
    return matrix - matrix.diagonal().mean() * _identity_like(matrix)


def mean_csls_criterion(source: Tensor, target: Tensor, neighbours: int = NEIGHBOURS) -> float:
    """Mean cosine of the source rows to the target rows that CSLS matches them with.

    (Conneau et al. 2018, section 3.3.) Between rotations of the same rows, it follows the accuracy
    of translation.
    """
    cosines, scores = cosines_and_csls(source, target, neighbours)
    matched = scores.argmax(dim=1, keepdim=True)
    return float(cosines.gather(1, matched).mean())


def cosines_and_csls(
    source: Tensor, target: Tensor, neighbours: int = NEIGHBOURS
) -> tuple[Tensor, Tensor]:
    """The cosines (S, T) of all rows, and `CSLS(x, y) = 2 cos(x, y) - r_T(x) - r_S(y)`.

    (Conneau et al. 2018, Eq. 3.) r_T(x) is the mean cosine of x with its nearest target rows, and
    r_S(y) that of y with its nearest source rows.
    """
    cosines = unit_rows(source, "source") @ unit_rows(target, "target").T
    of_source = _mean_of_nearest(cosines, neighbours)
    of_target = _mean_of_nearest(cosines.T, neighbours)
    return cosines, 2 * cosines - of_source[:, None] - of_target


def _mean_of_nearest(cosines: Tensor, neighbours: int) -> Tensor:
    """The mean of the highest cosines of each row, (S,), or of all if they are fewer."""
    count = min(neighbours, cosines.shape[1])
    return cosines.topk(count, dim=1).values.mean(dim=1)


_Start = Literal["identity", "adversarial"]


class _Candidate(NamedTuple):
    """A rotation that may be the one.

    Attributes:
        name: Where it began, and how often it was refined.
        criterion: On held-out texts.
        rotation: W.
        agreement: Of those that two halves of the texts give, where they were compared.
        trusted: Whether it was verified.
    """

    name: str
    criterion: float
    rotation: Tensor
    agreement: float | None = None
    trusted: bool = True

    def __str__(self) -> str:
        agreement = "" if self.agreement is None else f", agreement {self.agreement:.2f}"
        return f"{self.name} (criterion {self.criterion:.3f}{agreement})"


class _Sides(NamedTuple):
    """Texts of a language and of the pivot, (n, d) each."""

    source: Tensor
    target: Tensor

    def half(self, number: int) -> _Sides:
        """Every second text, from the first on or from the second on."""
        return _Sides(self.source[number::2], self.target[number::2])


def unsupervised_rotation(
    source: Tensor,
    target: Tensor,
    *,
    adversarial: bool = True,
    seed: int = 0,
) -> tuple[Tensor, str]:
    """Find the rotation of one language's embeddings onto another's without any pairs.

    (Conneau et al. 2018.) The identity, and the result of the adversarial stage, are refined by
    Procrustes on the mutual nearest neighbours under CSLS. Every matrix on the way is a candidate,
    and the criterion on held-out texts ranks them.

    Two checks refuse what cannot be verified, and the identity remains: the criterion alone also
    rises where topics are turned onto each other while translations drift apart. Two halves of the
    texts must give nearly the same rotation, and the criterion must come three quarters of the way
    from the identity's to that of a language whose texts are matched with other texts of its own.

    Embeddings (n, d), 4 at least, have their mean near the origin (shift first); `MAX_TEXTS` are
    drawn at most. `adversarial` takes about a minute on one core. Equal seeds give equal results on
    one machine.

    Returns the rotation W (d, d), float64, for `source @ W.T`, and a line about it and what it is
    preferred to.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> rows = torch.randn(80, 2, generator=generator) * torch.tensor([3.0, 1.0])
        >>> unsupervised_rotation(rows, rows, adversarial=False)[0].round().abs().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    generator = torch.Generator().manual_seed(seed)
    fit_source, held_source = _draw_and_hold_out(source, generator)
    fit_target, held_target = _draw_and_hold_out(target, generator)
    search = _RotationSearch(
        fit=_Sides(fit_source, fit_target),
        held_out=_Sides(held_source, held_target),
        unchanged=torch.eye(source.shape[1], dtype=torch.float64, device=source.device),
        seed=seed,
    )
    candidates = search.find_candidates("identity")
    if adversarial:
        candidates += search.find_candidates("adversarial")
    return _best_candidate(search.identity, candidates)


@dataclass(frozen=True)
class _RotationSearch:
    """The search of `unsupervised_rotation`, from any start.

    Attributes:
        fit: What rotations are fitted to.
        held_out: What ranks them.
        unchanged: The identity matrix.
        seed: Of the adversarial stage.
    """

    fit: _Sides
    held_out: _Sides
    unchanged: Tensor
    seed: int

    @cached_property
    def identity(self) -> _Candidate:
        """What remains where nothing better is verified."""
        return _Candidate("identity", self.criterion(self.unchanged), self.unchanged)

    def criterion(self, rotation: Tensor) -> float:
        """What ranks rotations, on held-out texts."""
        source, target = self.held_out
        return mean_csls_criterion(source @ rotation.T.to(source), target)

    def least_criterion(self) -> float:
        """Most of the way from the identity's criterion to what a right rotation comes near to.

        That is the criterion of a language whose held-out texts are matched with others of its own.
        """
        source, target = self.held_out
        reachable = min(
            mean_csls_criterion(source, self.fit.source[: len(source)]),
            mean_csls_criterion(target, self.fit.target[: len(target)]),
        )
        before = self.identity.criterion
        return before + MOST_OF_THE_WAY * max(0.0, reachable - before)

    def find_start(self, name: _Start, texts: _Sides, half: int = 0) -> Tensor:
        """The identity, or the best epoch of the adversarial stage."""
        if name == "identity":
            return self.unchanged
        epochs = adversarial_rotations(texts.source, texts.target, seed=self.seed + half)
        return max(map(nearest_orthogonal, epochs), key=self.criterion)

    def find_candidates(self, name: _Start) -> list[_Candidate]:
        """The rotations on the way from a start, checked where one is better than the identity.

        The identity itself is left out.
        """
        # The start of the first half serves the whole, too: training takes long.
        start = self.find_start(name, self.fit.half(0))
        path = []
        for rounds, rotation in enumerate(_refined_rotations(start, self.fit)):
            if rounds or name != "identity":
                label = f"{name}, refined {rounds}x" if rounds else name
                path.append(_Candidate(label, self.criterion(rotation), rotation))
        highest = max((each.criterion for each in path), default=-1.0)
        if highest > self.identity.criterion:
            return self._with_agreement(path, self._agreement_of_halves(name, start))
        return path

    def _agreement_of_halves(self, name: _Start, start_of_first: Tensor) -> float:
        """How far each half of the texts gives the same rotation, from starts of their own.

        That of the first half is what `find_start` has found for it.
        """
        second = self.fit.half(1)
        start_of_second = self.find_start(name, second, half=1)
        *_, of_first = _refined_rotations(start_of_first, self.fit.half(0))
        *_, of_second = _refined_rotations(start_of_second, second)
        return rotation_agreement(of_first, of_second)

    def _with_agreement(self, path: Sequence[_Candidate], agreement: float) -> list[_Candidate]:
        """The same candidates, with the agreement of the halves, and whether each is trusted."""
        least = self.least_criterion()
        checked = []
        for each in path:
            is_trusted = agreement >= MIN_AGREEMENT and each.criterion >= least
            checked.append(each._replace(agreement=agreement, trusted=is_trusted))
        return checked


def _best_candidate(identity: _Candidate, candidates: Sequence[_Candidate]) -> tuple[Tensor, str]:
    """The W (d, d) of the highest criterion that is trusted, and a line about it.

    The identity always is, so there is one.
    """
    ranked = sorted([identity, *candidates], key=lambda each: each.criterion, reverse=True)
    best = next(each for each in ranked if each.trusted)
    words = [str(best)]
    if best is not identity:
        words.append(f"instead of {identity}")
    refused = [each for each in ranked if not each.trusted]
    if refused:
        words.append(f"not verified: {refused[0]}")
    return best.rotation, "; ".join(words)


def _refined_rotations(rotation: Tensor, texts: _Sides) -> Iterator[Tensor]:
    """A rotation itself, and after rounds of Procrustes on rows that are each other's best match.

    The matches are those under CSLS.
    """
    yield rotation
    source, target = texts
    for _ in range(REFINEMENTS):
        mapped = source @ rotation.T.to(source)
        _, scores = cosines_and_csls(mapped, target)
        best = scores.argmax(dim=1)
        rows = torch.arange(len(scores), device=scores.device)
        mutual = scores.argmax(dim=0)[best] == rows
        if not mutual.any():
            return
        rotation = nearest_orthogonal(procrustes(mapped[mutual], target[best[mutual]]) @ rotation)
        yield rotation


def _draw_and_hold_out(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows (n, d) of unit length to fit on, and others to hold out; it draws from the generator."""
    order = torch.randperm(len(rows), generator=generator)[:MAX_TEXTS]
    held = max(1, int(HELD_OUT * len(order)))
    drawn = F.normalize(rows[order.to(rows.device)].float(), dim=1)
    return drawn[held:], drawn[:held]
