"""What holds for every equation: types, rows of zeros, numbers that are none, and arguments that do not fit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret import functional as f

IDS = torch.arange(6)
ONE = torch.zeros_like(IDS)
WINDOW = IDS // 2


def context(z: Tensor, queue: Tensor) -> Tensor:
    return f.contrastive_context_loss(z, WINDOW, ONE, queue=queue, queue_language=ONE)


# The equation over matrices of six rows, how many there are, and how many of them get gradients.
EQUATIONS: dict[str, tuple[Callable[..., Tensor], int, int]] = {
    "context": (context, 2, 1),
    "info_nce": (f.info_nce_loss, 2, 2),
    "cz_nce": (f.cz_nce_loss, 2, 2),
    "retrieval": (f.retrieval_contrastive_loss, 2, 2),
    "language": (f.language_contrastive_loss, 3, 3),
    "masked sentence": (lambda p, h: f.masked_sentence_loss(p, h, WINDOW), 2, 2),
    "distillation": (f.similarity_distillation_loss, 3, 1),
    "vocabulary": (lambda hidden, weight: f.chunked_cross_entropy(hidden, weight, None, IDS), 2, 2),
}


def matrices(count: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(6, 4).to(dtype).requires_grad_() for _ in range(count)]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EQUATIONS)
def test_types(name: str, dtype: torch.dtype, autocast: bool) -> None:
    equation, count, learning = EQUATIONS[name]
    inputs = matrices(count, dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = equation(*inputs)
    loss.backward()
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    for matrix in inputs[:learning]:
        assert (
            matrix.grad is not None and matrix.grad.dtype == dtype and matrix.grad.isfinite().all()
        )
    # The projection to a vocabulary is in 16 bits where its inputs or autocast are.
    rtol, atol = (2e-2, 2e-2) if name == "vocabulary" else (1e-4, 1e-5)
    torch.testing.assert_close(
        loss.double(), equation(*(x.double() for x in inputs)), rtol=rtol, atol=atol
    )


@pytest.mark.parametrize("name", EQUATIONS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    equation, count, learning = EQUATIONS[name]
    inputs = matrices(count)
    if name == "masked sentence":  # its bias is a constant of the backward pass
        equation = lambda p, h: f.masked_sentence_loss(p, h, WINDOW, mu=0.0)  # noqa: E731
    assert torch.autograd.gradcheck(
        lambda *learnt: equation(*learnt, *inputs[learning:]), inputs[:learning]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("name", [name for name in EQUATIONS if name != "vocabulary"])
def test_a_row_of_zeros_has_no_direction_and_no_gradient(name: str, dtype: torch.dtype) -> None:
    equation, count, _ = EQUATIONS[name]
    first, *others = matrices(count, dtype)
    with torch.no_grad():
        first[2] = 0
        others[-1][3] = 0
    loss = equation(first, *others)
    loss.backward()
    assert (
        loss.isfinite()
        and first.grad is not None
        and first.grad.isfinite().all()
        and not first.grad[2].any()
    )


X, Y, OTHER = torch.ones(6, 4), torch.ones(6, 4), torch.ones(6, 3)
CCP, MSM = (X, WINDOW, ONE), (X, Y, WINDOW)


@pytest.mark.parametrize(
    ("equation", "inputs", "options", "named"),
    [
        (f.contrastive_context_loss, (X[0], WINDOW, ONE), {}, r"z.*\(4,\)"),
        (f.contrastive_context_loss, (X, IDS, ONE), {}, "window"),
        (f.contrastive_context_loss, CCP, {"document": ONE.float()}, "document.*torch.float32"),
        (f.contrastive_context_loss, CCP, {"temperature": 0.0}, "temperature 0.0"),
        (f.contrastive_context_loss, CCP, {"queue": X}, "queue_language.*None"),
        (f.cz_nce_loss, (X, Y), {"text": ONE}, r"text.*\(12,\)"),
        (f.cz_nce_loss, (X[:1], Y[:1]), {}, r"2 rows or more.*\(1, 4\)"),
        (f.language_contrastive_loss, (X, Y), {"reduction": "max"}, "'max'"),
        (f.language_contrastive_loss, (X[:1], Y[:1]), {}, "1 pairs, 0 others"),
        (f.masked_sentence_loss, (X, Y[:5], WINDOW), {}, r"h.*\(5, 4\)"),
        (
            f.masked_sentence_loss,
            MSM,
            {"predicted": ONE > 0},
            r"1 rows or more.*predicted.*\(0, 4\)",
        ),
        (f.masked_sentence_loss, MSM, {"mu": -0.5}, "got -0.5"),
        (f.masked_sentence_loss, MSM, {"num_negatives": 0}, "and 0"),
        (f.chunked_cross_entropy, (OTHER, X, None, IDS), {}, r"hidden.*\(6, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    equation: Any, inputs: tuple[Any, ...], options: Any, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        equation(*inputs, **options)
