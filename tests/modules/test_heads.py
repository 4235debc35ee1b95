"""Heads against normalisation and layers by hand."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, ProjectionHead


def finish(head: AsymmetricBNHead, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    normalized = (x - mean) / (variance + head.norm.eps).sqrt()
    scaled = normalized * head.norm.weight + head.norm.bias
    return head.linear_out(scaled.relu())


class Step(NamedTuple):
    """Both projected sides of a step, and the running statistics after it."""

    centres: Tensor
    contexts: Tensor
    mean: Tensor
    variance: Tensor


def by_hand(head: AsymmetricBNHead, batches: list[tuple[Tensor, Tensor]]) -> Iterator[Step]:
    """Algorithm 1's two modes in turn: even steps have the batch statistics of the centres."""
    mean = torch.zeros(head.linear_in.out_features)
    variance = torch.ones(head.linear_in.out_features)
    for number, (centres, contexts) in enumerate(batches):
        hidden = [head.linear_in(centres), head.linear_in(contexts)]
        statistics = [(mean, variance), (mean, variance)]
        x = hidden[number % 2]
        statistics[number % 2] = (x.mean(0), x.var(0, unbiased=False))
        mean = 0.9 * mean + 0.1 * x.mean(0).detach()
        variance = 0.9 * variance + 0.1 * x.var(0).detach()
        first = finish(head, hidden[0], *statistics[0])
        second = finish(head, hidden[1], *statistics[1])
        yield Step(first, second, mean, variance)


def batches(count: int, rows: int = 6, features: int = 4) -> list[tuple[Tensor, Tensor]]:
    made = []
    for _ in range(count):
        centres = torch.randn(rows, features) * 2 + 1
        contexts = torch.randn(rows, features) - 1
        made.append((centres.requires_grad_(), contexts.requires_grad_()))
    return made


def test_both_branches_over_several_steps_and_their_gradients() -> None:
    head = AsymmetricBNHead(4, 3)
    torch.nn.init.normal_(head.norm.weight)
    torch.nn.init.normal_(head.norm.bias)
    steps = batches(5)
    for number, (sides, expected) in enumerate(zip(steps, by_hand(head, steps), strict=True)):
        assert bool(head.toggle) == (number % 2 == 1)
        centres, contexts = head(*sides)
        torch.testing.assert_close(centres, expected.centres)
        torch.testing.assert_close(contexts, expected.contexts)
        inputs = [*sides, *head.parameters()]
        ours = centres.square().sum() + contexts.square().sum()
        theirs = expected.centres.square().sum() + expected.contexts.square().sum()
        torch.testing.assert_close(
            torch.autograd.grad(ours, inputs),
            torch.autograd.grad(theirs, inputs),
            rtol=1e-4,
            atol=1e-4,
        )
        # Only the branch of batch statistics moves the running ones.
        torch.testing.assert_close(head.norm.running_mean, expected.mean)
        torch.testing.assert_close(head.norm.running_var, expected.variance)
        assert head.norm.num_batches_tracked == number + 1


@torch.no_grad()
def test_an_evaluation_has_the_statistics_of_both_sides() -> None:
    head = AsymmetricBNHead(4)
    ((x, y),) = batches(1)
    both = head.linear_in(torch.cat([x, y]))
    expected = finish(head, both, both.mean(0), both.var(0, unbiased=False))
    torch.testing.assert_close(torch.cat(head(x, y)), expected)
    torch.testing.assert_close(torch.cat(head.eval()(x, y)), expected)


def test_an_evaluation_changes_nothing_and_reads_nothing_that_training_fills() -> None:
    head = AsymmetricBNHead(4)
    (centres, contexts), (x, y) = batches(2)
    with torch.no_grad():
        before_training = head(x, y)
    head(centres, contexts)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with torch.no_grad():
        torch.testing.assert_close(head(x, y), before_training, rtol=0, atol=0)
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_vanilla_normalization_mixes_both_sides() -> None:
    head = AsymmetricBNHead(4, normalization="batch")
    ((centres, contexts),) = batches(1)
    hidden = head.linear_in(torch.cat([centres, contexts]))
    expected = finish(head, hidden, hidden.mean(0), hidden.var(0, unbiased=False))
    torch.testing.assert_close(torch.cat(head(centres, contexts)), expected)
    torch.testing.assert_close(head.norm.running_mean, 0.1 * hidden.mean(0))
    assert not head.toggle


def test_without_normalization_it_is_two_linear_layers() -> None:
    head = AsymmetricBNHead(4, normalization="none")
    ((centres, contexts),) = batches(1)
    z_centres, z_contexts = head(centres, contexts[:1])
    torch.testing.assert_close(z_centres, head.linear_out(head.linear_in(centres).relu()))
    assert z_contexts.shape == (1, 4)
    assert not head.toggle


@pytest.mark.parametrize("training", [True, False])
def test_a_projection_head_equals_its_layers_one_after_another(training: bool) -> None:
    head = ProjectionHead(6).double().train(training)
    layers = nn.Sequential(
        nn.Linear(6, 6, bias=False),
        nn.BatchNorm1d(6, 1e-12, track_running_stats=False),
        nn.ReLU(),
        nn.Linear(6, 6, bias=False),
        nn.BatchNorm1d(6, 1e-12, affine=False, track_running_stats=False),
    ).double()
    for ours, theirs in zip(head.parameters(), layers.parameters(), strict=True):
        theirs.data = ours.data
    x = torch.randn(7, 6, dtype=torch.float64) / 100
    torch.testing.assert_close(head(x), layers(x))


# Words in sentences

LENGTHS = [4, 2, 5]
START = torch.tensor([1, 0, 2])
END = torch.tensor([3, 1, 5])
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


class Words(NamedTuple):
    """An encoder, and sentences with their tokens."""

    encoder: ContextualEncoder
    sentence: Tensor
    tokens: Tensor


def words() -> Words:
    sentence = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    tokens = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    return Words(ContextualEncoder(6, 4, 3).double(), sentence, tokens)


def test_the_mean_of_a_words_tokens_goes_through_two_linear_layers_beside_the_sentence() -> None:
    encoder, sentence, tokens = words()
    means = []
    for row in range(3):
        means.append(tokens[row, START[row] : END[row]].mean(0))
    both = torch.cat([sentence, torch.stack(means)], 1)
    hidden = both @ encoder.linear.weight.T + encoder.linear.bias
    expected = hidden.clamp(min=0) @ encoder.linear_out.weight.T + encoder.linear_out.bias
    torch.testing.assert_close(encoder(sentence, tokens, MASK, START, END), expected)
    assert torch.autograd.gradcheck(
        lambda s, t: encoder(s, t, MASK, START, END), (sentence, tokens)
    )


def test_padding_on_the_left_shifts_no_word() -> None:
    encoder, sentence, tokens = words()
    moved = []
    for row, length in zip(tokens, LENGTHS, strict=True):
        moved.append(row.roll(5 - length, 0))
    torch.testing.assert_close(
        encoder(sentence, torch.stack(moved), MASK.flip(1), START, END),
        encoder(sentence, tokens, MASK, START, END),
    )


@pytest.mark.parametrize(("first", "after"), [(2, 2), (3, 2), (-1, 1), (1, 6)])
def test_a_word_that_is_not_in_its_text_is_named(first: int, after: int) -> None:
    encoder, sentence, tokens = words()
    start = START.clone()
    end = END.clone()
    start[2] = first
    end[2] = after
    with pytest.raises(ValueError, match=rf"row 2 .*\[{first}, {after}\) of 5"):
        encoder(sentence, tokens, MASK, start, end)
