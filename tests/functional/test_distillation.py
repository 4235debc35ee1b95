"""similarity_distillation_loss against a loop over its equation."""

from __future__ import annotations

import math

import pytest
import torch

from st_xlret.functional import similarity_distillation_loss


def naive(student, teacher, bank, temperature: float, cosine_weight: float) -> float:
    """Row by row: the divergence of two softmaxes over the bank, and the distance of two directions."""

    def cosine(a, b) -> float:
        dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(sum(float(x) ** 2 for x in a)) / math.sqrt(sum(float(y) ** 2 for y in b))

    def softmax(row) -> list[float]:
        powers = [math.exp(cosine(row, key) / temperature) for key in bank]
        return [power / sum(powers) for power in powers]

    total = 0.0
    for s, t in zip(student, teacher, strict=True):
        total += sum(p * (math.log(p) - math.log(q)) for p, q in zip(softmax(t), softmax(s), strict=True))
        total += cosine_weight * (1 - cosine(s, t))
    return total / len(student)


def vectors(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("cosine_weight", [0.0, 10.0])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 5), (4, 9)])
def test_equals_the_loop(temperature: float, cosine_weight: float, rows: int, keys: int) -> None:
    given = vectors(rows, 6), vectors(rows, 6, seed=1), vectors(keys, 6, seed=2)
    found = similarity_distillation_loss(*given, temperature=temperature, cosine_weight=cosine_weight)
    assert found.item() == pytest.approx(naive(*given, temperature, cosine_weight), rel=1e-9, abs=1e-12)


def test_gradients_of_the_student_are_right_and_the_teacher_has_none() -> None:
    student, teacher, bank = vectors(3, 4), vectors(3, 4, seed=1), vectors(5, 4, seed=2)
    for tensor in (student, teacher, bank):
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: similarity_distillation_loss(s, teacher, bank, temperature=0.3), student)
    similarity_distillation_loss(student, teacher, bank).backward()
    assert student.grad is not None and teacher.grad is None and bank.grad is None


def test_a_tiny_temperature_stays_finite() -> None:
    student = vectors(4, 6, dtype=torch.float32).requires_grad_()
    loss = similarity_distillation_loss(student, vectors(4, 6, seed=1).float(), vectors(9, 6).float(), temperature=1e-4)
    loss.backward()
    assert loss.isfinite() and student.grad.isfinite().all()
