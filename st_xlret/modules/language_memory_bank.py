"""A first-in-first-out bank of keys that are tagged with their language (CCP, section 3.1)."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

TAGS_OF_KEYS = ("language", "document", "text")


class LanguageMemoryBank(nn.Module):
    """Keys of recent batches, tagged with language, document and text (CCP, Wu et al. 2022, section 3.1).

    The oldest keys are replaced first. The bank starts empty, and `state_dict` restores it exactly. In distributed
    training, give every process the gathered keys: then all banks are identical.

    Args:
        features: Size of a key.
        size: Number of keys, in all or of each language (the paper's bank has 32,768 in all).
        scope: "total" for one queue for all languages, in which frequent languages displace rare ones, or
            "per_language" for a queue for each.

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
        self.size, self.scope = size, scope
        self.register_buffer("keys", torch.zeros(0, features))
        # Language, document and text of each key, and the number of its arrival, which tells the oldest.
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
        """Add keys (B, features), normalised by the caller, with ids (B,); -1 where there is no document or text."""
        unknown = torch.full_like(language, -1)
        arrival = torch.arange(len(keys), device=language.device)
        if len(self.keys):
            arrival += self.tags[:, -1].max() + 1
        columns = [unknown if tag is None else tag for tag in (language, document, text)]
        keys, tags = keys.to(self.keys), torch.stack([*columns, arrival], dim=1).to(self.tags)
        queue_of_new, queue_of_old = (
            part[:, 0] * (self.scope == "per_language") for part in (tags, self.tags)
        )
        for queue in queue_of_new.unique():
            new, old = (
                (queue_of_new == queue).nonzero()[:, 0],
                (queue_of_old == queue).nonzero()[:, 0],
            )
            # Of a batch larger than the queue, the last rows remain, as if they had come one by one.
            new = new[-self.size :]
            oldest = old[self.tags[old, -1].argsort()][: max(0, len(old) + len(new) - self.size)]
            self.keys[oldest], self.tags[oldest] = (
                keys[new[: len(oldest)]],
                tags[new[: len(oldest)]],
            )
            if len(new) > len(oldest):
                self.keys = torch.cat([self.keys, keys[new[len(oldest) :]]])
                self.tags = torch.cat([self.tags, tags[new[len(oldest) :]]])

    def get(self, language: Tensor | None = None) -> dict[str, Tensor]:
        """The keys, or those of the ids `language`, as the "queue" arguments of `contrastive_context_loss`."""
        keys, tags = self.keys, self.tags
        if language is not None and not (wanted := torch.isin(tags[:, 0], language)).all():
            keys, tags = keys[wanted], tags[wanted]
        return {"queue": keys} | {
            f"queue_{name}": tags[:, column] for column, name in enumerate(TAGS_OF_KEYS)
        }


def _make_room_for_saved_keys(
    bank: LanguageMemoryBank, state: dict[str, Any], prefix: str, *args: Any
) -> None:
    """Make room for the keys of a saved bank: how many there are is part of the state, not of the options."""
    for name in ("keys", "tags"):
        if (saved := state.get(f"{prefix}{name}")) is not None:
            setattr(
                bank, name, getattr(bank, name).new_zeros(len(saved), getattr(bank, name).shape[1])
            )
