"""A first-in-first-out bank of keys that are tagged with their language (CCP, section 3.1)."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

TAGS_OF_KEYS = ("language", "document", "text")
"""The columns of `tags`, in the order in which checkpoints have them."""


class LanguageMemoryBank(nn.Module):
    """Keys of recent batches, tagged with language, document and text (CCP, section 3.1).

    The oldest keys are replaced first. The bank starts empty, and `state_dict` restores it exactly.
    In distributed training, give every process the gathered keys: then all banks are identical.

    Args:
        features: Size of a key.
        size: Number of keys, in all or of each language (the bank of Wu et al. 2022 has 32,768 in
            all).
        scope: "total" for one queue for all languages, in which frequent languages displace rare
            ones, or "per_language" for a queue for each.

    Example:
        >>> bank = LanguageMemoryBank(2, size=3)
        >>> for step in range(4):
        ...     bank.enqueue(torch.full((1, 2), float(step)), torch.tensor([7]))
        >>> sorted(bank.get()["queue"][:, 0].tolist())
        [1.0, 2.0, 3.0]
    """

    keys: Tensor
    tags: Tensor

    def __init__(
        self, features: int, size: int = 32768, *, scope: Literal["total", "per_language"] = "total"
    ) -> None:
        super().__init__()
        if size < 1 or scope not in ("total", "per_language"):
            raise ValueError(
                f"size must be at least 1 and scope 'total' or 'per_language': {size}, {scope!r}"
            )
        self.size = size
        self.scope = scope
        self.register_buffer("keys", torch.zeros(0, features))
        # Those of TAGS_OF_KEYS, and the number of a key's arrival, which tells the oldest.
        self.register_buffer("tags", torch.zeros(0, len(TAGS_OF_KEYS) + 1, dtype=torch.long))
        self.register_load_state_dict_pre_hook(_make_room_for_saved_keys)

    def __len__(self) -> int:
        return len(self.keys)

    @torch.no_grad()
    def enqueue(
        self,
        keys: Tensor,
        language: Tensor,
        document: Tensor | None = None,
        text: Tensor | None = None,
    ) -> None:
        """Add keys.

        Args:
            keys: (B, features), normalised by the caller.
            language: Language id of each key (B,).
            document: Document id of each key (B,); None where there is none.
            text: Text id of each key (B,); None where there is none.
        """
        unknown = torch.full_like(language, -1)
        arrival = torch.arange(len(keys), device=language.device)
        if len(self.keys):
            arrival += self.tags[:, -1].max() + 1
        columns = [
            language,
            unknown if document is None else document,
            unknown if text is None else text,
            arrival,
        ]
        new_keys = keys.to(self.keys)
        new_tags = torch.stack(columns, dim=1).to(self.tags)
        queue_of_new = self._queue_numbers(new_tags)
        queue_of_old = self._queue_numbers(self.tags)
        for queue in queue_of_new.unique():
            new = (queue_of_new == queue).nonzero()[:, 0]
            old = (queue_of_old == queue).nonzero()[:, 0]
            # Of a batch larger than the queue, the last rows remain, as if they had come one by
            # one.
            last = new[-self.size :]
            self._add_to_queue(old, new_keys[last], new_tags[last])

    def _queue_numbers(self, tags: Tensor) -> Tensor:
        """The queue of each key: that of its language, or one for all."""
        language = tags[:, 0]
        if self.scope == "per_language":
            return language
        return torch.zeros_like(language)

    def _add_to_queue(self, old: Tensor, keys: Tensor, tags: Tensor) -> None:
        """Put keys in the place of the oldest of a queue's rows `old`, and behind all others."""
        too_many = max(0, len(old) + len(keys) - self.size)
        by_age = self.tags[old, -1].argsort()
        oldest = old[by_age][:too_many]
        replaced = len(oldest)
        self.keys[oldest] = keys[:replaced]
        self.tags[oldest] = tags[:replaced]
        if len(keys) > replaced:
            self.keys = torch.cat([self.keys, keys[replaced:]])
            self.tags = torch.cat([self.tags, tags[replaced:]])

    def get(self, language: Tensor | None = None) -> dict[str, Tensor]:
        """The keys, or those of the ids `language`.

        They have the names of the "queue" arguments of `contrastive_context_loss`. Where all keys
        are given they are the bank's own, which `enqueue` overwrites: a loss that enqueues before
        the backward pass takes what it needs of them in the forward pass.
        """
        keys = self.keys
        tags = self.tags
        if language is not None:
            wanted = torch.isin(tags[:, 0], language)
            if not wanted.all():
                keys = keys[wanted]
                tags = tags[wanted]
        queue = {"queue": keys}
        for column, name in enumerate(TAGS_OF_KEYS):
            queue[f"queue_{name}"] = tags[:, column]
        return queue


def _make_room_for_saved_keys(
    bank: LanguageMemoryBank, state: dict[str, Any], prefix: str, *args: Any
) -> None:
    """Make room for the keys of a saved bank: their number is part of the state, no option."""
    for name in ("keys", "tags"):
        saved = state.get(f"{prefix}{name}")
        if saved is not None:
            buffer = getattr(bank, name)
            setattr(bank, name, buffer.new_zeros(len(saved), buffer.shape[1]))
