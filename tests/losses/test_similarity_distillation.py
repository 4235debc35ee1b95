"""SimilarityDistillationLoss is similarity_distillation_loss over an encoder and a teacher's vectors."""

from __future__ import annotations

import random

import pytest
import torch

from st_xlret import SimilarityDistillationLoss
from st_xlret.functional import similarity_distillation_loss
from tests import tiny


def texts(count: int, seed: int = 0) -> list[str]:
    dice = random.Random(seed)
    return [tiny.sentence(dice) for _ in range(count)]


def teacher(rows: int, model) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, model.get_embedding_dimension(), generator=generator)


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_equals_the_functional_with_the_whole_teacher_as_the_bank(make) -> None:
    model = make()
    vectors, labels = teacher(6, model), torch.tensor([4, 0, 4])
    loss = SimilarityDistillationLoss(model, vectors, temperature=0.1, cosine_weight=2.0, weight=3.0)
    value = loss([model.preprocess(texts(3))], labels)
    half = SimilarityDistillationLoss(model, vectors.half(), temperature=0.1, cosine_weight=2.0, weight=3.0)
    torch.testing.assert_close(half([model.preprocess(texts(3))], labels), value, rtol=1e-2, atol=1e-2)
    student = model(model.preprocess(texts(3)))["sentence_embedding"]
    expected = similarity_distillation_loss(student, vectors[labels], vectors, temperature=0.1, cosine_weight=2.0)
    torch.testing.assert_close(value, 3 * expected)


def test_the_bank_depends_on_the_batch_alone() -> None:
    model = tiny.static()
    loss = SimilarityDistillationLoss(model, teacher(500, model), bank_size=20)
    batch, labels = model.preprocess(texts(3)), torch.tensor([1, 2, 3])
    first = loss([batch], labels)
    torch.rand(7)
    assert torch.equal(loss([batch], labels), first)
    assert not torch.equal(loss.bank_rows(torch.tensor([1, 2, 4])), loss.bank_rows(labels))
    assert not torch.equal(loss.bank_rows(torch.tensor([3, 2, 1])), loss.bank_rows(labels))


@pytest.mark.parametrize("bank_size", [0, 5, 6, 9])
def test_no_vector_of_the_bank_counts_twice(bank_size: int) -> None:
    model = tiny.static()
    vectors, labels = teacher(6, model), torch.tensor([4, 0, 4])
    loss = SimilarityDistillationLoss(model, vectors, bank_size=bank_size, cosine_weight=0.0)
    student = model(model.preprocess(texts(3)))["sentence_embedding"].detach()
    rows = range(6) if bank_size >= 6 else {*loss.bank_rows(labels).tolist()}
    assert {0, 4} <= {*rows}
    expected = 0.0
    for vector, label in zip(student, labels, strict=True):
        given, found = (
            torch.stack([torch.cosine_similarity(one, vectors[row], dim=0) / 0.02 for row in rows]).softmax(dim=0)
            for one in (vectors[label], vector)
        )
        expected += float((given * (given / found).log()).sum()) / 3
    assert loss.compute_loss_from_embeddings(student, labels).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("labels", [None, torch.tensor([0.0, 1.0]), torch.tensor([0, 6]), torch.tensor([-1, 2])])
def test_labels_that_name_no_vector_are_refused(labels: torch.Tensor | None) -> None:
    model = tiny.static()
    with pytest.raises(ValueError, match="6 vectors"):
        SimilarityDistillationLoss(model, teacher(6, model))([model.preprocess(texts(2))], labels)


def test_a_model_whose_vectors_are_cut_off() -> None:
    model = tiny.static()
    model.truncate_dim = 4
    loss = SimilarityDistillationLoss(model, torch.tensor(model.encode(["sun", "moon"])))
    assert loss([model.preprocess(["sun", "moon"])], torch.tensor([0, 1])).abs() < 1e-5
