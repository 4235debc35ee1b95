"""Weights between those before training and those after it."""

from __future__ import annotations

import pytest
import torch

from st_xlret.training.merging import interpolate_weights
from tests import tiny


def weights(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_the_ends_are_the_two_models_and_the_middle_is_their_mean() -> None:
    original = tiny.transformer(seed=0)
    for share in (0.0, 0.25, 1.0):
        trained = tiny.transformer(seed=1)
        before, after = weights(original), weights(trained)
        interpolate_weights(trained, original, share)
        for name, tensor in trained.state_dict().items():
            torch.testing.assert_close(tensor, (1 - share) * before[name] + share * after[name])
        assert all(torch.equal(tensor, before[name]) for name, tensor in original.state_dict().items())


def test_another_architecture_and_a_share_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="weight"):
        interpolate_weights(tiny.static(features=8), tiny.static(features=4), 0.5)
    with pytest.raises(ValueError, match=r"1\.5"):
        interpolate_weights(tiny.static(), tiny.static(), 1.5)
