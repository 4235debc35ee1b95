"""ContextualEncoder: a linear layer over a sentence and the mean of a word's tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from st_xlret.modules import ContextualEncoder
from st_xlret.modules.ml_ctl import mean_of_spans

START, END = torch.tensor([1, 0, 2]), torch.tensor([3, 1, 5])
MASK = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)


def test_the_mean_of_a_span(tokens: Tensor) -> None:
    expected = torch.stack([tokens[row, START[row] : END[row]].mean(0) for row in range(3)])
    torch.testing.assert_close(mean_of_spans(tokens, MASK, START, END), expected)


def test_padding_on_the_left_shifts_nothing(tokens: Tensor) -> None:
    lengths = MASK.sum(1).tolist()
    moved = torch.stack([row.roll(5 - length, 0) for row, length in zip(tokens, lengths, strict=True)])
    torch.testing.assert_close(mean_of_spans(moved, MASK.flip(1), START, END), mean_of_spans(tokens, MASK, START, END))


def test_it_is_a_linear_layer_over_both(tokens: Tensor) -> None:
    encoder = ContextualEncoder(6, 4, 3).double()
    sentence = torch.randn(3, 6, dtype=torch.float64)
    words = mean_of_spans(tokens, MASK, START, END)
    expected = torch.nn.functional.linear(torch.cat([sentence, words], 1), encoder.linear.weight, encoder.linear.bias)
    torch.testing.assert_close(encoder(sentence, tokens, MASK, START, END), expected)
    assert torch.autograd.gradcheck(lambda s, t: encoder(s, t, MASK, START, END), (sentence.requires_grad_(), tokens))


def test_sizes() -> None:
    encoder = ContextualEncoder(6)
    assert (encoder.sentence_features, encoder.token_features, encoder.out_features) == (6, 6, 6)
    with pytest.raises(ValueError, match=r"sizes must be at least 1, got.*\(-1, -1, -1\)"):
        ContextualEncoder(-1)


@pytest.mark.parametrize("start, end", [(2, 2), (3, 2), (-1, 1), (1, 6)])
def test_a_span_that_is_none_is_named(tokens: Tensor, start: int, end: int) -> None:
    starts, ends = START.clone(), END.clone()
    starts[2], ends[2] = start, end
    with pytest.raises(ValueError, match=rf"word of row 2 stands at tokens \[{start}, {end}\) of 5.*max_seq_length"):
        mean_of_spans(tokens, MASK, starts, ends)
    with pytest.raises(ValueError, match=r"row 1 stands at tokens \[0, 3\) of 2"):
        mean_of_spans(tokens, MASK, START, torch.tensor([3, 3, 5]))
