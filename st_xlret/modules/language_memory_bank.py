"""A first-in-first-out bank of keys that are tagged with their language (CCP, section 3.1)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

_NO_LANGUAGE = -1


class BankKeys(NamedTuple):
    """Keys of a bank (Q, features) and their language, document and text ids (Q,), views where possible."""

    keys: Tensor
    language: Tensor
    document: Tensor
    text: Tensor


class LanguageMemoryBank(nn.Module):
    """Keys of recent batches, tagged with language, document and text (CCP, Wu et al. 2022, section 3.1).

    The oldest keys are removed first. The bank starts empty and never holds random vectors. All of its state is in
    buffers, so that `state_dict` restores it exactly. In distributed training, give every process the gathered keys:
    then all banks are identical.

    Args:
        features: Size of a key.
        size: Number of keys: in all for `scope="total"` (the paper's bank has 32,768), per language for
            `scope="per_language"`.
        scope: "total" for one queue for all languages, in which frequent languages displace rare ones, or
            "per_language" for a queue for each.

    Raises:
        ValueError: If `size` or `features` is below 1, or the scope is unknown.

    Example:
        >>> bank = LanguageMemoryBank(2, size=3)
        >>> for step in range(4):
        ...     bank.enqueue(torch.full((1, 2), float(step)), torch.tensor([7]))
        >>> sorted(bank.get().keys[:, 0].tolist())
        [1.0, 2.0, 3.0]
    """

    keys: Tensor
    tags: Tensor
    slot_language: Tensor
    pointer: Tensor
    count: Tensor

    def __init__(
        self,
        features: int,
        size: int = 32768,
        *,
        scope: Literal["total", "per_language"] = "total",
    ) -> None:
        super().__init__()
        if size < 1 or features < 1:
            raise ValueError(f"size and features must be at least 1, got size={size}, features={features}")
        if scope not in ("total", "per_language"):
            raise ValueError(f"scope must be 'total' or 'per_language', got {scope!r}")
        self.features, self.size, self.scope = features, size, scope
        slots = 1 if scope == "total" else 0
        self.register_buffer("keys", torch.zeros(slots, size, features))
        self.register_buffer("tags", torch.zeros(slots, size, 3, dtype=torch.long))  # language, document, text
        self.register_buffer("slot_language", torch.full((slots,), _NO_LANGUAGE, dtype=torch.long))
        self.register_buffer("pointer", torch.zeros(slots, dtype=torch.long))
        self.register_buffer("count", torch.zeros(slots, dtype=torch.long))
        self.register_load_state_dict_pre_hook(_fit_to_saved)

    def __len__(self) -> int:
        return int(self.count.sum())

    @torch.no_grad()
    def enqueue(
        self, keys: Tensor, language: Tensor, document: Tensor | None = None, text: Tensor | None = None
    ) -> None:
        """Add keys in the order of their rows; the oldest keys of the same queue are removed.

        Args:
            keys: Keys (B, features), normalised by the caller.
            language: Language ids (B,).
            document: Document ids (B,), or None if rows belong to no document.
            text: Text ids (B,), or None.

        Raises:
            ValueError: If shapes do not fit.
        """
        rows = len(keys)
        if keys.shape != (rows, self.features):
            raise ValueError(f"keys must have shape (rows, {self.features}), got {tuple(keys.shape)}")
        # Rows without a document or a text carry the id -1, which no row of a batch has.
        unknown = torch.full_like(language, -1)
        columns = [language, unknown if document is None else document, unknown if text is None else text]
        if any(column.shape != (rows,) for column in columns):
            raise ValueError(f"tags must have shape ({rows},), got {[tuple(c.shape) for c in columns]}")
        tags = torch.stack(columns, dim=1)
        if self.scope == "total":
            self._enqueue_into(0, keys, tags)
            return
        for code in torch.unique(language).tolist():
            chosen = language == code
            self._enqueue_into(self._slot_of(code), keys[chosen], tags[chosen])

    def get(self, language: Tensor | None = None) -> BankKeys:
        """Return the keys in the bank, in storage order.

        Args:
            language: Language ids. With `scope="per_language"`, only the queues of these languages are read.

        Returns:
            Keys (Q, features), and language, document and text ids (Q,). They are views of the bank, not copies, for
            `scope="total"` and for a single language.
        """
        slots = list(range(len(self.slot_language)))
        if language is not None and self.scope == "per_language":
            wanted = set(torch.unique(language).tolist())
            slots = [slot for slot in slots if int(self.slot_language[slot]) in wanted]
        if len(slots) == 1:
            filled = int(self.count[slots[0]])
            keys, tags = self.keys[slots[0], :filled], self.tags[slots[0], :filled]
        else:
            filled_slots = [(slot, int(self.count[slot])) for slot in slots]
            keys = torch.cat([self.keys[s, :n] for s, n in filled_slots] or [self.keys.new_zeros(0, self.features)])
            tags = torch.cat([self.tags[s, :n] for s, n in filled_slots] or [self.tags.new_zeros(0, 3)])
        return BankKeys(keys, tags[:, 0], tags[:, 1], tags[:, 2])

    def _enqueue_into(self, slot: int, keys: Tensor, tags: Tensor) -> None:
        # Of a batch larger than the queue, the last rows remain, as if they had come one by one.
        skipped = max(0, len(keys) - self.size)
        keys, tags = keys[skipped:], tags[skipped:]
        start = self.pointer[slot] + skipped
        places = (start + torch.arange(len(keys), device=self.keys.device)) % self.size
        self.keys[slot, places] = keys.to(self.keys.dtype)
        self.tags[slot, places] = tags
        self.pointer[slot] = (start + len(keys)) % self.size
        self.count[slot] = min(self.size, int(self.count[slot]) + len(keys) + skipped)

    def _slot_of(self, code: int) -> int:
        match = (self.slot_language == code).nonzero()
        if len(match):
            return int(match[0])
        self._resize(len(self.slot_language) + 1)
        self.slot_language[-1] = code
        return len(self.slot_language) - 1

    def _resize(self, slots: int) -> None:
        for name in ("keys", "tags", "slot_language", "pointer", "count"):
            old = getattr(self, name)
            new = old.new_zeros((slots, *old.shape[1:]))
            kept = min(slots, len(old))
            new[:kept] = old[:kept]
            setattr(self, name, new)


def _fit_to_saved(bank: LanguageMemoryBank, state: dict[str, Any], prefix: str, *args: Any) -> None:
    """Make room for the languages of a saved bank: how many were seen is part of the state, not of the options."""
    saved = state.get(f"{prefix}slot_language")
    if saved is None:
        return
    if len(saved) and bool((saved == _NO_LANGUAGE).any()) != (bank.scope == "total"):
        error_messages: list[str] = args[-1]
        error_messages.append(f"the saved bank has another scope than {bank.scope!r}")
    elif bank.scope == "per_language":
        bank._resize(len(saved))
