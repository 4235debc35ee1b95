"""Heads against normalisation and layers by hand, the document encoder against a loop over masked sentences."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, DocumentEncoder, ProjectionHead
from tests.functional.oracles import naive_predictions


def finish(head: AsymmetricBNHead, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    normalized = (x - mean) / (variance + head.norm.eps).sqrt() * head.norm.weight + head.norm.bias
    return head.linear_out(normalized.relu())


def by_hand(
    head: AsymmetricBNHead, steps: list[tuple[Tensor, Tensor]]
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Algorithm 1's two modes in turn: both sides of each step, and the running statistics after it."""
    features = head.linear_in.out_features
    mean, variance = torch.zeros(features), torch.ones(features)
    for step, sides in enumerate(steps):
        hidden, statistics = (
            [head.linear_in(side) for side in sides],
            [(mean, variance), (mean, variance)],
        )
        x = hidden[step % 2]
        statistics[step % 2] = x.mean(0), x.var(0, unbiased=False)
        mean, variance = (
            0.9 * mean + 0.1 * x.mean(0).detach(),
            0.9 * variance + 0.1 * x.var(0).detach(),
        )
        both = zip(hidden, statistics, strict=True)
        yield tuple(finish(head, rows, *of_rows) for rows, of_rows in both), mean, variance


def batches(count: int, rows: int = 6, features: int = 4) -> list[tuple[Tensor, Tensor]]:
    pairs = [
        (torch.randn(rows, features) * 2 + 1, torch.randn(rows, features) - 1) for _ in range(count)
    ]
    return [(centres.requires_grad_(), contexts.requires_grad_()) for centres, contexts in pairs]


def test_both_branches_over_several_steps_and_their_gradients() -> None:
    head = AsymmetricBNHead(4, 3)
    torch.nn.init.normal_(head.norm.weight)
    torch.nn.init.normal_(head.norm.bias)
    steps = batches(5)
    for step, (sides, (theirs, mean, variance)) in enumerate(
        zip(steps, by_hand(head, steps), strict=True)
    ):
        assert bool(head.toggle) == (step % 2 == 1)
        ours = head(*sides)
        torch.testing.assert_close(ours, theirs)
        inputs = [*sides, *head.parameters()]
        gradients = [
            torch.autograd.grad(sum(z.square().sum() for z in both), inputs)
            for both in (ours, theirs)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
        # Only the branch of batch statistics moves the running ones.
        torch.testing.assert_close(
            (head.norm.running_mean, head.norm.running_var), (mean, variance)
        )
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
    torch.testing.assert_close(
        torch.cat(first), finish(head, both, both.mean(0), both.var(0, unbiased=False))
    )


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


def test_a_projection_head_equals_its_layers_one_after_another() -> None:
    head = ProjectionHead(6).double()
    first, second = (nn.Linear(6, 6, bias=False) for _ in "ab")
    norms = [
        nn.BatchNorm1d(6, 1e-12, affine=affine, track_running_stats=False)
        for affine in (True, False)
    ]
    layers = nn.Sequential(first, norms[0], nn.ReLU(), second, norms[1]).double()
    layers.load_state_dict(dict(zip(layers.state_dict(), head.state_dict().values(), strict=True)))
    x = torch.randn(7, 6, dtype=torch.float64) / 100
    for mode in (True, False):
        torch.testing.assert_close(head.train(mode)(x), layers(x))


def test_the_mean_of_a_words_tokens_goes_through_two_linear_layers_beside_the_sentence() -> None:
    encoder = ContextualEncoder(6, 4, 3).double()
    sentence, tokens = (
        torch.randn(3, 6).double().requires_grad_(),
        torch.randn(3, 5, 4).double().requires_grad_(),
    )
    mask, lengths = torch.arange(5) < torch.tensor([[4], [2], [5]]), [4, 2, 5]
    start, end = torch.tensor([1, 0, 2]), torch.tensor([3, 1, 5])
    words = torch.stack([tokens[row, start[row] : end[row]].mean(0) for row in range(3)])
    hidden = torch.cat([sentence, words], 1) @ encoder.linear.weight.T + encoder.linear.bias
    expected = hidden.clamp(min=0) @ encoder.linear_out.weight.T + encoder.linear_out.bias
    torch.testing.assert_close(encoder(sentence, tokens, mask, start, end), expected)
    assert torch.autograd.gradcheck(
        lambda s, t: encoder(s, t, mask, start, end), (sentence, tokens)
    )
    # Padding on the left shifts nothing.
    moved = torch.stack(
        [row.roll(5 - length, 0) for row, length in zip(tokens, lengths, strict=True)]
    )
    torch.testing.assert_close(encoder(sentence, moved, mask.flip(1), start, end), expected)
    for first, after in ((2, 2), (3, 2), (-1, 1), (1, 6)):
        start[2], end[2] = first, after
        with pytest.raises(ValueError, match=rf"row 2 .*\[{first}, {after}\) of 5"):
            encoder(sentence, tokens, mask, start, end)


LENGTHS = (5, 2, 3, 1)


def document_encoder(layers: int = 2, **options: object) -> DocumentEncoder:
    torch.manual_seed(layers)
    made = DocumentEncoder(16, layers, 4, max_sentences=6, **{"dropout": 0.0, **options})  # type: ignore[arg-type]
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.double()


def documents() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sentences = torch.randn(
        len(LENGTHS), max(LENGTHS), 16, dtype=torch.float64, generator=generator
    )
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return sentences.requires_grad_(), mask


@pytest.mark.parametrize("rows_at_once", [4096, 40, 1])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_equals_masking_one_sentence_after_another(layers: int, rows_at_once: int) -> None:
    made = document_encoder(layers, rows_at_once=rows_at_once)
    sentences, mask = documents()
    filled = [rows[:length] for rows, length in zip(sentences, LENGTHS, strict=True)]
    expected = torch.cat(
        naive_predictions(made.layers, made.norm, made.mask_vector, made.positions.weight, filled)
    )
    predictions = made(sentences, mask)
    torch.testing.assert_close(predictions[mask], expected)
    assert not predictions[~mask].any()
    inputs, weight = [sentences, *made.parameters()], torch.randn_like(expected)
    ours, theirs = (
        torch.autograd.grad((p * weight).sum(), inputs) for p in (predictions[mask], expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_nothing_to_predict() -> None:
    made = document_encoder()
    sentences, mask = documents()
    assert made(sentences[:0], mask[:0]).shape == (0, 5, 16)
    empty = made(sentences, torch.zeros_like(mask))
    empty.sum().backward()
    assert not empty.any() and not sentences.grad.any()
    mask[2] = False
    assert made(sentences, mask).isfinite().all() and not made(sentences, mask)[2].any()


def test_dropout_acts_in_training_only_and_is_repeated_in_the_second_run() -> None:
    made = document_encoder(dropout=0.3, rows_at_once=1)
    sentences, mask = documents()
    assert not torch.allclose(made(sentences, mask), made(sentences, mask))

    # One document alone takes one go; with another after it two, and checkpointing repeats what was drawn.
    gradients = []
    for count in (1, 2):
        torch.manual_seed(0)
        predictions = made(sentences[:count], mask[:count])
        gradients.append(torch.autograd.grad(predictions[0].pow(2).sum(), made.mask_vector)[0])
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        evaluated = made(sentences, mask)
    assert all(module.training for module in made.modules())
    torch.testing.assert_close(evaluated, made.eval()(sentences, mask))
