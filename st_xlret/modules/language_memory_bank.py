"""A first-in-first-out bank of keys that are tagged with their language (CCP, section 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class BankKeys(NamedTuple):
    """Keys of a bank (Q, features) and their language, document and text ids (Q,), views of the bank."""

    keys: Tensor
    language: Tensor
    document: Tensor
    text: Tensor


class LanguageMemoryBank(nn.Module):
    """Keys of recent batches, tagged with language, document and text (CCP, Wu et al. 2022, section 3.1).

    The oldest keys are removed first: the bank is one queue for all languages. The bank starts empty and never holds
    random vectors. All of its state is in buffers, so that `state_dict` restores it exactly. In distributed training,
    give every process the gathered keys: then all banks are identical.

    Args:
        features: Size of a key.
        size: Number of keys (the paper's bank has 32,768).

    Raises:
        ValueError: If `size` or `features` is below 1.

    Example:
        >>> bank = LanguageMemoryBank(2, size=3)
        >>> for step in range(4):
        ...     bank.enqueue(torch.full((1, 2), float(step)), torch.tensor([7]))
        >>> sorted(bank.get().keys[:, 0].tolist())
        [1.0, 2.0, 3.0]
    """

    keys: Tensor
    tags: Tensor
    pointer: Tensor
    count: Tensor

    def __init__(self, features: int, size: int = 32768) -> None:
        super().__init__()
        if size < 1 or features < 1:
            raise ValueError(f"size and features must be at least 1, got size={size}, features={features}")
        self.features, self.size = features, size
        self.register_buffer("keys", torch.zeros(size, features))
        self.register_buffer("tags", torch.zeros(size, 3, dtype=torch.long))  # language, document, text
        self.register_buffer("pointer", torch.tensor(0))
        self.register_buffer("count", torch.tensor(0))

    def __len__(self) -> int:
        return int(self.count)

    @torch.no_grad()
    def enqueue(
        self, keys: Tensor, language: Tensor, document: Tensor | None = None, text: Tensor | None = None
    ) -> None:
        """Add keys in the order of their rows; the oldest keys are removed.

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
        # Of a batch larger than the bank, the last rows remain, as if they had come one by one.
        kept = slice(max(0, rows - self.size), rows)
        places = (self.pointer + torch.arange(rows, device=self.keys.device)[kept]) % self.size
        self.keys[places] = keys[kept].to(self.keys.dtype)
        self.tags[places] = torch.stack(columns, dim=1)[kept]
        self.pointer.copy_((self.pointer + rows) % self.size)
        self.count.copy_((self.count + rows).clamp(max=self.size))

    def get(self) -> BankKeys:
        """Return the keys in the bank, in storage order: (Q, features), and language, document and text ids (Q,)."""
        filled = len(self)
        return BankKeys(self.keys[:filled], *self.tags[:filled].unbind(1))
