"""Rotations: from pairs, refined from the identity, trained, and refused."""

import pytest
import torch
from torch import Tensor

from st_xlret.calibration import (
    adversarial,
    mean_csls_criterion,
    procrustes,
    unsupervised_rotation,
)
from st_xlret.calibration.rotation import cosines_and_csls, nearest_orthogonal, partial_rotation
from st_xlret.search import unit_rows


def eye(dimension: int) -> Tensor:
    return torch.eye(dimension, dtype=torch.float64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_equal_to_six_digits(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def random_rotation(dimension: int, seed: int = 0) -> Tensor:
    shape = (dimension, dimension)
    matrix = torch.randn(shape, generator=seeded(seed), dtype=torch.float64)
    return nearest_orthogonal(matrix)


def with_more_spread_in_some_directions(
    rows: int, dimension: int, generator: torch.Generator
) -> Tensor:
    spread = torch.linspace(2, 0.5, dimension)
    return spread * torch.randn(rows, dimension, generator=generator)


def drawn(
    topics: Tensor, weights: Tensor, size: int, noise: float, generator: torch.Generator
) -> Tensor:
    """Sentences around topics."""
    numbers = torch.multinomial(weights, size, replacement=True, generator=generator)
    dimension = topics.shape[1]
    around = with_more_spread_in_some_directions(size, dimension, generator)
    return topics[numbers] + noise * around


def anisotropic_cloud(size: int, dimension: int, seed: int) -> Tensor:
    """Sentences around thirty topics; the mean is near the origin."""
    generator = seeded(99)
    topics = with_more_spread_in_some_directions(30, dimension, generator)
    weights = torch.rand(30, generator=generator) ** 2
    mean = weights @ topics / weights.sum()
    return drawn(topics - mean, weights, size, 0.5, seeded(seed))


def sides(size: int, planted: Tensor) -> tuple[Tensor, Tensor]:
    """Sentences of two languages, the first turned back by the rotation that is planted."""
    dimension = len(planted)
    source = anisotropic_cloud(size, dimension, 1)
    target = anisotropic_cloud(size, dimension, 2)
    return source @ planted.float(), target


def accuracy(rotation: Tensor, planted: Tensor) -> float:
    """Share of new points that are nearest to themselves after two rotations.

    These are the planted one, and the one that was found.
    """
    points = anisotropic_cloud(500, len(planted), seed=7)
    turned = points @ planted.float()
    turned_back = turned @ rotation.T.float()
    cosines = unit_rows(turned_back) @ unit_rows(points).T
    nearest = cosines.argmax(dim=1).tolist()
    right = 0
    for number, found in enumerate(nearest):
        if found == number:
            right += 1
    return right / 500


def test_procrustes_recovers_a_rotation() -> None:
    planted = random_rotation(16)
    source = torch.randn(40, 16, dtype=torch.float64)
    found = procrustes(source, source @ planted.T)
    assert_equal_to_six_digits(found, planted)


def test_procrustes_leaves_alone_what_few_pairs_say_nothing_of() -> None:
    identity = eye(6)
    two = identity[:2]
    swapped = identity[[1, 0, 2, 3, 4, 5]]
    found = procrustes(two, two.flip(0))
    torch.testing.assert_close(found, swapped, atol=1e-4, rtol=0)


def test_half_a_rotation_twice_is_the_rotation() -> None:
    clockwise = torch.tensor([[0.0, 2.0], [-2.0, 0.0]], dtype=torch.float64)
    turn = torch.linalg.matrix_exp(clockwise)
    nothing = partial_rotation(turn, 0.0)
    half = partial_rotation(turn, 0.5)
    whole = partial_rotation(turn, 1.0)
    assert_equal_to_six_digits(nothing, eye(2))
    assert_equal_to_six_digits(half @ half, turn)
    assert_equal_to_six_digits(whole, turn)


def test_a_part_of_a_rotation_is_orthogonal() -> None:
    part = partial_rotation(random_rotation(12), 0.3)
    assert_equal_to_six_digits(part @ part.T, eye(12))


def mean_of_two_highest(rows: Tensor) -> Tensor:
    highest = rows.topk(2, dim=1)
    return highest.values.mean(dim=1)


def test_csls_is_the_formula_and_the_criterion_its_mean_cosine() -> None:
    source = torch.randn(7, 3)
    target = torch.randn(9, 3)
    cosines = torch.cosine_similarity(source[:, None], target[None], dim=2)
    near_source = mean_of_two_highest(cosines)
    near_target = mean_of_two_highest(cosines.T)
    expected = torch.empty(7, 9)
    best = []
    for i, row in enumerate(cosines):
        for j in range(9):
            expected[i, j] = 2 * row[j] - near_source[i] - near_target[j]
        match = int(expected[i].argmax())
        best.append(float(row[match]))
    found_cosines, found = cosines_and_csls(source, target, 2)
    torch.testing.assert_close(found_cosines, cosines)
    torch.testing.assert_close(found, expected)
    criterion = mean_csls_criterion(source, target, 2)
    assert criterion == pytest.approx(sum(best) / 7)


def test_the_criterion_prefers_the_truth() -> None:
    planted = random_rotation(8)
    source, target = sides(400, planted)
    turned_back = source @ planted.T.float()
    right = mean_csls_criterion(turned_back, target)
    wrong = mean_csls_criterion(source, target)
    assert right > wrong + 0.05


def test_refinement_from_the_identity_recovers_a_small_rotation() -> None:
    planted = partial_rotation(random_rotation(16, seed=3), 0.42)
    source, target = sides(1500, planted)
    rotation, note = unsupervised_rotation(source, target, adversarial=False)
    assert note.startswith("identity, refined")
    assert "instead of identity" in note
    found = accuracy(rotation, planted)
    before = accuracy(eye(16), planted)
    assert found > 0.95
    assert found > before + 0.1


def train_briefly(monkeypatch: pytest.MonkeyPatch, epochs: int, steps: int) -> None:
    monkeypatch.setattr(adversarial, "EPOCHS", epochs)
    monkeypatch.setattr(adversarial, "STEPS_PER_EPOCH", steps)


def test_the_adversarial_start_recovers_a_rotation_that_refinement_alone_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half of a random rotation. All of one is out of reach for most seeds, and which ones depends
    # on the rounding of the machine; this one was recovered by each of ten seeds, with an accuracy
    # of 0.87 to 0.98.
    train_briefly(monkeypatch, epochs=3, steps=250)
    planted = partial_rotation(random_rotation(6, seed=1), 0.5)
    source, target = sides(1500, planted)
    rotation, note = unsupervised_rotation(source, target, seed=1)
    from_identity, _ = unsupervised_rotation(source, target, adversarial=False, seed=1)
    assert note.startswith("adversarial")
    assert accuracy(from_identity, planted) < 0.3
    assert accuracy(rotation, planted) > 0.75
    assert_equal_to_six_digits(rotation @ rotation.T, eye(6))


def centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(dim=0)


def check_not_taken(source: Tensor, target: Tensor, seed: int) -> None:
    """Whatever is found for two clouds, of which one is turned, the identity remains."""
    planted = random_rotation(8, seed + 100)
    turned = centred(source) @ planted.float()
    rotation, note = unsupervised_rotation(turned, centred(target), adversarial=False, seed=seed)
    assert torch.equal(rotation, eye(8))
    assert note.startswith("identity (")
    assert "not verified: identity, refined" in note


def test_a_rotation_of_noise_is_not_taken() -> None:
    generator = seeded(0)
    nothing = torch.zeros(40, 8)
    weights = torch.rand(40, generator=generator) ** 2
    source = drawn(nothing, weights, 800, 1.0, generator)
    target = drawn(nothing, weights, 800, 1.0, generator)
    check_not_taken(source, target, seed=0)


@pytest.mark.parametrize("same_topics", [True, False])
def test_around_a_wrong_optimum_both_halves_agree_and_the_criterion_tells(
    same_topics: bool,
) -> None:
    generator = seeded(0)
    topics = with_more_spread_in_some_directions(40, 8, generator)
    others = topics
    if not same_topics:
        others = with_more_spread_in_some_directions(40, 8, generator)
    weights = torch.ones(40)
    source = drawn(topics, weights, 1200, 0.5, generator)
    target = drawn(others, weights, 1200, 0.5, generator)
    check_not_taken(source, target, seed=0)


def test_of_few_texts_with_much_noise_the_criterion_rises_and_halves_disagree() -> None:
    # They agree at 0.57, and the criterion comes the whole way.
    generator = seeded(3)
    weights = torch.rand(40, generator=generator) ** 2
    topics = with_more_spread_in_some_directions(40, 8, generator)
    others = with_more_spread_in_some_directions(40, 8, generator)
    source = drawn(topics, weights, 300, 0.8, generator)
    target = drawn(others, weights, 300, 0.8, generator)
    check_not_taken(source, target, seed=3)


def test_the_same_seed_gives_the_same_rotation_and_leaves_the_global_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train_briefly(monkeypatch, epochs=2, steps=5)
    monkeypatch.setattr(adversarial, "HIDDEN", 8)
    source = anisotropic_cloud(100, 3, 1)
    target = anisotropic_cloud(100, 3, 2)
    before = torch.get_rng_state()
    first, note = unsupervised_rotation(source, target, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(5)
    second, note_again = unsupervised_rotation(source, target, seed=3)
    assert note_again == note
    assert torch.equal(first, second)
