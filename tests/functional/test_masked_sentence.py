"""masked_sentence_loss against Eq. 1-2 of the MSM paper, its limits and its edges."""

from __future__ import annotations

import itertools
import math
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


def vectors(rows: int = 8, features: int = 5, seed: int = 0) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, rows, features)
    p, h = torch.randn(shape, dtype=torch.float64, generator=generator)
    return p.clone().requires_grad_(), h.clone().requires_grad_()


OPTIONS: list[dict[str, Any]] = [
    {},
    {"mu": 0.0},
    {"mu": 0.7, "temperature": 0.5},
    {"intra": False},
    {"predicted": [0, 1, 2, 7]},
    {"language": LANGUAGE},
    {"text": TEXT},
    {"language": LANGUAGE, "text": TEXT, "predicted": [1, 4, 5, 6]},
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


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_drawn_negatives_are_any_of_the_others_and_all_come_up(mu: float) -> None:
    p, h = vectors()
    document = torch.tensor([0, 0, 1, 2, 2, 3, 4, 4])
    first = torch.arange(8) == 0
    possible = [
        naive_masked_sentence_loss(p, h, document.tolist(), mu=mu, predicted=[0], drawn=drawn).item()
        for drawn in itertools.combinations(range(2, 8), 2)
    ]
    assert len(possible) == 15
    seen: dict[int, int] = {}
    for seed in range(600):
        generator = torch.Generator().manual_seed(seed)
        loss = masked_sentence_loss(p, h, document, mu=mu, num_negatives=2, generator=generator, predicted=first)
        near = [i for i, value in enumerate(possible) if loss.item() == pytest.approx(value, rel=1e-9)]
        assert len(near) == 1
        seen[near[0]] = seen.get(near[0], 0) + 1
    assert len(seen) == 15 and min(seen.values()) > 15 and max(seen.values()) < 80


def test_rows_with_fewer_others_than_are_drawn_use_all() -> None:
    pair = vectors(4)
    document, language = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 1, 1])
    every = masked_sentence_loss(*pair, document, language=language)
    assert masked_sentence_loss(*pair, document, language=language, num_negatives=1) == every
    assert masked_sentence_loss(*pair, document, num_negatives=3) == masked_sentence_loss(*pair, document)
    # Three others of one document, one of another: three drawn rows of the first leave the second as it is.
    uneven = torch.tensor([0, 0, 0, 1])
    generator = torch.Generator().manual_seed(0)
    value = masked_sentence_loss(*pair, uneven, num_negatives=1, generator=generator, predicted=uneven == 0)
    torch.testing.assert_close(value, naive_masked_sentence_loss(*pair, uneven.tolist(), predicted=[0, 1, 2]))


def test_one_generator_state_one_draw() -> None:
    pair = vectors()
    document = torch.tensor(DOCUMENT)
    one, same, other = (
        masked_sentence_loss(*pair, document, num_negatives=2, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_a_batch_of_one_row_has_no_negatives() -> None:
    p, h = vectors(1)
    loss = masked_sentence_loss(p, h, torch.tensor([0]))
    loss.backward()
    assert loss == 0 and torch.equal(p.grad, torch.zeros_like(p)) and torch.equal(h.grad, torch.zeros_like(h))


def test_equal_sentences_teach_nothing_and_do_no_harm() -> None:
    p, h = vectors(1)
    rows = [x.detach().repeat(6, 1).requires_grad_() for x in (p, h)]
    document = torch.tensor([0, 0, 0, 1, 1, 1])
    loss = masked_sentence_loss(*rows, document)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(6))
    # All rows together pull as much as they push.
    torch.testing.assert_close(rows[0].grad, torch.zeros_like(rows[0]))
    known = masked_sentence_loss(*rows, document, text=torch.zeros(6, dtype=torch.long))
    assert known == 0
