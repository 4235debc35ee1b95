"""Which pairs hang together by a common text."""

from __future__ import annotations

import random

import pytest
import torch

from st_xlret.losses.duplicates import translation_groups


@pytest.mark.parametrize(
    "source, target, groups",
    [
        ([1, 2, 3], [4, 5, 6], [0, 1, 2]),
        ([1, 2, 1], [4, 5, 4], [0, 1, 0]),  # the same pair twice
        ([1, 2, 3], [4, 5, 4], [0, 1, 0]),  # one target of two sources
        ([1, 2, 3], [2, 5, 6], [0, 0, 2]),  # a target that is another pair's source
        ([1, 2, 2, 4], [5, 5, 3, 3], [0, 0, 0, 0]),  # a chain
        ([1, 2], [1, 2], [0, 1]),  # identical sides
    ],
)
def test_groups(source: list[int], target: list[int], groups: list[int]) -> None:
    assert translation_groups(torch.tensor(source + target)).tolist() == groups * 2


def test_against_joining_one_by_one() -> None:
    dice = random.Random(0)
    for _ in range(20):
        text = [dice.randrange(12) for _ in range(12)]
        groups = list(range(6))
        for _ in groups:
            for i in range(6):
                for j in range(6):
                    if {text[i], text[i + 6]} & {text[j], text[j + 6]}:
                        groups[i] = groups[j] = min(groups[i], groups[j])
        assert translation_groups(torch.tensor(text)).tolist() == groups * 2


def test_no_pairs() -> None:
    assert translation_groups(torch.empty(0, dtype=torch.long)).tolist() == []
