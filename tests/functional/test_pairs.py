"""InfoNCE, CZ-NCE and the retrieval loss against loops, the host's loss, and each other."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_xlret import functional as f
from tests.functional.checks import assert_same, assert_zero_without_gradient, vectors
from tests.functional.oracles import naive_context_loss, naive_cz_nce, naive_retrieval_loss


def naive_info_nce(x: Tensor, y: Tensor, **options: Any) -> Tensor:
    """Eq. 2 of lang-contrastive: windows of two rows, in one language."""
    rows = torch.cat([x, y])
    windows = [*range(len(x))] * 2
    languages = [0] * len(rows)
    return naive_context_loss(rows, windows, languages, **options)


NO_TEXTS = None
TEXTS_IN_COMMON = [0, 1, 2, 3, 0, 5, 6, 5, 8, 9]
TEXTS_OF_ONE_SIDE = [0, 1, 1, 3, 4, 3, 6, 7, 8, 9]


@pytest.mark.parametrize("text", [NO_TEXTS, TEXTS_IN_COMMON, TEXTS_OF_ONE_SIDE])
@pytest.mark.parametrize("temperature", [0.07, 0.2])
@pytest.mark.parametrize(
    ("equation", "naive"),
    [(f.cz_nce_loss, naive_cz_nce), (f.info_nce_loss, naive_info_nce)],
)
def test_equals_the_papers_equation(
    equation: Any, naive: Any, temperature: float, text: list[int] | None
) -> None:
    x = vectors(5)
    y = vectors(5, seed=1)
    tags = None if text is None else torch.tensor(text)
    loss = equation(x, y, temperature=temperature, text=tags)
    assert_same(loss, naive(x, y, temperature=temperature, text=text), [x, y])


@pytest.mark.parametrize("pairs, temperature", [(2, 0.07), (4, 0.1), (30, 1.0)])
def test_identities(pairs: int, temperature: float) -> None:
    # All anchors of orthogonal pairs are alike, so that the means can be compared.
    x = torch.eye(pairs, dtype=torch.float64)
    cz_nce = f.cz_nce_loss(x, x, temperature=temperature)
    info_nce = f.info_nce_loss(x, x, temperature=temperature)
    torch.testing.assert_close(cz_nce.item(), math.log(2 * (pairs - 1)) - 1 / temperature)
    torch.testing.assert_close(info_nce, F.softplus(cz_nce))
    window = torch.arange(pairs).repeat(2)
    one_language = torch.zeros_like(window)
    windows = f.contrastive_context_loss(
        torch.cat([x, x]), window, one_language, temperature=temperature
    )
    torch.testing.assert_close(info_nce, windows)


@pytest.mark.parametrize(
    "equation",
    [
        lambda x, y: f.cz_nce_loss(x, y, text=torch.zeros(10).long()),
        lambda x, y: f.info_nce_loss(x[:1], y[:1]),
        lambda x, y: f.retrieval_contrastive_loss(x[:1], y[:1]),
        lambda x, y: f.retrieval_contrastive_loss(x, y, passage_text=torch.zeros(5).long()),
    ],
)
def test_nothing_but_positives_gives_zero_and_no_gradient(equation: Any) -> None:
    x = vectors(5)
    y = vectors(5, seed=1)
    assert_zero_without_gradient(equation(x, y), x, y)


@pytest.mark.parametrize("negatives", [0, 4, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_retrieval_equals_the_hosts_loss(negatives: int, temperature: float) -> None:
    q = vectors(4)
    p = vectors(4 + negatives, seed=1)
    loss = f.retrieval_contrastive_loss(q, p, temperature=temperature)
    host = MultipleNegativesRankingLoss(None, scale=1 / temperature)
    torch.testing.assert_close(loss, host.compute_loss_from_embeddings([q, *p.split(4)], None))


QUERY_TEXT = [1, 2, 3, 1]
PASSAGE_TEXT = [5, 6, 5, 8, 6, 9, 8, 7, 7, 1, 2, 5]


@pytest.mark.parametrize("negatives", [0, 4, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_retrieval_without_copies_equals_the_loop(negatives: int, temperature: float) -> None:
    q = vectors(4)
    p = vectors(4 + negatives, seed=1)
    passage_text = PASSAGE_TEXT[: len(p)]
    loss = f.retrieval_contrastive_loss(
        q,
        p,
        temperature=temperature,
        query_text=torch.tensor(QUERY_TEXT),
        passage_text=torch.tensor(passage_text),
    )
    expected = naive_retrieval_loss(q, p, temperature, QUERY_TEXT, passage_text)
    torch.testing.assert_close(loss, expected)
    assert loss < f.retrieval_contrastive_loss(q, p, temperature=temperature)
