"""AsymmetricBNHead against batch normalisation written out by hand; ProjectionHead against its layers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from st_xlret.modules import AsymmetricBNHead, ProjectionHead


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


def test_both_branches_over_several_steps() -> None:
    head = AsymmetricBNHead(4, 3)
    torch.nn.init.normal_(head.norm.weight)
    torch.nn.init.normal_(head.norm.bias)
    by_hand = ByHand(head)
    for step, (centres, contexts) in enumerate(batches(5)):
        assert bool(head.toggle) == (step % 2 == 1)
        for ours, expected in zip(head(centres, contexts), by_hand.step(centres, contexts), strict=True):
            torch.testing.assert_close(ours, expected)
        # Only the branch of batch statistics moves the running ones.
        torch.testing.assert_close(head.norm.running_mean, by_hand.mean)
        torch.testing.assert_close(head.norm.running_var, by_hand.variance)
        assert head.norm.num_batches_tracked == step + 1


def test_gradients_equal_those_of_the_hand_written_steps() -> None:
    head = AsymmetricBNHead(4, 3)
    by_hand = ByHand(head)
    for centres, contexts in batches(3):
        inputs = [centres.requires_grad_(), contexts.requires_grad_(), *head.parameters()]
        ours = torch.autograd.grad(sum(z.square().sum() for z in head(centres, contexts)), inputs)
        theirs = torch.autograd.grad(sum(z.square().sum() for z in by_hand.step(centres, contexts)), inputs)
        assert all(gradient.abs().sum() > 0 for gradient in ours[:2])
        for gradient, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


def test_calls_without_gradients_change_nothing_and_read_running_statistics() -> None:
    head = AsymmetricBNHead(4)
    (centres, contexts), (x, y) = batches(2)
    head(centres, contexts)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with torch.no_grad():
        first = head(x, y)
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())
    head.eval()
    for ours, theirs in zip(first, head(x, y), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(first[0], ByHand(head).finish(head.linear_in(x), *statistics(head)))


def statistics(head: AsymmetricBNHead) -> tuple[Tensor, Tensor]:
    return head.norm.running_mean, head.norm.running_var


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
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with pytest.raises(ValueError, match="at least 2 rows.*got 1.*normalization='none'"):
        head(torch.randn(1, 4), torch.randn(1, 4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


def test_wrong_options() -> None:
    for sizes in ((0,), (4, -1)):
        with pytest.raises(ValueError, match=f"sizes must be at least 1, got .*{sizes[-1]}"):
            AsymmetricBNHead(*sizes)
    with pytest.raises(ValueError, match="normalization must be.*'layer'"):
        AsymmetricBNHead(4, normalization="layer")  # type: ignore[arg-type]


def test_a_projection_head_equals_its_layers_one_after_another() -> None:
    head = ProjectionHead(6).double()
    layers = nn.Sequential(
        nn.Linear(6, 6, bias=False),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 6, bias=False),
        nn.BatchNorm1d(6, affine=False),
    ).double()
    layers.load_state_dict(dict(zip(layers.state_dict(), head.state_dict().values(), strict=True)))
    x = torch.randn(7, 6, dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(head(x), layers(x))
    for one, other in zip(head.state_dict().values(), layers.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(head.eval()(x), layers.eval()(x))


def test_without_gradients_of_a_projection_head_the_running_statistics_are_used_and_kept() -> None:
    head = ProjectionHead(6)
    head(torch.randn(8, 6))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    x = torch.randn(3, 6)
    with torch.no_grad():
        assert head.training
        torch.testing.assert_close(head(x)[:1], head(x[:1]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


def test_vectors_of_a_16_bit_encoder_are_projected_in_the_heads_type() -> None:
    x = torch.randn(4, 6)
    for low in (torch.bfloat16, torch.float16):
        head = ProjectionHead(6)
        assert head(x.to(low)).dtype == torch.float32
        pair = AsymmetricBNHead(6)(x.to(low), x.to(low))
        assert [side.dtype for side in pair] == [torch.float32, torch.float32]
