"""Which tokens masked language modelling (Devlin et al., 2019) hides.

The random numbers depend on text, place and seed alone.
"""

import torch
from torch import Tensor

# Odd constants of common integer hashes (SplitMix64, Steele et al. 2014), as signed integers.
_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


def token_keys(input_ids: Tensor, attention_mask: Tensor, seed: Tensor) -> Tensor:
    """A key for each token (rows, length) from seed, text and place in the text, nothing else."""
    is_token = attention_mask.long()
    place = is_token.cumsum(1)
    tokens = _scramble_bits(input_ids * _GOLDEN + place) * is_token
    text = _scramble_bits(tokens.sum(1, keepdim=True) + seed * _GOLDEN)
    return _scramble_bits(text + place * _GOLDEN)


def uniform_numbers(keys: Tensor, stream: int) -> Tensor:
    """A number in [0, 1) for each key, of as many bits as float32 has.

    Streams are independent of each other.
    """
    scrambled = _scramble_bits(keys + (stream + 1) * 1_000_003)
    highest_bits = _logical_right_shift(scrambled, 40)
    return highest_bits.to(torch.float32) / float(1 << 24)


def _scramble_bits(x: Tensor) -> Tensor:
    """Scramble integers; products wrap around."""
    x = _fold(x, 30) * _MIX_1
    x = _fold(x, 27) * _MIX_2
    return _fold(x, 31)


def _fold(x: Tensor, bits: int) -> Tensor:
    return x ^ _logical_right_shift(x, bits)


def _logical_right_shift(x: Tensor, bits: int) -> Tensor:
    kept = (1 << (64 - bits)) - 1
    return (x >> bits) & kept
