"""The equation of MSM against a loop over its terms, and which negatives are drawn."""

import itertools
from collections import Counter
from typing import Any

import pytest
import torch

from st_xlret import functional as f
from tests.functional.checks import assert_same, assert_zero_without_gradient, vectors
from tests.functional.oracles import naive_masked_sentence_loss

DOCUMENTS = [0, 0, 0, 1, 1, 2, 3, 3]
LANGUAGES = [0, 0, 0, 0, 0, 1, 1, 1]
TEXTS = [0, 1, 2, 3, 1, 5, 6, 6]


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"mu": 0.5},
        {"mu": 0.0},
        {"mu": 0.7, "temperature": 0.5},
        {"intra": False},
        {"language": LANGUAGES},
        {"text": TEXTS},
        {"language": LANGUAGES, "text": TEXTS, "predicted": [1, 4, 5, 6]},
    ],
)
def test_equals_the_papers_equation(
    options: dict[str, Any], in_chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_chunks:
        monkeypatch.setattr(f.tensors, "MOST_LOGITS", 24)
    p = vectors(8)
    h = vectors(8, seed=1)
    arguments: dict[str, Any] = {}
    for name, value in options.items():
        if name == "intra":
            arguments["intra_document_negatives"] = value
        elif name == "predicted":
            arguments[name] = torch.isin(torch.arange(8), torch.tensor(value))
        else:
            arguments[name] = torch.tensor(value) if isinstance(value, list) else value
    loss = f.masked_sentence_loss(p, h, torch.tensor(DOCUMENTS), **arguments)
    # The gradient takes the bias for a constant on both sides.
    assert_same(loss, naive_masked_sentence_loss(p, h, DOCUMENTS, **options), [p, h])


@pytest.mark.parametrize(
    ("rows", "text"), [(1, None), (5, torch.zeros(5).long())], ids=["one row", "one text"]
)
def test_without_negatives_it_is_zero(rows: int, text: torch.Tensor | None) -> None:
    p = vectors(rows)
    h = vectors(rows, seed=1)
    documents = torch.tensor([0, 0, 1, 1, 1])[:rows]
    assert_zero_without_gradient(f.masked_sentence_loss(p, h, documents, text=text), p, h)


def test_drawn_negatives_are_any_of_the_others_and_a_row_with_fewer_uses_all() -> None:
    p = vectors(10)
    h = vectors(10, seed=1)
    document = [0, 0, 1, 2, 2, 3, 4, 4, 5, 6]
    language = [0] * 8 + [1] * 2
    possible = {}
    for drawn in itertools.combinations(range(2, 8), 2):
        loss = naive_masked_sentence_loss(
            p,
            h,
            document,
            predicted=[0, 8],
            drawn=[*drawn, 9],  # row 9 is the only other one in the language of row 8
            language=language,
        )
        possible[round(loss.item(), 9)] = torch.autograd.grad(loss, h)[0]
    generator = torch.Generator().manual_seed(0)
    seen: Counter[float] = Counter()
    for _ in range(300):
        loss = f.masked_sentence_loss(
            p,
            h,
            torch.tensor(document),
            num_negatives=2,
            generator=generator,
            predicted=torch.isin(torch.arange(10), torch.tensor([0, 8])),
            language=torch.tensor(language),
        )
        value = round(loss.item(), 9)
        seen[value] += 1
        # The backward pass computes the logits again, with the negatives that were drawn.
        torch.testing.assert_close(torch.autograd.grad(loss, h)[0], possible[value])
    assert len(seen) == len(possible) == 15
    assert min(seen.values()) > 5
    assert max(seen.values()) < 45
