"""Random orders that are not held in memory."""

from __future__ import annotations

import math

import numpy as np

IN_MEMORY = 2**20
"""Numbers up to which an order is drawn as a whole, by NumPy."""

_ROUNDS = 8


class Shuffle:
    """A random order of the numbers below `length`, indexed by place.

    Up to a million numbers are shuffled by NumPy, in four bytes each. More of them are permuted by a keyed function,
    which takes no memory: a generalized Feistel cipher (Black and Rogaway, 2002, section 5), which is a bijection for
    any round function. Its orders are not all possible ones, and look random.

    Args:
        length: How many numbers there are.
        generator: Source of randomness.

    Example:
        >>> order = Shuffle(3, np.random.default_rng(0))
        >>> sorted(order[np.arange(3)].tolist())
        [0, 1, 2]
    """

    def __init__(self, length: int, generator: np.random.Generator) -> None:
        self._length = length
        self._order: np.ndarray | None = None
        if length <= IN_MEMORY:
            self._order = generator.permutation(length).astype(np.uint32)
            return
        self._keys = generator.integers(0, 2**64, size=_ROUNDS, dtype=np.uint64)
        self._left = math.isqrt(length - 1) + 1
        self._right = -(-length // self._left)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """The numbers at these places (places,), as int64."""
        if self._order is not None:
            return self._order[places].astype(np.int64)
        numbers = self._permute(np.asarray(places, dtype=np.uint64))
        # The function permutes a few numbers more than there are. It is applied again to a number that is too large;
        # this ends, because the places are not too large and are on the same cycles.
        while len(outside := np.flatnonzero(numbers >= self._length)):
            numbers[outside] = self._permute(numbers[outside])
        return numbers.astype(np.int64)

    def _permute(self, numbers: np.ndarray) -> np.ndarray:
        left, right = np.divmod(numbers, np.uint64(self._right))
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + mix(left + key) % np.uint64(self._right)) % np.uint64(self._right)
            else:
                left = (left + mix(right + key) % np.uint64(self._left)) % np.uint64(self._left)
        return left * np.uint64(self._right) + right


def mix(numbers: np.ndarray) -> np.ndarray:
    """Random-looking numbers of 64 bits, a function of the given ones (SplitMix64: Steele et al., 2014).

    Example:
        >>> int(mix(np.array([0], dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF
        True
    """
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
