"""Random numbers that belong to the tokens of a text, and not to its place in a batch."""

from __future__ import annotations

import torch
from torch import Tensor

# Odd constants of common integer hashes (SplitMix64, Steele et al. 2014), as signed 64-bit integers.
_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


def token_keys(input_ids: Tensor, attention_mask: Tensor, seed: Tensor) -> Tensor:
    """Compute a key for each token from the seed, the tokens of its text, and its place in the text.

    Padding and the other texts of the batch do not enter. So the keys of a text are the same in a batch of any size,
    on any rank of a distributed run, and on any device. Equal texts have equal keys.

    Args:
        input_ids: Token ids (rows, length).
        attention_mask: 1 for tokens, 0 for padding (rows, length).
        seed: An integer (), such as the number of the step; another one gives other keys.

    Returns:
        Integers (rows, length).

    Example:
        >>> ids = torch.tensor([[5, 6, 0], [5, 6, 7]])
        >>> both = token_keys(ids, (ids > 0).long(), torch.tensor(0))
        >>> alone = token_keys(ids[:1, :2], torch.ones(1, 2).long(), torch.tensor(0))
        >>> both[0, :2].equal(alone[0]), both[0, 0].equal(both[1, 0])
        (True, False)
    """
    place = attention_mask.long().cumsum(1)
    tokens = _mix(input_ids * _GOLDEN + place) * attention_mask.long()
    text = _mix(tokens.sum(1, keepdim=True) + seed * _GOLDEN)
    return _mix(text + place * _GOLDEN)


def uniform(keys: Tensor, stream: int) -> Tensor:
    """Draw a number in [0, 1) for each key; streams of different numbers are independent of each other.

    Args:
        keys: Keys of any shape, from `token_keys`.
        stream: Number of the draw.

    Returns:
        Numbers in float32, of the shape of `keys`.

    Example:
        >>> draws = uniform(torch.arange(10_000), stream=1)
        >>> round(draws.mean().item(), 1), bool((draws < 1).all())
        (0.5, True)
    """
    # As many bits as float32 has.
    return _logical_shift(_mix(keys + (stream + 1) * 1_000_003), 40).to(torch.float32) / float(1 << 24)


def _mix(x: Tensor) -> Tensor:
    """Scramble integers; products wrap around."""
    x = (x ^ _logical_shift(x, 30)) * _MIX_1
    x = (x ^ _logical_shift(x, 27)) * _MIX_2
    return x ^ _logical_shift(x, 31)


def _logical_shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)
