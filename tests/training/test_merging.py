"""Weights between those before training and those after it."""

from __future__ import annotations

import torch

from st_xlret.training.merging import move_back, trainable_weights
from tests import tiny


def weights(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_the_ends_are_the_two_models_and_the_middle_is_their_mean() -> None:
    original = tiny.transformer(seed=0)
    for share in (0.0, 0.25, 1.0):
        trained = tiny.transformer(seed=1)
        before, after = weights(original), weights(trained)
        move_back(trained, trainable_weights(original), share)
        for name, tensor in trained.state_dict().items():
            torch.testing.assert_close(tensor, (1 - share) * before[name] + share * after[name])
        assert all(torch.equal(tensor, before[name]) for name, tensor in original.state_dict().items())


def test_frozen_weights_are_neither_copied_nor_moved() -> None:
    model = tiny.static()
    for weight in model.parameters():
        weight.requires_grad = False
    assert trainable_weights(model) == {}
    before = weights(model)
    move_back(model, {}, 0.5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
