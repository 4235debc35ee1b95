"""masked_sentence_loss against Eq. 1-2 of the MSM paper, its limits and its edges."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.functional import masked_sentence, masked_sentence_loss
from tests.functional.oracles import naive_masked_sentence_loss

DOCUMENT = [0, 0, 0, 1, 1, 2, 3, 3]
LANGUAGE = [0, 0, 0, 0, 0, 1, 1, 1]
TEXT = [0, 1, 2, 3, 1, 5, 6, 6]
Pair = tuple[Tensor, Tensor]


def vectors(rows: int = 8) -> Pair:
    p, h = (torch.randn(rows, 5, dtype=torch.float64, requires_grad=True) for _ in "ph")
    return p, h


OPTIONS: list[dict[str, Any]] = [
    *({}, {"mu": 0.0}, {"mu": 0.7, "temperature": 0.5}, {"intra": False}, {"predicted": [0, 1, 2, 7]}),
    *({"language": LANGUAGE}, {"text": TEXT}, {"language": LANGUAGE, "text": TEXT, "predicted": [1, 4, 5, 6]}),
]


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_equals_the_papers_equation(options: dict[str, Any], in_chunks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_chunks:
        monkeypatch.setattr(masked_sentence, "CHUNK", 24)
    pair = vectors()
    tensors = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
    if "predicted" in tensors:
        tensors["predicted"] = torch.isin(torch.arange(8), tensors["predicted"])
    if "intra" in tensors:
        tensors["intra_document_negatives"] = tensors.pop("intra")
    loss = masked_sentence_loss(*pair, torch.tensor(DOCUMENT), **tensors)
    expected = naive_masked_sentence_loss(*pair, DOCUMENT, **options)
    torch.testing.assert_close(loss, expected)
    # The gradient takes the bias for a constant on both sides.
    torch.testing.assert_close(torch.autograd.grad(loss, pair), torch.autograd.grad(expected, pair))


def test_drawn_negatives_are_any_of_the_others_and_all_come_up() -> None:
    p, h = vectors()
    document, first = torch.tensor([0, 0, 1, 2, 2, 3, 4, 4]), torch.arange(8) == 0
    possible = {}
    for drawn in itertools.combinations(range(2, 8), 2):
        loss = naive_masked_sentence_loss(p, h, document.tolist(), predicted=[0], drawn=drawn)
        possible[round(loss.item(), 9)] = torch.autograd.grad(loss, h)[0]
    assert len(possible) == 15
    seen = Counter()
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        loss = masked_sentence_loss(p, h, document, num_negatives=2, generator=generator, predicted=first)
        seen[round(loss.item(), 9)] += 1
        # The backward pass computes the logits again, with the negatives that were drawn.
        torch.testing.assert_close(torch.autograd.grad(loss, h)[0], possible[round(loss.item(), 9)])
    assert len(seen) == 15 and min(seen.values()) > 5 and max(seen.values()) < 45


def test_rows_with_fewer_others_than_are_drawn_use_all() -> None:
    pair = vectors(4)
    document, language = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1])
    every = masked_sentence_loss(*pair, document, language=language)
    assert masked_sentence_loss(*pair, document, language=language, num_negatives=1) == every
    assert masked_sentence_loss(*pair, document, num_negatives=3) == masked_sentence_loss(*pair, document)
