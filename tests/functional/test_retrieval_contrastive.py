"""The retrieval loss is Eq. 1 of lang-contrastive."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_xlret.functional import retrieval_contrastive_loss


def vectors(rows: int, *, features: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, features, generator=generator, dtype=torch.float64).to(dtype)


def naive_loss(
    q: Tensor, p: Tensor, temperature: float, query_text: list[int] | None = None, passage_text: list[int] | None = None
) -> Tensor:
    """Eq. 1, a term at a time."""
    terms = []
    for i in range(len(q)):
        denominator = q.new_zeros(())
        for j in range(len(p)):
            same_question = query_text is not None and j < len(q) and query_text[i] == query_text[j]
            same_passage = passage_text is not None and passage_text[i] == passage_text[j]
            if i == j or not (same_question or same_passage):
                denominator = denominator + torch.exp(F.cosine_similarity(q[i], p[j], dim=0) / temperature)
        terms.append(-torch.log(torch.exp(F.cosine_similarity(q[i], p[i], dim=0) / temperature) / denominator))
    return torch.stack(terms).mean()


@pytest.mark.parametrize("negatives", [0, 4, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_equals_the_equation_and_the_hosts_loss(negatives: int, temperature: float) -> None:
    q, p = vectors(4), vectors(4 + negatives, seed=1)
    loss = retrieval_contrastive_loss(q, p, temperature=temperature)
    torch.testing.assert_close(loss, naive_loss(q, p, temperature))
    host = MultipleNegativesRankingLoss(None, scale=1 / temperature)
    torch.testing.assert_close(loss, host.compute_loss_from_embeddings([q, *p.split(4)], None))


def test_equal_texts_are_no_negatives() -> None:
    q, p = vectors(4), vectors(7, seed=1)
    query_text, passage_text = [1, 2, 3, 1], [5, 6, 5, 8, 6, 9, 8]
    tags = {"query_text": torch.tensor(query_text), "passage_text": torch.tensor(passage_text)}
    loss = retrieval_contrastive_loss(q, p, temperature=0.2, **tags)
    torch.testing.assert_close(loss, naive_loss(q, p, 0.2, query_text, passage_text))
    assert loss < retrieval_contrastive_loss(q, p, temperature=0.2)


def test_gradients() -> None:
    q, p = vectors(3).requires_grad_(), vectors(5, seed=1).requires_grad_()
    text = torch.tensor([1, 1, 2, 3, 2])
    assert torch.autograd.gradcheck(lambda q, p: retrieval_contrastive_loss(q, p, passage_text=text), (q, p))


def test_a_won_query_still_has_a_gradient_in_bfloat16() -> None:
    # The gold passage is 0.9 nearer: exp(-18) is lost in the usual form.
    q = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
    p = torch.tensor([[1.0, 0.05], [0.1, 1.0]], dtype=torch.bfloat16).requires_grad_()
    retrieval_contrastive_loss(q, p, temperature=0.05).backward()
    assert p.grad is not None and p.grad.abs().sum() > 0


def test_a_batch_of_one_and_nothing_but_positives() -> None:
    one = vectors(1).requires_grad_()
    loss = retrieval_contrastive_loss(one, vectors(1, seed=1))
    loss.backward()
    assert loss == 0 and one.grad is not None and not one.grad.any()
    same = torch.zeros(3, dtype=torch.long)
    assert retrieval_contrastive_loss(vectors(3), vectors(3, seed=1), passage_text=same) == 0
