"""Cross-entropy in chunks against that of all logits at once."""

import pytest
import torch
import torch.nn.functional as F

from st_xlret import functional as f

LABELS = torch.tensor([0, 3, 10, 3, 5, 1, 9])


@pytest.mark.parametrize("most_logits", [1, 25, 10_000])  # one row at a time, some, or all
@pytest.mark.parametrize("frozen", [None, 0, 1, 2])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_equals_the_cross_entropy_of_all_logits(
    monkeypatch: pytest.MonkeyPatch,
    scale: float,
    with_bias: bool,
    frozen: int | None,
    most_logits: int,
) -> None:
    monkeypatch.setattr(f.vocabulary, "_MOST_LOGITS", most_logits)
    hidden = scale * torch.randn(7, 4, dtype=torch.float64)
    weight = scale * torch.randn(11, 4, dtype=torch.float64)
    bias = scale * torch.randn(11, dtype=torch.float64) if with_bias else None
    learnt = []
    for number, matrix in enumerate([hidden, weight, bias]):
        if matrix is not None and number != frozen:
            learnt.append(matrix.requires_grad_())
    loss = f.chunked_cross_entropy(hidden, weight, bias, LABELS)
    expected = F.cross_entropy(F.linear(hidden, weight, bias), LABELS)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(3 * loss, learnt, retain_graph=True)
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, learnt))
    with pytest.raises(RuntimeError):  # they are scaled in place, and serve once
        torch.autograd.grad(3 * loss, learnt)


def test_no_rows_give_zero_and_a_graph() -> None:
    hidden = torch.randn(0, 4, requires_grad=True)
    weight = torch.randn(11, 4, requires_grad=True)
    nothing = f.chunked_cross_entropy(hidden, weight, None, LABELS[:0])
    assert nothing == 0
    for gradient in torch.autograd.grad(nothing, [hidden, weight]):
        assert not gradient.any()
