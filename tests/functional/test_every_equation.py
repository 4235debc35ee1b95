"""Of every equation: types, rows of zeros, gradients, and arguments that do not fit."""

from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret import functional as f
from tests.losses.examples import ALL_ONE, EXAMPLES, IDS, IN_PAIRS


def matrices(count: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(6, 4).to(dtype).requires_grad_() for _ in range(count)]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EXAMPLES)
def test_types(name: str, dtype: torch.dtype, autocast: bool) -> None:
    example = EXAMPLES[name].six_rows
    inputs = matrices(example.matrices, dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = example.equation(*inputs)
    loss.backward()
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    for matrix in inputs[: example.learnt]:
        assert matrix.grad is not None
        assert matrix.grad.dtype == dtype
        assert matrix.grad.isfinite().all()
    exact = example.equation(*[matrix.double() for matrix in inputs])
    tolerance = example.tolerance
    torch.testing.assert_close(loss.double(), exact, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    example = EXAMPLES[name].six_rows
    equation = example.differentiable or example.equation
    inputs = matrices(example.matrices)
    constants = inputs[example.learnt :]
    assert torch.autograd.gradcheck(
        lambda *learnt: equation(*learnt, *constants), inputs[: example.learnt]
    )


DIRECTIONS = [name for name, example in EXAMPLES.items() if example.six_rows.of_directions]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("name", DIRECTIONS)
def test_a_row_of_zeros_has_no_direction_and_no_gradient(name: str, dtype: torch.dtype) -> None:
    example = EXAMPLES[name].six_rows
    first, *others = matrices(example.matrices, dtype)
    with torch.no_grad():
        first[2] = 0
        others[-1][3] = 0
    loss = example.equation(first, *others)
    loss.backward()
    assert loss.isfinite()
    assert first.grad is not None and first.grad.isfinite().all()
    assert not first.grad[2].any()


X = torch.ones(6, 4)
Y = torch.ones(6, 4)
NARROWER = torch.ones(6, 3)
CCP = (X, IN_PAIRS, ALL_ONE)
MSM = (X, Y, IN_PAIRS)
NOTHING = torch.zeros(6, dtype=torch.bool)


@pytest.mark.parametrize(
    ("equation", "inputs", "options", "named"),
    [
        (f.contrastive_context_loss, (X[0], IN_PAIRS, ALL_ONE), {}, r"z.*\(4,\)"),
        (f.contrastive_context_loss, (X, IDS, ALL_ONE), {}, "window"),
        (f.contrastive_context_loss, CCP, {"document": ALL_ONE.float()}, "document.*float32"),
        (f.contrastive_context_loss, CCP, {"temperature": 0.0}, "temperature 0.0"),
        (f.contrastive_context_loss, CCP, {"queue": X}, "queue_language.*None"),
        (f.cz_nce_loss, (X, Y), {"text": ALL_ONE}, r"text.*\(12,\)"),
        (f.cz_nce_loss, (X[:1], Y[:1]), {}, r"2 rows or more.*\(1, 4\)"),
        (f.language_contrastive_loss, (X, Y), {"reduction": "max"}, "'max'"),
        (f.language_contrastive_loss, (X[:1], Y[:1]), {}, "1 pairs, 0 others"),
        (f.masked_sentence_loss, (X, Y[:5], IN_PAIRS), {}, r"h.*\(5, 4\)"),
        (f.masked_sentence_loss, MSM, {"predicted": NOTHING}, r"1 rows or.*predicted.*\(0, 4\)"),
        (f.masked_sentence_loss, MSM, {"mu": -0.5}, "got -0.5"),
        (f.masked_sentence_loss, MSM, {"num_negatives": 0}, "and 0"),
        (f.chunked_cross_entropy, (NARROWER, X, None, IDS), {}, r"hidden.*\(6, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    equation: Any, inputs: tuple[Any, ...], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        equation(*inputs, **options)
