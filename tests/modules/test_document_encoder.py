"""DocumentEncoder against the loop over masked sentences, and what it does with ragged documents."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from st_xlret.modules import DocumentEncoder
from tests.functional.oracles import naive_predictions

LENGTHS = (5, 2, 3, 1)


def encoder(layers: int = 2, **options: object) -> DocumentEncoder:
    torch.manual_seed(layers)
    made = DocumentEncoder(16, layers, 4, max_sentences=6, **{"dropout": 0.0, **options})  # type: ignore[arg-type]
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.double()


def documents() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sentences = torch.randn(len(LENGTHS), max(LENGTHS), 16, dtype=torch.float64, generator=generator)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return sentences.requires_grad_(), mask


@pytest.mark.parametrize("rows_at_once", [4096, 40, 1])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_equals_masking_one_sentence_after_another(layers: int, rows_at_once: int) -> None:
    made = encoder(layers, rows_at_once=rows_at_once)
    sentences, mask = documents()
    filled = [rows[:length] for rows, length in zip(sentences, LENGTHS, strict=True)]
    expected = torch.cat(naive_predictions(made.layers, made.norm, made.mask_vector, made.positions.weight, filled))
    predictions = made(sentences, mask)
    torch.testing.assert_close(predictions[mask], expected)
    assert not predictions[~mask].any()
    inputs, weight = [sentences, *made.parameters()], torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((p * weight).sum(), inputs) for p in (predictions[mask], expected))
    torch.testing.assert_close(ours, theirs)


def test_nothing_to_predict() -> None:
    made = encoder()
    sentences, mask = documents()
    assert made(sentences[:0], mask[:0]).shape == (0, 5, 16)
    empty = made(sentences, torch.zeros_like(mask))
    empty.sum().backward()
    assert not empty.any() and not sentences.grad.any()
    mask[2] = False
    assert made(sentences, mask).isfinite().all() and not made(sentences, mask)[2].any()


def test_dropout_acts_in_training_only_and_is_repeated_in_the_second_run() -> None:
    made = encoder(dropout=0.3, rows_at_once=1)
    sentences, mask = documents()
    assert not torch.allclose(made(sentences, mask), made(sentences, mask))

    # One document alone takes one go; with another after it two, and checkpointing repeats what was drawn.
    gradients = []
    for count in (1, 2):
        torch.manual_seed(0)
        predictions = made(sentences[:count], mask[:count])
        gradients.append(torch.autograd.grad(predictions[0].pow(2).sum(), made.mask_vector)[0])
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        evaluated = made(sentences, mask)
    assert all(module.training for module in made.modules())
    torch.testing.assert_close(evaluated, made.eval()(sentences, mask))
