"""The document encoder against a loop over masked sentences."""

from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.modules import DocumentEncoder
from tests.functional.oracles import naive_predictions

LENGTHS = (5, 2, 3, 1)


def document_encoder(layers: int = 2, *, dropout: float = 0.0, **options: Any) -> DocumentEncoder:
    torch.manual_seed(layers)
    made = DocumentEncoder(16, layers, 4, max_sentences=6, dropout=dropout, **options)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made.double()


def documents() -> tuple[Tensor, Tensor]:
    """Sentences of four documents, and where there are some."""
    generator = torch.Generator().manual_seed(0)
    sentences = torch.randn(4, 5, 16, dtype=torch.float64, generator=generator)
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return sentences.requires_grad_(), mask


@pytest.mark.parametrize("rows_at_once", [4096, 40, 1])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_equals_masking_one_sentence_after_another(layers: int, rows_at_once: int) -> None:
    made = document_encoder(layers, rows_at_once=rows_at_once)
    sentences, mask = documents()
    filled = [rows[:length] for rows, length in zip(sentences, LENGTHS, strict=True)]
    of_documents = naive_predictions(
        made.layers, made.norm, made.mask_vector, made.positions.weight, filled
    )
    expected = torch.cat(of_documents)
    predictions = made(sentences, mask)
    torch.testing.assert_close(predictions[mask], expected)
    assert not predictions[~mask].any()
    inputs = [sentences, *made.parameters()]
    weight = torch.randn_like(expected)
    ours = torch.autograd.grad((predictions[mask] * weight).sum(), inputs)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    torch.testing.assert_close(ours, theirs)


def test_nothing_to_predict() -> None:
    made = document_encoder()
    sentences, mask = documents()
    assert made(sentences[:0], mask[:0]).shape == (0, 5, 16)
    empty = made(sentences, torch.zeros_like(mask))
    empty.sum().backward()
    assert not empty.any()
    assert not sentences.grad.any()


def test_a_document_without_sentences_among_others() -> None:
    sentences, mask = documents()
    mask[2] = False
    predictions = document_encoder()(sentences, mask)
    assert predictions.isfinite().all()
    assert not predictions[2].any()


def test_dropout_is_repeated_in_the_second_run() -> None:
    made = document_encoder(dropout=0.3, rows_at_once=1)
    sentences, mask = documents()
    # One document alone takes one go; with another after it two, and checkpointing repeats what
    # was drawn.
    gradients = []
    for count in (1, 2):
        torch.manual_seed(0)
        predictions = made(sentences[:count], mask[:count])
        gradients.append(torch.autograd.grad(predictions[0].pow(2).sum(), made.mask_vector)[0])
    torch.testing.assert_close(*gradients)


def test_dropout_acts_in_training_only() -> None:
    made = document_encoder(dropout=0.3, rows_at_once=1)
    sentences, mask = documents()
    assert not torch.allclose(made(sentences, mask), made(sentences, mask))
    with torch.no_grad():
        evaluated = made(sentences, mask)
    for module in made.modules():
        assert module.training
    torch.testing.assert_close(evaluated, made.eval()(sentences, mask))
