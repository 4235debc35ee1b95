"""Heads against batch normalisation and layers written out by hand; the mean of the tokens of a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, ProjectionHead
from st_xlret.modules.heads import mean_of_spans


def finish(head: AsymmetricBNHead, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    normalized = (x - mean) / (variance + head.norm.eps).sqrt() * head.norm.weight + head.norm.bias
    return head.linear_out(normalized.relu())


def by_hand(head: AsymmetricBNHead, steps: list[tuple[Tensor, Tensor]]) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Algorithm 1's two modes in turn: both sides of each step, and the running statistics after it."""
    features = head.linear_in.out_features
    mean, variance = torch.zeros(features), torch.ones(features)
    for step, sides in enumerate(steps):
        hidden, statistics = [head.linear_in(side) for side in sides], [(mean, variance), (mean, variance)]
        x = hidden[step % 2]
        statistics[step % 2] = x.mean(0), x.var(0, unbiased=False)
        mean, variance = 0.9 * mean + 0.1 * x.mean(0).detach(), 0.9 * variance + 0.1 * x.var(0).detach()
        both = zip(hidden, statistics, strict=True)
        yield tuple(finish(head, rows, *of_rows) for rows, of_rows in both), mean, variance


def batches(count: int, rows: int = 6, features: int = 4) -> list[tuple[Tensor, Tensor]]:
    pairs = [(torch.randn(rows, features) * 2 + 1, torch.randn(rows, features) - 1) for _ in range(count)]
    return [(centres.requires_grad_(), contexts.requires_grad_()) for centres, contexts in pairs]


def test_both_branches_over_several_steps_and_their_gradients() -> None:
    head = AsymmetricBNHead(4, 3)
    torch.nn.init.normal_(head.norm.weight)
    torch.nn.init.normal_(head.norm.bias)
    steps = batches(5)
    for step, (sides, (theirs, mean, variance)) in enumerate(zip(steps, by_hand(head, steps), strict=True)):
        assert bool(head.toggle) == (step % 2 == 1)
        ours = head(*sides)
        torch.testing.assert_close(ours, theirs)
        inputs = [*sides, *head.parameters()]
        gradients = [torch.autograd.grad(sum(z.square().sum() for z in both), inputs) for both in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
        # Only the branch of batch statistics moves the running ones.
        torch.testing.assert_close((head.norm.running_mean, head.norm.running_var), (mean, variance))
        assert head.norm.num_batches_tracked == step + 1


def test_calls_without_gradients_change_nothing_and_read_nothing_that_training_fills() -> None:
    head = AsymmetricBNHead(4)
    (centres, contexts), (x, y) = batches(2)
    with torch.no_grad():
        before_training = head(x, y)
    head(centres, contexts)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with torch.no_grad():
        first = head(x, y)
        torch.testing.assert_close(first, before_training, rtol=0, atol=0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())
    torch.testing.assert_close(first, head.eval()(x, y))
    both = head.linear_in(torch.cat([x, y]))
    torch.testing.assert_close(torch.cat(first), finish(head, both, both.mean(0), both.var(0, unbiased=False)))


def test_vanilla_normalization_mixes_both_sides_and_none_is_two_linear_layers() -> None:
    vanilla, plain = (AsymmetricBNHead(4, normalization=kind) for kind in ("batch", "none"))  # type: ignore[arg-type]
    (centres, contexts), *_ = batches(1)
    hidden = vanilla.linear_in(torch.cat([centres, contexts]))
    expected = finish(vanilla, hidden, hidden.mean(0), hidden.var(0, unbiased=False))
    torch.testing.assert_close(torch.cat(vanilla(centres, contexts)), expected)
    torch.testing.assert_close(vanilla.norm.running_mean, 0.1 * hidden.mean(0))
    z_centres, z_contexts = plain(centres, contexts[:1])
    torch.testing.assert_close(z_centres, plain.linear_out(plain.linear_in(centres).relu()))
    assert z_contexts.shape == (1, 4) and not plain.toggle and not vanilla.toggle


def test_a_restored_head_continues_as_the_saved_one() -> None:
    head, restored = AsymmetricBNHead(4), AsymmetricBNHead(4)
    first, second, third = batches(3)
    head(*first)
    restored.load_state_dict(head.state_dict())
    for batch in (second, third):
        torch.testing.assert_close(restored(*batch), head(*batch), rtol=0, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(restored.buffers(), head.buffers(), strict=True))


def test_a_projection_head_equals_its_layers_one_after_another() -> None:
    head = ProjectionHead(6).double()
    first, second = (nn.Linear(6, 6, bias=False) for _ in "ab")
    norms = [nn.BatchNorm1d(6, 1e-12, affine=affine, track_running_stats=False) for affine in (True, False)]
    layers = nn.Sequential(first, norms[0], nn.ReLU(), second, norms[1]).double()
    layers.load_state_dict(dict(zip(layers.state_dict(), head.state_dict().values(), strict=True)))
    x = torch.randn(7, 6, dtype=torch.float64) / 100
    for mode in (True, False):
        torch.testing.assert_close(head.train(mode)(x), layers(x))


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_vectors_of_a_16_bit_encoder_are_projected_in_the_heads_type(low: torch.dtype) -> None:
    x = torch.randn(4, 6).to(low)
    assert {side.dtype for side in (ProjectionHead(6)(x), *AsymmetricBNHead(6)(x, x))} == {torch.float32}


START, END = torch.tensor([1, 0, 2]), torch.tensor([3, 1, 5])
MASK = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)


def test_the_mean_of_a_span_and_padding_on_the_left_that_shifts_nothing(tokens: Tensor) -> None:
    expected = torch.stack([tokens[row, START[row] : END[row]].mean(0) for row in range(3)])
    torch.testing.assert_close(mean_of_spans(tokens, MASK, START, END), expected)
    lengths = MASK.sum(1).tolist()
    moved = torch.stack([row.roll(5 - length, 0) for row, length in zip(tokens, lengths, strict=True)])
    torch.testing.assert_close(mean_of_spans(moved, MASK.flip(1), START, END), expected)


def test_it_is_two_linear_layers_over_both(tokens: Tensor) -> None:
    encoder = ContextualEncoder(6, 4, 3).double()
    sentence = torch.randn(3, 6, dtype=torch.float64)
    words = mean_of_spans(tokens, MASK, START, END)
    hidden = torch.cat([sentence, words], 1) @ encoder.linear.weight.T + encoder.linear.bias
    expected = hidden.clamp(min=0) @ encoder.linear_out.weight.T + encoder.linear_out.bias
    torch.testing.assert_close(encoder(sentence, tokens, MASK, START, END), expected)
    assert torch.autograd.gradcheck(lambda s, t: encoder(s, t, MASK, START, END), (sentence.requires_grad_(), tokens))


@pytest.mark.parametrize("start, end", [(2, 2), (3, 2), (-1, 1), (1, 6)])
def test_a_span_that_is_none_is_named(tokens: Tensor, start: int, end: int) -> None:
    starts, ends = START.clone(), END.clone()
    starts[2], ends[2] = start, end
    with pytest.raises(ValueError, match=rf"row 2 .*\[{start}, {end}\) of 5"):
        mean_of_spans(tokens, MASK, starts, ends)
