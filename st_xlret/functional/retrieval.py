"""The retrieval loss over queries and passages."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional.checks import (
    at_least_float32,
    check_matrix,
    check_tag,
    check_temperature,
    unit_rows,
    without_autocast,
)


def retrieval_contrastive_loss(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float = 0.05,
    query_text: Tensor | None = None,
    passage_text: Tensor | None = None,
) -> Tensor:
    """Retrieval loss L_IR: gold passages against all others (lang-contrastive, Hu et al. 2023, Eq. 1).

    The loss is the mean over queries of `-log(e^{s_ii} / sum_j e^{s_ij})`, where s is the cosine divided by
    `temperature` and j runs over all passages: the gold passages of all queries, and hard negatives. Eq. 1 as printed
    corresponds to a temperature of 1. If texts are given, a passage with the same text as the query's gold passage is
    not a negative, and neither is the gold passage of another copy of the same question.

    Args:
        queries: Query vectors (N, d). They need not have unit length.
        passages: Passage vectors (P, d), P >= N: the gold passages in the order of the queries, then hard negatives
            of any of them.
        temperature: Divisor of the cosines. The default, 0.05, is a factor of 20, the host's default `scale`.
        query_text: Text id of each query, integers (N,).
        passage_text: Text id of each passage, integers (P,).

    Returns:
        A scalar, at least float32. It is 0 if there are no negatives.

    Raises:
        ValueError: If shapes do not fit or the temperature is not positive.

    Example:
        >>> x = torch.eye(4)
        >>> round(retrieval_contrastive_loss(x, x, temperature=0.1).item(), 6)       # log(1 + 3 e^-10)
        0.000136
    """
    check_matrix("queries", queries)
    check_matrix("passages", passages)
    rows, candidates = len(queries), len(passages)
    if not rows or candidates < rows or passages.shape[1] != queries.shape[1]:
        raise ValueError(
            "there must be queries, a gold passage for each and one number of features, got queries of shape "
            f"{tuple(queries.shape)} and passages of shape {tuple(passages.shape)}"
        )
    check_temperature(temperature)
    check_tag("query_text", query_text, rows)
    check_tag("passage_text", passage_text, candidates)

    no_negative = torch.eye(rows, candidates, dtype=torch.bool, device=queries.device)
    if query_text is not None:
        no_negative[:, :rows] |= query_text[:, None] == query_text
    if passage_text is not None:
        no_negative |= passage_text[:rows, None] == passage_text
    with without_autocast(queries):
        scores = (1 / temperature) * unit_rows(at_least_float32(queries)) @ unit_rows(at_least_float32(passages)).T
        lowest = torch.finfo(scores.dtype).min / 4
        negatives = scores.masked_fill(no_negative, lowest).logsumexp(dim=1)
        return -F.logsigmoid(scores.diagonal() - negatives).mean()
