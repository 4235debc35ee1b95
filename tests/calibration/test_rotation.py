"""Rotations: from pairs, refined from the identity, trained, and refused."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.calibration import mean_csls_criterion, procrustes, unsupervised_rotation
from st_xlret.calibration.rotation import cosines_and_csls, nearest_orthogonal, partial_rotation


def eye(dimension: int) -> Tensor:
    return torch.eye(dimension, dtype=torch.float64)


def random_rotation(dimension: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(dimension, dimension, generator=generator, dtype=torch.float64)
    return nearest_orthogonal(matrix)


def drawn(
    topics: Tensor, weights: Tensor, size: int, noise: float, generator: torch.Generator
) -> Tensor:
    """Sentences around topics, with more spread in some directions."""
    numbers = torch.multinomial(weights, size, replacement=True, generator=generator)
    rows = topics[numbers]
    spread = torch.linspace(2, 0.5, topics.shape[1])
    return rows + noise * spread * torch.randn(rows.shape, generator=generator)


def anisotropic_cloud(size: int, dimension: int, seed: int) -> Tensor:
    """Sentences around thirty topics; the mean is near the origin."""
    generator = torch.Generator().manual_seed(99)
    spread = torch.linspace(2, 0.5, dimension)
    topics = torch.randn(30, dimension, generator=generator) * spread
    weights = torch.rand(30, generator=generator) ** 2
    mean = (weights / weights.sum()) @ topics
    return drawn(topics - mean, weights, size, 0.5, torch.Generator().manual_seed(seed))


def accuracy(rotation: Tensor, planted: Tensor) -> float:
    """Share of new points that are nearest to themselves after two rotations.

    These are the planted one, and the one that was found.
    """
    points = anisotropic_cloud(500, len(planted), seed=7)
    turned = points @ planted.float()
    turned_back = F.normalize(turned @ rotation.T.float(), dim=1)
    nearest = (turned_back @ F.normalize(points, dim=1).T).argmax(dim=1)
    return float((nearest == torch.arange(500)).float().mean())


def test_procrustes_recovers_a_rotation() -> None:
    planted = random_rotation(16)
    source = torch.randn(40, 16, dtype=torch.float64)
    found = procrustes(source, source @ planted.T)
    torch.testing.assert_close(found, planted, atol=1e-12, rtol=0)


def test_procrustes_leaves_alone_what_few_pairs_say_nothing_of() -> None:
    two = eye(6)[:2]
    swapped = eye(6)[[1, 0, 2, 3, 4, 5]]
    torch.testing.assert_close(procrustes(two, two.flip(0)), swapped, atol=1e-4, rtol=0)


def plane_rotation(angle: float) -> Tensor:
    cosine = math.cos(angle)
    sine = math.sin(angle)
    return torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64)


def test_half_a_rotation_twice_is_the_rotation() -> None:
    turn = plane_rotation(2.0)
    half = partial_rotation(turn, 0.5)
    torch.testing.assert_close(half @ half, turn)
    torch.testing.assert_close(partial_rotation(turn, 0.0), eye(2))
    torch.testing.assert_close(partial_rotation(turn, 1.0), turn)


def test_a_part_of_a_rotation_is_orthogonal() -> None:
    part = partial_rotation(random_rotation(12), 0.3)
    torch.testing.assert_close(part @ part.T, eye(12), atol=1e-6, rtol=0)


def test_csls_is_the_formula_and_the_criterion_its_mean_cosine() -> None:
    source = torch.randn(7, 3)
    target = torch.randn(9, 3)
    cosines = torch.cosine_similarity(source[:, None], target[None], dim=2)
    expected = torch.empty(7, 9)
    for i in range(7):
        for j in range(9):
            near_source = cosines[i].topk(2).values.mean()
            near_target = cosines[:, j].topk(2).values.mean()
            expected[i, j] = 2 * cosines[i, j] - near_source - near_target
    torch.testing.assert_close(cosines_and_csls(source, target, 2), (cosines, expected))
    best = [float(cosines[i, expected[i].argmax()]) for i in range(7)]
    assert mean_csls_criterion(source, target, 2) == pytest.approx(sum(best) / 7)


def test_the_criterion_prefers_the_truth() -> None:
    planted = random_rotation(8).float()
    target = anisotropic_cloud(400, 8, 2)
    turned = anisotropic_cloud(400, 8, 1) @ planted
    right = mean_csls_criterion(turned @ planted.T, target)
    assert right > mean_csls_criterion(turned, target) + 0.05


def test_refinement_from_the_identity_recovers_a_small_rotation() -> None:
    planted = partial_rotation(random_rotation(16, seed=3), 0.42)
    source = anisotropic_cloud(1500, 16, 1) @ planted.float()
    target = anisotropic_cloud(1500, 16, 2)
    rotation, note = unsupervised_rotation(source, target, adversarial=False)
    assert note.startswith("identity, refined")
    assert "instead of identity" in note
    assert accuracy(rotation, planted) > 0.95
    assert accuracy(rotation, planted) > accuracy(eye(16), planted) + 0.1


def test_the_adversarial_start_recovers_a_rotation_that_refinement_alone_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half of a random rotation. All of one is out of reach for most seeds, and which ones depends
    # on the rounding of the machine; this one was recovered by each of ten seeds, with an accuracy
    # of 0.87 to 0.98.
    monkeypatch.setattr("st_xlret.calibration.adversarial.EPOCHS", 3)
    monkeypatch.setattr("st_xlret.calibration.adversarial.STEPS_PER_EPOCH", 250)
    planted = partial_rotation(random_rotation(6, seed=1), 0.5)
    source = anisotropic_cloud(1500, 6, 1) @ planted.float()
    target = anisotropic_cloud(1500, 6, 2)
    rotation, note = unsupervised_rotation(source, target, seed=1)
    from_identity, _ = unsupervised_rotation(source, target, adversarial=False, seed=1)
    assert note.startswith("adversarial")
    assert accuracy(from_identity, planted) < 0.3
    assert accuracy(rotation, planted) > 0.75
    torch.testing.assert_close(rotation @ rotation.T, eye(6), atol=1e-6, rtol=0)


def topics_of(generator: torch.Generator) -> Tensor:
    return torch.randn(40, 8, generator=generator) * torch.linspace(2, 0.5, 8)


def check_not_taken(source: Tensor, target: Tensor, seed: int) -> None:
    """Whatever is found for two clouds, of which one is turned, the identity remains."""
    source = source - source.mean(dim=0)
    target = target - target.mean(dim=0)
    turned = source @ random_rotation(8, seed + 100).float()
    rotation, note = unsupervised_rotation(turned, target, adversarial=False, seed=seed)
    assert torch.equal(rotation, eye(8))
    assert note.startswith("identity (")
    assert "not verified: identity, refined" in note


def test_a_rotation_of_noise_is_not_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    nothing = torch.zeros(40, 8)
    weights = torch.rand(40, generator=generator) ** 2
    source = drawn(nothing, weights, 800, 1.0, generator)
    check_not_taken(source, drawn(nothing, weights, 800, 1.0, generator), seed=0)


@pytest.mark.parametrize("same_topics", [True, False])
def test_around_a_wrong_optimum_both_halves_agree_and_the_criterion_tells(
    same_topics: bool,
) -> None:
    generator = torch.Generator().manual_seed(0)
    topics = topics_of(generator)
    others = topics if same_topics else topics_of(generator)
    weights = torch.ones(40)
    source = drawn(topics, weights, 1200, 0.5, generator)
    check_not_taken(source, drawn(others, weights, 1200, 0.5, generator), seed=0)


def test_of_few_texts_with_much_noise_the_criterion_rises_and_halves_disagree() -> None:
    # They agree at 0.57, and the criterion comes the whole way.
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(40, generator=generator) ** 2
    topics = topics_of(generator)
    others = topics_of(generator)
    source = drawn(topics, weights, 300, 0.8, generator)
    check_not_taken(source, drawn(others, weights, 300, 0.8, generator), seed=3)


def test_the_same_seed_gives_the_same_rotation_and_leaves_the_global_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("st_xlret.calibration.adversarial.EPOCHS", 2)
    monkeypatch.setattr("st_xlret.calibration.adversarial.STEPS_PER_EPOCH", 5)
    monkeypatch.setattr("st_xlret.calibration.adversarial.HIDDEN", 8)
    source = anisotropic_cloud(100, 3, 1)
    target = anisotropic_cloud(100, 3, 2)
    before = torch.get_rng_state()
    first, note = unsupervised_rotation(source, target, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(5)
    second, note_again = unsupervised_rotation(source, target, seed=3)
    assert note_again == note
    assert torch.equal(first, second)
