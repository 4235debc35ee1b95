"""The weights between those before training and those after it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights that training changes: name -> tensor."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


@torch.no_grad()
def move_back(model: nn.Module, original: Mapping[str, Tensor], share: float) -> None:
    """Move trained weights back towards those that `trainable_weights` copied before, in place.

    Fine-tuning teaches what it is for at the cost of what it is not for. Between the two sets of weights there are
    often models that keep most of both (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022).

    Args:
        model: The trained model; each weight becomes `original + share (trained - original)`.
        original: Name -> tensor before training. Weights that are not in it stay.
        share: How much of the training to keep: 1 changes nothing, 0 undoes the training.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = model.weight.data.fill_(1.0)
        >>> original = trainable_weights(model)
        >>> _ = model.weight.data.fill_(3.0)
        >>> move_back(model, original, 0.5)
        >>> model.weight.item()
        2.0
    """
    trained = dict(model.named_parameters())
    for name, before in original.items():
        weight = trained[name]
        weight.copy_(torch.lerp(before.to(weight), weight, share))
