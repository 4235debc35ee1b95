"""The base of all losses: what a loss owns besides the encoder, and a record of its last batch."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn


class CrossLingualLoss(nn.Module):
    """Base class of the losses. It keeps the encoder as `self.model`, where the host puts the wrapped encoder.

    Args:
        model: The encoder.

    Attributes:
        last_value: Loss of the last training batch, detached; None before the first batch.
        last_languages: Language ids of the last training batch's rows; None if they are unknown.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model
        self.last_value: Tensor | None = None
        self.last_languages: Tensor | None = None

    def owned_parameters(self) -> list[nn.Parameter]:
        """Trainable parameters that belong to the loss and not to the encoder."""
        encoder = self._encoder_prefixes()
        return [p for name, p in self.named_parameters() if not name.startswith(encoder) and p.requires_grad]

    def owned_state(self) -> dict[str, Tensor]:
        """Parameters and buffers that belong to the loss and not to the encoder, by name."""
        encoder = self._encoder_prefixes()
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(encoder)}

    def load_owned_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `owned_state` returned.

        Raises:
            ValueError: If names or shapes do not fit this loss.
        """
        try:
            outcome: Any = self.load_state_dict(state, strict=False)
        except RuntimeError as error:
            raise ValueError(f"the saved state does not fit {type(self).__name__}: {error}") from error
        missing = [name for name in outcome.missing_keys if not name.startswith(self._encoder_prefixes())]
        if missing or outcome.unexpected_keys:
            raise ValueError(
                f"the saved state does not fit {type(self).__name__}: missing {missing}, "
                f"unexpected {outcome.unexpected_keys}; build the loss with the options of the saved run"
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        return {}

    @property
    def updates_state(self) -> bool:
        """Whether this forward pass may change banks and statistics; the host evaluates losses in training mode."""
        return self.training and torch.is_grad_enabled()

    def _encoder_prefixes(self) -> tuple[str, ...]:
        # A loss inside this one holds the same encoder.
        inner = [name for name, child in self.named_children() if isinstance(child, CrossLingualLoss)]
        return ("model.", *(f"{name}.model." for name in inner))

    def _record(self, value: Tensor, languages: Tensor | None) -> Tensor:
        if self.updates_state:
            self.last_value, self.last_languages = value.detach(), languages
        return value


def embedding_size(model: SentenceTransformer) -> int:
    """The size of the encoder's sentence vectors.

    Raises:
        ValueError: If no module of the encoder tells it.
    """
    features = model.get_embedding_dimension()
    if features is None:
        raise ValueError(
            "no module of the encoder tells the size of its embeddings: give its last module get_embedding_dimension()"
        )
    return features


def unwrapped(model: Any) -> Any:
    """The SentenceTransformer inside the wrappers of distributed training and of `torch.compile`."""
    while True:
        inner = getattr(model, "_orig_mod", getattr(model, "module", None))
        if inner is None:
            return model
        model = inner


def check_positive(name: str, value: float) -> None:
    """Raise a ValueError that names the option unless its value is positive."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
