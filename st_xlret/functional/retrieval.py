"""The retrieval loss: the passage of each query against all others."""

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional.tensors import (
    LOWEST,
    at_least_float32,
    check_integers_per_row,
    check_matrices,
    normalize_rows,
)

__all__ = ["retrieval_contrastive_loss"]


def retrieval_contrastive_loss(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float = 0.05,
    query_text: Tensor | None = None,
    passage_text: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    """Retrieval loss L_IR: gold passages against others (lang-contrastive, Hu et al. 2023, Eq. 1).

    The loss is the mean over queries of `-log(e^{s_ii} / sum_j e^{s_ij})`, where s is the cosine
    divided by `temperature` and j runs over all passages. Without negatives it is 0.

    Args:
        queries: Query vectors (N, d). They need not have unit length.
        passages: Passage vectors (P, d): the gold passages in the order of the queries, then hard
            negatives.
        temperature: Divisor of the cosines. 0.05 is the host's default `scale` of 20; Eq. 1 as
            printed has 1.
        query_text: Text id of each query, integers (N,). Gold passages of equal questions are no
            negatives.
        passage_text: Text id of each passage, integers (P,). Passages of the gold passage's text
            are no negatives.
        normalize: Whether s is the cosine; if off, the inner product, as in DPR.

    Example:
        >>> x = torch.eye(4)
        >>> loss = retrieval_contrastive_loss(x, x, temperature=0.1)
        >>> round(loss.item(), 6)                               # log(1 + 3 e^-10)
        0.000136
    """
    rows = len(queries)
    check_matrices(rows, temperature, queries=queries, gold_passages=passages[:rows])
    check_integers_per_row(rows, query_text=query_text)
    check_integers_per_row(len(passages), passage_text=passage_text)
    no_negative = torch.eye(rows, len(passages), dtype=torch.bool, device=queries.device)
    if query_text is not None:
        no_negative[:, :rows] |= query_text[:, None] == query_text
    if passage_text is not None:
        no_negative |= passage_text[:rows, None] == passage_text
    with torch.autocast(queries.device.type, enabled=False):
        scale = normalize_rows if normalize else at_least_float32
        scores = (1 / temperature) * scale(queries) @ scale(passages).T
        negatives = scores.masked_fill(no_negative, LOWEST).logsumexp(dim=1)
        return -F.logsigmoid(scores.diagonal() - negatives).mean()
