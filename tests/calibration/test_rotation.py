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
    return nearest_orthogonal(
        torch.randn(dimension, dimension, generator=generator, dtype=torch.float64)
    )


def drawn(
    topics: Tensor, weights: Tensor, size: int, noise: float, generator: torch.Generator
) -> Tensor:
    """Sentences around topics, with more spread in some directions."""
    rows = topics[torch.multinomial(weights, size, replacement=True, generator=generator)]
    spread = torch.linspace(2, 0.5, topics.shape[1])
    return rows + noise * spread * torch.randn(rows.shape, generator=generator)


def anisotropic_cloud(size: int, dimension: int, seed: int) -> Tensor:
    """Sentences around thirty topics; the mean is near the origin."""
    generator = torch.Generator().manual_seed(99)
    topics = torch.randn(30, dimension, generator=generator) * torch.linspace(2, 0.5, dimension)
    weights = torch.rand(30, generator=generator) ** 2
    topics = topics - (weights / weights.sum()) @ topics
    return drawn(topics, weights, size, 0.5, torch.Generator().manual_seed(seed))


def accuracy(rotation: Tensor, planted: Tensor) -> float:
    """Share of new points that are nearest to themselves after the planted rotation and another one."""
    points = anisotropic_cloud(500, len(planted), seed=7)
    turned_back = F.normalize(points @ planted.float() @ rotation.T.float(), dim=1)
    nearest = (turned_back @ F.normalize(points, dim=1).T).argmax(dim=1)
    return float((nearest == torch.arange(500)).float().mean())


def test_procrustes_recovers_a_rotation_and_leaves_alone_what_few_pairs_say_nothing_of() -> None:
    planted, source = random_rotation(16), torch.randn(40, 16, dtype=torch.float64)
    torch.testing.assert_close(procrustes(source, source @ planted.T), planted, atol=1e-12, rtol=0)
    two, swapped = eye(6)[:2], eye(6)[[1, 0, 2, 3, 4, 5]]
    torch.testing.assert_close(procrustes(two, two.flip(0)), swapped, atol=1e-4, rtol=0)


def test_half_a_rotation_twice_is_the_rotation() -> None:
    angle = 2.0
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    ).double()
    half = partial_rotation(turn, 0.5)
    torch.testing.assert_close(half @ half, turn)
    torch.testing.assert_close(partial_rotation(turn, 0.0), eye(2))
    torch.testing.assert_close(partial_rotation(turn, 1.0), turn)
    part = partial_rotation(random_rotation(12), 0.3)
    torch.testing.assert_close(part @ part.T, eye(12), atol=1e-6, rtol=0)


def test_csls_is_the_formula_and_the_criterion_its_mean_cosine_prefers_the_truth() -> None:
    source, target = torch.randn(7, 3), torch.randn(9, 3)
    cosines = torch.cosine_similarity(source[:, None], target[None], dim=2)
    expected = torch.empty(7, 9)
    for i in range(7):
        for j in range(9):
            near_source, near_target = (
                cosines[i].topk(2).values.mean(),
                cosines[:, j].topk(2).values.mean(),
            )
            expected[i, j] = 2 * cosines[i, j] - near_source - near_target
    torch.testing.assert_close(cosines_and_csls(source, target, 2), (cosines, expected))
    best = [float(cosines[i, expected[i].argmax()]) for i in range(7)]
    assert mean_csls_criterion(source, target, 2) == pytest.approx(sum(best) / 7)
    planted, original, target = (
        random_rotation(8).float(),
        anisotropic_cloud(400, 8, 1),
        anisotropic_cloud(400, 8, 2),
    )
    turned = original @ planted
    assert (
        mean_csls_criterion(turned @ planted.T, target) > mean_csls_criterion(turned, target) + 0.05
    )


def test_refinement_from_the_identity_recovers_a_small_rotation() -> None:
    planted = partial_rotation(random_rotation(16, seed=3), 0.42)
    source, target = (
        anisotropic_cloud(1500, 16, 1) @ planted.float(),
        anisotropic_cloud(1500, 16, 2),
    )
    rotation, note = unsupervised_rotation(source, target, adversarial=False)
    assert note.startswith("identity, refined") and "instead of identity" in note
    assert accuracy(rotation, planted) > max(0.95, accuracy(eye(16), planted) + 0.1)


def test_the_adversarial_start_recovers_a_rotation_that_refinement_alone_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half of a random rotation. All of one is out of reach for most seeds, and which ones depends on the rounding of
    # the machine; this one was recovered by each of ten seeds, with an accuracy of 0.87 to 0.98.
    monkeypatch.setattr("st_xlret.calibration.adversarial.EPOCHS", 3)
    monkeypatch.setattr("st_xlret.calibration.adversarial.STEPS_PER_EPOCH", 250)
    planted = partial_rotation(random_rotation(6, seed=1), 0.5)
    source, target = anisotropic_cloud(1500, 6, 1) @ planted.float(), anisotropic_cloud(1500, 6, 2)
    # Without the check on halves, which would train two more: it has a test of its own.
    rotation, note = unsupervised_rotation(source, target, min_agreement=0, seed=1)
    from_identity, _ = unsupervised_rotation(
        source, target, adversarial=False, min_agreement=0, seed=1
    )
    assert note.startswith("adversarial")
    assert accuracy(from_identity, planted) < 0.3 and accuracy(rotation, planted) > 0.75
    torch.testing.assert_close(rotation @ rotation.T, eye(6), atol=1e-6, rtol=0)


# None: noise without topics. The last one is few texts with much noise: two halves agree at 0.57, and the criterion
# comes the whole way. Around a wrong optimum, both halves find the same rotation, and the criterion rises all the same.
@pytest.mark.parametrize(
    ("seed", "same_topics", "size", "noise"),
    [(0, None, 800, 1.0), (0, True, 1200, 0.5), (0, False, 1200, 0.5), (3, False, 300, 0.8)],
)
def test_what_cannot_be_verified_is_not_taken(
    seed: int, same_topics: bool | None, size: int, noise: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    spread = torch.linspace(2, 0.5, 8) * (same_topics is not None)
    weights = torch.ones(40) if size > 1000 else torch.rand(40, generator=generator) ** 2
    topics = [torch.randn(40, 8, generator=generator) * spread for _ in range(2)]
    clouds = [
        drawn(topics[i], weights, size, noise, generator) for i in (0, 0 if same_topics else 1)
    ]
    source, target = (rows - rows.mean(dim=0) for rows in clouds)
    source = source @ random_rotation(8, seed + 100).float()
    rotation, note = unsupervised_rotation(source, target, adversarial=False, seed=seed)
    assert (
        torch.equal(rotation, eye(8))
        and note.startswith("identity (")
        and "not verified: identity, refined" in note
    )


def test_the_same_seed_gives_the_same_rotation_and_leaves_the_global_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"EPOCHS": 2, "STEPS_PER_EPOCH": 5, "HIDDEN": 8}.items():
        monkeypatch.setattr(f"st_xlret.calibration.adversarial.{name}", value)
    source, target = anisotropic_cloud(100, 3, 1), anisotropic_cloud(100, 3, 2)
    before = torch.get_rng_state()
    first = unsupervised_rotation(source, target, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(5)
    second = unsupervised_rotation(source, target, seed=3)
    assert first[1] == second[1] and torch.equal(first[0], second[0])
