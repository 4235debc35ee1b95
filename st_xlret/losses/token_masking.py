"""Which tokens of texts are hidden: the same for the same text, wherever it stands in a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor

# Odd constants of common integer hashes (SplitMix64, Steele et al. 2014), as signed integers.
_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685


@dataclass(frozen=True)
class TokenMasking:
    """Hides tokens as BERT does (Devlin et al. 2019).

    Of the chosen tokens, 80 % are replaced by the mask token, 10 % by a random one, and 10 % stay.

    Attributes:
        probability: Fraction of tokens to choose.
        mask_token: The id of the mask token.
        special_tokens: The ids of those that are never chosen.
        vocabulary: How many ids there are.
    """

    probability: float
    mask_token: int
    special_tokens: Sequence[int]
    vocabulary: int

    def hide(
        self, input_ids: Tensor, attention_mask: Tensor, seed: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The token ids (rows, length) with some hidden, and which were chosen, boolean.

        All ranks call it together: at least one token of theirs is chosen.
        """
        specials = torch.tensor(self.special_tokens, device=input_ids.device)
        candidates = attention_mask.bool() & ~torch.isin(input_ids, specials)
        keys = _token_keys(input_ids, attention_mask, seed)
        draw = _uniform_numbers(keys, 0).masked_fill(~candidates, 2.0)
        lowest = draw.min()
        if get_world_size() > 1:
            dist.all_reduce(lowest, op=dist.ReduceOp.MIN)
        # The lowest draw of all ranks is always chosen: a short batch still teaches something.
        chosen = candidates & ((draw < self.probability) | (draw == lowest))
        kind = _uniform_numbers(keys, 1)
        random_ids = (_uniform_numbers(keys, 2) * self.vocabulary).long()
        masked = input_ids.masked_fill(chosen & (kind < 0.8), self.mask_token)
        return torch.where(chosen & (kind >= 0.9), random_ids, masked), chosen


def _token_keys(input_ids: Tensor, attention_mask: Tensor, seed: Tensor) -> Tensor:
    """A key for each token (rows, length) from seed, text and place in the text, nothing else."""
    is_token = attention_mask.long()
    place = is_token.cumsum(1)
    tokens = _scramble_bits(input_ids * _GOLDEN + place) * is_token
    text = _scramble_bits(tokens.sum(1, keepdim=True) + seed * _GOLDEN)
    return _scramble_bits(text + place * _GOLDEN)


def _uniform_numbers(keys: Tensor, stream: int) -> Tensor:
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
    """Mix the highest bits of integers into the lower ones."""
    return x ^ _logical_right_shift(x, bits)


def _logical_right_shift(x: Tensor, bits: int) -> Tensor:
    """Shift as unsigned integers are: zeros come in, also where a number is negative."""
    kept = (1 << (64 - bits)) - 1
    return (x >> bits) & kept
