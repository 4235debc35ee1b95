"""Distillation of similarities against a loop over its rows."""

import pytest
import torch

from st_xlret import functional as f
from tests.functional.checks import vectors
from tests.functional.oracles import naive_distillation


@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("sharper", [None, 0.05])
@pytest.mark.parametrize("cosine_weight", [0.0, 10.0])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 5), (4, 9)])
def test_equals_the_loop(
    temperature: float, sharper: float | None, cosine_weight: float, rows: int, keys: int
) -> None:
    student = vectors(rows)
    teacher = vectors(rows, seed=1)
    bank = vectors(keys, seed=2)
    loss = f.similarity_distillation_loss(
        student,
        teacher,
        bank,
        temperature=temperature,
        teacher_temperature=sharper,
        cosine_weight=cosine_weight,
    )
    expected = naive_distillation(student, teacher, bank, temperature, cosine_weight, sharper)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert student.grad is not None
    assert teacher.grad is None
    assert bank.grad is None
