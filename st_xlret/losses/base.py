"""What all losses here share: what they own beside the encoder, and what the last batch was."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather, get_world_size
from torch import Tensor, nn

TAGS = ("language_id", "document_id", "text_id")


class CrossLingualLoss(nn.Module):
    """Base of the losses: keeps the encoder as ``self.model`` (the host swaps in the wrapped one there).

    Attributes:
        last_value: The last training batch's loss, detached, or None before the first.
        last_languages: Language ids of the last training batch's rows, or None where they are unknown.
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
        """Restore what :meth:`owned_state` gave.

        Raises:
            ValueError: If names or shapes do not fit this loss.
        """
        outcome: Any = self._load_without_model(state)
        missing = [name for name in outcome.missing_keys if not name.startswith(self._encoder_prefixes())]
        if missing or outcome.unexpected_keys:
            raise ValueError(
                f"the saved state does not fit {type(self).__name__}: missing {missing}, "
                f"unexpected {outcome.unexpected_keys}; build the loss with the options of the saved run"
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Options, for the model card."""
        return {}

    @property
    def updates_state(self) -> bool:
        """Whether this forward pass may change banks and statistics: the host evaluates in training mode."""
        return self.training and torch.is_grad_enabled()

    def _encoder_prefixes(self) -> tuple[str, ...]:
        # A loss inside of this one holds the same encoder.
        inner = [name for name, child in self.named_children() if isinstance(child, CrossLingualLoss)]
        return ("model.", *(f"{name}.model." for name in inner))

    def _record(self, value: Tensor, languages: Tensor | None) -> Tensor:
        if self.updates_state:
            self.last_value, self.last_languages = value.detach(), languages
        return value

    def _load_without_model(self, state: dict[str, Tensor]) -> Any:
        try:
            return self.load_state_dict(state, strict=False)
        except RuntimeError as error:
            raise ValueError(f"the saved state does not fit {type(self).__name__}: {error}") from error


def read_tags(features: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Metadata tensors that the collator attached, the columns one after the other.

    Args:
        features: One feature dict per text column.

    Returns:
        Those of ``language_id``, ``document_id`` and ``text_id`` that every column has, each (rows of all
        columns,).
    """
    columns = list(features)
    return {tag: torch.cat([f[tag] for f in columns]) for tag in TAGS if all(tag in f for f in columns)}


def gather_tags(tags: dict[str, Tensor], columns: int) -> dict[str, Tensor]:
    """Tags of all ranks, ordered as the gathered embeddings of ``columns`` equal columns are."""
    if get_world_size() == 1:
        return tags
    return {k: torch.cat([all_gather(part.contiguous()) for part in v.chunk(columns)]) for k, v in tags.items()}
