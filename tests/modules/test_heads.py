"""Heads against batch normalisation and layers written out by hand; the mean of the tokens of a word."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, ProjectionHead
from st_xlret.modules.heads import mean_of_spans


@dataclass
class ByHand:
    """Algorithm 1's two modes, with running statistics kept by hand."""

    head: AsymmetricBNHead
    centres_by_batch: bool = True

    def __post_init__(self) -> None:
        features = self.head.linear_in.out_features
        self.mean, self.variance = torch.zeros(features), torch.ones(features)

    def step(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        hidden = {True: self.head.linear_in(centres), False: self.head.linear_in(contexts)}
        learning, fixed = self.centres_by_batch, not self.centres_by_batch
        x = hidden[learning]
        mean, variance = x.mean(0), x.var(0, unbiased=False)
        result = {
            learning: self.finish(x, mean, variance),
            fixed: self.finish(hidden[fixed], self.mean, self.variance),
        }
        self.mean = 0.9 * self.mean + 0.1 * mean.detach()
        self.variance = 0.9 * self.variance + 0.1 * x.var(0).detach()
        self.centres_by_batch = not self.centres_by_batch
        return result[True], result[False]

    def finish(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        norm = self.head.norm
        normalized = (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
        return self.head.linear_out(normalized.relu())


def batches(count: int, rows: int = 6, features: int = 4) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(rows, features) * 2 + 1, torch.randn(rows, features) - 1) for _ in range(count)]


def test_both_branches_over_several_steps_and_their_gradients() -> None:
    head = AsymmetricBNHead(4, 3)
    torch.nn.init.normal_(head.norm.weight)
    torch.nn.init.normal_(head.norm.bias)
    by_hand = ByHand(head)
    for step, (centres, contexts) in enumerate(batches(5)):
        assert bool(head.toggle) == (step % 2 == 1)
        inputs = [centres.requires_grad_(), contexts.requires_grad_(), *head.parameters()]
        ours, theirs = head(centres, contexts), by_hand.step(centres, contexts)
        torch.testing.assert_close(ours, theirs)
        gradients = [torch.autograd.grad(sum(z.square().sum() for z in sides), inputs) for sides in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
        # Only the branch of batch statistics moves the running ones.
        torch.testing.assert_close(head.norm.running_mean, by_hand.mean)
        torch.testing.assert_close(head.norm.running_var, by_hand.variance)
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
    head.eval()
    for ours, theirs in zip(first, head(x, y), strict=True):
        torch.testing.assert_close(ours, theirs)
    both = head.linear_in(torch.cat([x, y]))
    torch.testing.assert_close(torch.cat(first), ByHand(head).finish(both, both.mean(0), both.var(0, unbiased=False)))


def test_vanilla_normalization_mixes_both_sides() -> None:
    head = AsymmetricBNHead(4, normalization="batch")
    (centres, contexts), *_ = batches(1)
    ours = torch.cat(head(centres, contexts))
    hidden = head.linear_in(torch.cat([centres, contexts]))
    expected = ByHand(head).finish(hidden, hidden.mean(0), hidden.var(0, unbiased=False))
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(head.norm.running_mean, 0.1 * hidden.mean(0))
    assert not head.toggle


def test_without_normalization_it_is_two_linear_layers() -> None:
    head = AsymmetricBNHead(4, normalization="none")
    (centres, contexts), *_ = batches(1)
    z_centres, z_contexts = head(centres, contexts[:1])
    torch.testing.assert_close(z_centres, head.linear_out(head.linear_in(centres).relu()))
    assert z_contexts.shape == (1, 4) and not head.toggle


@pytest.mark.parametrize("normalization", ["asymmetric", "batch", "none"])
def test_a_restored_head_continues_as_the_saved_one(normalization: str) -> None:
    head = AsymmetricBNHead(4, normalization=normalization)  # type: ignore[arg-type]
    first, second, third = batches(3)
    head(*first)
    restored = AsymmetricBNHead(4, normalization=normalization)  # type: ignore[arg-type]
    restored.load_state_dict(head.state_dict())
    for batch in (second, third):
        for ours, theirs in zip(restored(*batch), head(*batch), strict=True):
            assert torch.equal(ours, theirs)
    assert all(torch.equal(a, b) for a, b in zip(restored.buffers(), head.buffers(), strict=True))


def test_a_single_row_has_no_statistics() -> None:
    head = AsymmetricBNHead(4)
    with pytest.raises(ValueError, match=r"\[1, 4\]"):
        head(torch.randn(1, 4), torch.randn(1, 4))
    assert not head.toggle and not head.norm.running_mean.any()
    with pytest.raises(ValueError, match="'layer'"):
        AsymmetricBNHead(4, normalization="layer")  # type: ignore[arg-type]


def test_a_projection_head_equals_its_layers_one_after_another() -> None:
    head = ProjectionHead(6).double()
    layers = nn.Sequential(
        nn.Linear(6, 6, bias=False),
        nn.BatchNorm1d(6, eps=1e-12, track_running_stats=False),
        nn.ReLU(),
        nn.Linear(6, 6, bias=False),
        nn.BatchNorm1d(6, eps=1e-12, affine=False, track_running_stats=False),
    ).double()
    layers.load_state_dict(dict(zip(layers.state_dict(), head.state_dict().values(), strict=True)))
    x = torch.randn(7, 6, dtype=torch.float64) / 100
    for mode in (True, False):
        torch.testing.assert_close(head.train(mode)(x), layers(x))


def test_vectors_of_a_16_bit_encoder_are_projected_in_the_heads_type() -> None:
    x = torch.randn(4, 6)
    for low in (torch.bfloat16, torch.float16):
        head = ProjectionHead(6)
        assert head(x.to(low)).dtype == torch.float32
        pair = AsymmetricBNHead(6)(x.to(low), x.to(low))
        assert [side.dtype for side in pair] == [torch.float32, torch.float32]


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


def test_it_is_two_linear_layers_over_both(tokens: Tensor) -> None:
    assert [tuple(weight.shape) for weight in ContextualEncoder(6).parameters()] == [(12, 12), (12,), (12, 12), (12,)]
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
    with pytest.raises(ValueError, match=r"row 1 .*\[0, 3\) of 2"):
        mean_of_spans(tokens, MASK, START, torch.tensor([3, 3, 5]))
