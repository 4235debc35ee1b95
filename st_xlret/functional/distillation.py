"""The distillation of a teacher's similarities into a student."""

from __future__ import annotations

from torch import Tensor

from st_xlret.functional.checks import (
    at_least_float32,
    check_matrix,
    check_temperature,
    unit_rows,
    without_autocast,
)


def similarity_distillation_loss(
    student: Tensor,
    teacher: Tensor,
    bank: Tensor,
    *,
    temperature: float = 0.02,
    cosine_weight: float = 10.0,
) -> Tensor:
    """Make a student's vectors as similar to a bank of the teacher's vectors as the teacher's own vectors are.

    The loss is the mean over rows of `KL(p || q) + cosine_weight (1 - cos(student, teacher))`. Here p is the softmax
    over the bank of the teacher's cosines divided by `temperature`, and q that of the student's cosines. The first
    term asks for the teacher's ranking of its neighbours, which is what search needs; the second one, which is the
    squared distance of unit vectors up to a factor of 2, for the teacher's place. Without the first term this is
    multilingual knowledge distillation (Reimers and Gurevych, EMNLP 2020, Eq. 1) on unit vectors; the first term is
    the distillation of similarities to a queue (SEED, Fang et al., ICLR 2021, Eq. 4).

    Args:
        student: Vectors of the texts by the encoder in training (N, d). They need not have unit length.
        teacher: Vectors of their translations by the teacher (N, d). They get no gradient.
        bank: Further vectors of the teacher (K, d), for example of random sentences. They get no gradient. With the
            rows of `teacher` among them, each text is also to be most similar to its own translation.
        temperature: Divisor of the cosines. The smaller it is, the more the nearest neighbours count.
        cosine_weight: Factor on the second term. 0 leaves it out.

    Returns:
        A scalar, at least float32. It is 0 if the student's vectors are the teacher's.

    Raises:
        ValueError: If shapes do not fit, the temperature is not positive, or the weight is negative.

    Example:
        >>> import torch
        >>> x = torch.eye(3)
        >>> similarity_distillation_loss(x, x, x).abs() < 1e-6
        tensor(True)
        >>> round(similarity_distillation_loss(-x, x, x, temperature=1.0, cosine_weight=0.0).item(), 6)
        0.462784
    """
    for name, vectors in (("student", student), ("teacher", teacher), ("bank", bank)):
        check_matrix(name, vectors)
    if student.shape != teacher.shape or bank.shape[1:] != teacher.shape[1:] or not len(student) or not len(bank):
        raise ValueError(
            "student and teacher must be row-aligned, and the bank must have rows of their size, got student of shape "
            f"{tuple(student.shape)}, teacher of shape {tuple(teacher.shape)} and bank of shape {tuple(bank.shape)}"
        )
    check_temperature(temperature)
    if not cosine_weight >= 0:
        raise ValueError(f"cosine_weight must not be negative, got {cosine_weight}")
    with without_autocast(student):
        student, teacher, bank = (
            unit_rows(at_least_float32(vectors)) for vectors in (student, teacher.detach(), bank.detach())
        )
        target = (teacher @ bank.T / temperature).log_softmax(dim=1)
        found = (student @ bank.T / temperature).log_softmax(dim=1)
        loss = (target.exp() * (target - found)).sum(dim=1).mean()
        if cosine_weight:
            loss = loss + cosine_weight * (1 - (student * teacher).sum(dim=1)).mean()
    return loss
