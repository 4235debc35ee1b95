"""What holds for every equation: types, rows of zeros, numbers that are none, and arguments that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.functional import (
    chunked_cross_entropy,
    contrastive_context_loss,
    cz_nce_loss,
    info_nce_loss,
    language_contrastive_loss,
    masked_sentence_loss,
    retrieval_contrastive_loss,
    similarity_distillation_loss,
)

IDS = torch.arange(6)
ONE = torch.zeros_like(IDS)
WINDOW = IDS // 2


def context(z: Tensor, queue: Tensor) -> Tensor:
    return contrastive_context_loss(z, WINDOW, ONE, queue=queue, queue_language=ONE)


# The equation over matrices of six rows, how many there are, and how many of them get gradients.
EQUATIONS: dict[str, tuple[Callable[..., Tensor], int, int]] = {
    "context": (context, 2, 1),
    "info_nce": (info_nce_loss, 2, 2),
    "cz_nce": (cz_nce_loss, 2, 2),
    "retrieval": (retrieval_contrastive_loss, 2, 2),
    "language": (language_contrastive_loss, 3, 3),
    "masked sentence": (lambda p, h: masked_sentence_loss(p, h, WINDOW), 2, 2),
    "distillation": (similarity_distillation_loss, 3, 1),
}


def matrices(count: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(6, 4).to(dtype).requires_grad_() for _ in range(count)]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EQUATIONS)
def test_types(name: str, dtype: torch.dtype, autocast: bool) -> None:
    equation, count, learning = EQUATIONS[name]
    given = matrices(count, dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = equation(*given)
    loss.backward()
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    for matrix in given[:learning]:
        assert matrix.grad is not None and matrix.grad.dtype == dtype and matrix.grad.isfinite().all()
    torch.testing.assert_close(loss.double(), equation(*(x.double() for x in given)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("name", EQUATIONS)
def test_a_row_of_zeros_has_no_direction_and_no_gradient(name: str, dtype: torch.dtype) -> None:
    equation, count, _ = EQUATIONS[name]
    first, *others = matrices(count, dtype)
    with torch.no_grad():
        first[2] = 0
        others[-1][3] = 0
    loss = equation(first, *others)
    loss.backward()
    assert loss.isfinite() and first.grad is not None and first.grad.isfinite().all() and not first.grad[2].any()


@pytest.mark.parametrize("name", EQUATIONS)
def test_nan_stays_visible(name: str) -> None:
    equation, count, _ = EQUATIONS[name]
    first, *others = (matrix.detach() for matrix in matrices(count))
    first[2, 1] = torch.nan
    assert equation(first, *others).isnan()


X, Y, OTHER = torch.ones(6, 4), torch.ones(6, 4), torch.ones(6, 3)
QUEUE: dict[str, Any] = {"queue": X, "queue_language": ONE}
CCP, MSM = (X, WINDOW, ONE), (X, Y, WINDOW)


@pytest.mark.parametrize(
    ("equation", "given", "options", "message"),
    [
        (contrastive_context_loss, (X[0], WINDOW, ONE), {}, r"z must have two axes.*\(4,\)"),
        (contrastive_context_loss, (X.long(), WINDOW, ONE), {}, "z must be floating point, got torch.int64"),
        (contrastive_context_loss, (X, WINDOW[:3], ONE), {}, r"window must have shape \(6,\).*got \(3,\)"),
        (contrastive_context_loss, (X, IDS, ONE), {}, "no positive pair"),
        (contrastive_context_loss, CCP, {"document": ONE.float()}, "document must hold integers, got torch.float32"),
        (contrastive_context_loss, CCP, {"text": ONE[:5]}, "text must have shape"),
        (contrastive_context_loss, CCP, {"temperature": 0.0}, "temperature must be positive, got 0.0"),
        (contrastive_context_loss, CCP, {"temperature": float("nan")}, "temperature must be positive, got nan"),
        (contrastive_context_loss, CCP, {"queue": X[0]}, "queue must have two axes"),
        (contrastive_context_loss, CCP, QUEUE | {"queue": OTHER}, "queue has 3 features and z has 4"),
        (contrastive_context_loss, CCP, {"queue": X}, "queue_language is needed"),
        (contrastive_context_loss, CCP, QUEUE | {"queue_language": ONE[:2]}, "queue_language must have shape"),
        (contrastive_context_loss, CCP, QUEUE | {"document": ONE}, "queue_document is needed"),
        (info_nce_loss, (X, Y[:3]), {}, r"row-aligned, got shapes \(6, 4\) and \(3, 4\)"),
        (info_nce_loss, (X, Y), {"temperature": -1}, "temperature must be positive, got -1"),
        (info_nce_loss, (X, Y), {"text": ONE}, r"text must have shape \(12,\)"),
        (info_nce_loss, (X[:0], Y[:0]), {}, "no positive pair"),
        (cz_nce_loss, (X, Y[0]), {}, "y must have two axes"),
        (cz_nce_loss, (X, Y), {"temperature": 0}, "temperature must be positive, got 0"),
        (cz_nce_loss, (X, Y), {"text": ONE}, r"text must have shape \(12,\)"),
        (cz_nce_loss, (X[:1], Y[:1]), {}, "CZ-NCE needs at least 2 pairs in a batch, got 1.*larger batch"),
        (retrieval_contrastive_loss, (X, Y[:2]), {}, r"a gold passage for each.*\(6, 4\).*\(2, 4\)"),
        (retrieval_contrastive_loss, (X[:0], Y), {}, "there must be queries"),
        (retrieval_contrastive_loss, (X, OTHER), {}, "one number of features"),
        (retrieval_contrastive_loss, (X[0], Y), {}, "queries must have two axes"),
        (retrieval_contrastive_loss, (X, Y), {"temperature": 0.0}, "temperature.*0.0"),
        (retrieval_contrastive_loss, (X, Y), {"passage_text": ONE[:3]}, "passage_text must have shape"),
        (language_contrastive_loss, (X, Y, X[0]), {}, "others must have two axes"),
        (language_contrastive_loss, (X, Y, OTHER), {}, "others has 3 features and x has 4"),
        (language_contrastive_loss, (X, Y), {"reduction": "max"}, "must be 'mean', 'sum' or 'paper', got 'max'"),
        (language_contrastive_loss, (X[:1], Y[:1]), {}, "got 1 pairs and 0 others"),
        (language_contrastive_loss, (X[:0], Y[:0], X[:3]), {}, "got 0 pairs and 3"),
        (masked_sentence_loss, (X, Y[:5], WINDOW), {}, r"row-aligned, got shapes \(6, 4\) and \(5, 4\)"),
        (masked_sentence_loss, (X, Y, WINDOW[:3]), {}, r"document must have shape \(6,\)"),
        (masked_sentence_loss, MSM, {"temperature": 0}, "temperature must be positive, got 0"),
        (masked_sentence_loss, MSM, {"mu": -0.1}, "mu must not be negative, got -0.1"),
        (masked_sentence_loss, MSM, {"num_negatives": 0}, "num_negatives must be at least 1, or None for all, got 0"),
        (masked_sentence_loss, MSM, {"predicted": ONE}, "predicted must be boolean"),
        (masked_sentence_loss, MSM, {"predicted": ONE > 0}, "none of the 6 rows is to be predicted"),
        (similarity_distillation_loss, (X, Y[:3], X), {}, r"\(6, 4\).*\(3, 4\)"),
        (similarity_distillation_loss, (X, Y, OTHER), {}, r"\(6, 3\)"),
        (similarity_distillation_loss, (X[:0], Y[:0], X), {}, r"\(0, 4\)"),
        (similarity_distillation_loss, (X, Y, X[:0]), {}, r"\(0, 4\)"),
        (similarity_distillation_loss, (X, Y, X), {"temperature": 0.0}, "temperature"),
        (similarity_distillation_loss, (X, Y, X), {"cosine_weight": -1.0}, "cosine_weight.*-1"),
        (chunked_cross_entropy, (X, X, None, IDS + 1), {}, r"labels must lie in \[0, 6\), got 1..6"),
        (chunked_cross_entropy, (X, X, None, IDS - 100), {}, r"labels must lie in \[0, 6\), got -100..-95"),
        (chunked_cross_entropy, (X, X, None, IDS[:2]), {}, r"labels must have shape \(6,\)"),
        (chunked_cross_entropy, (OTHER, X, None, IDS), {}, r"hidden \(6, 3\) and weight \(6, 4\) differ"),
        (chunked_cross_entropy, (X, X, X[0], IDS), {}, r"bias must have shape \(6,\), got \(4,\)"),
    ],
)
def test_what_does_not_fit_is_refused(equation: Any, given: tuple[Any, ...], options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        equation(*given, **options)
