"""Distillation of similarities: a student's neighbours are to be those of the teacher."""

import torch
from torch import Tensor

from st_xlret.functional.tensors import check_matrices, normalize_rows

__all__ = ["similarity_distillation_loss"]


def similarity_distillation_loss(
    student: Tensor,
    teacher: Tensor,
    bank: Tensor,
    *,
    temperature: float = 0.02,
    teacher_temperature: float | None = None,
    cosine_weight: float = 10.0,
) -> Tensor:
    """Make a student's vectors as similar to a bank of vectors as the teacher's own vectors are.

    The loss is the mean over rows of `KL(p || q) + cosine_weight (1 - cos(student, teacher))`. Here
    p is the softmax over the bank of the teacher's cosines divided by a temperature, and q that of
    the student's cosines. The first term asks for the teacher's ranking of its neighbours (SEED,
    Fang et al., ICLR 2021, Eq. 4), the second one for the teacher's place (multilingual knowledge
    distillation, Reimers and Gurevych, EMNLP 2020, Eq. 1, on unit vectors).

    Args:
        student: Vectors of the texts by the encoder in training (N, d). They need not have unit
            length.
        teacher: Vectors by the teacher that the texts are to reach (N, d), without a gradient.
        bank: Vectors to compare with (K, d), of the teacher or of documents, without a gradient.
        temperature: Divisor of the cosines. The smaller it is, the more the nearest neighbours
            count.
        teacher_temperature: That of the teacher; a smaller one makes the student surer than it.
            Default: `temperature`.
        cosine_weight: Factor on the second term. 0 leaves it out.

    Example:
        >>> x = torch.eye(3)
        >>> loss = similarity_distillation_loss(-x, x, x, temperature=1.0, cosine_weight=0.0)
        >>> round(loss.item(), 6)
        0.462784
    """
    if teacher_temperature is None:
        teacher_temperature = temperature
    lowest_temperature = min(temperature, teacher_temperature)
    check_matrices(len(student), lowest_temperature, student=student, teacher=teacher)
    with torch.autocast(student.device.type, enabled=False):
        student = normalize_rows(student)
        teacher = normalize_rows(teacher.detach())
        bank = normalize_rows(bank.detach())
        target = (teacher @ bank.T / teacher_temperature).log_softmax(dim=1)
        learnt = (student @ bank.T / temperature).log_softmax(dim=1)
        divergence = (target.exp() * (target - learnt)).sum(dim=1)
        distance = 1 - (student * teacher).sum(dim=1)
        return (divergence + cosine_weight * distance).mean()
