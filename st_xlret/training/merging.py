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

    Args:
        model: The trained model; each weight becomes `original + share (trained - original)`.
        original: Name -> tensor before training.
        share: How much of the training to keep.

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


@torch.no_grad()
def interpolate_weights(model: nn.Module, original: nn.Module, share: float) -> None:
    """Move the weights of a trained model back towards those that it was trained from, in place.

    Fine-tuning teaches what it is for at the cost of what it is not for. Between the two sets of weights there are
    often models that keep most of both (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022).

    Args:
        model: The trained model; its weights become `original + share (trained - original)`.
        original: The model before training, of the same architecture.
        share: How much of the training to keep: 1 changes nothing, 0 undoes the training.

    Raises:
        ValueError: If the two have not the same weights by name and shape, or the share is not between 0 and 1.

    Example:
        >>> trained, original = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        >>> _ = trained.weight.data.fill_(3.0), original.weight.data.fill_(1.0)
        >>> interpolate_weights(trained, original, 0.5)
        >>> trained.weight.item()
        2.0
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of the training to keep must be between 0 and 1, got {share}")
    before, after = original.state_dict(), model.state_dict()
    different = sorted(
        name
        for name in before.keys() | after.keys()
        if name not in before or name not in after or before[name].shape != after[name].shape
    )
    if different:
        raise ValueError(f"the two models have not the same weights: {', '.join(different[:5])} differ")
    for name, weight in after.items():
        if weight.is_floating_point():
            weight.copy_(torch.lerp(before[name].to(weight), weight, share))
