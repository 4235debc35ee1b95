"""The retrieval loss: queries against passages."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from st_xlret.functional.checks import at_least_float32, check_matrix, check_tag, without_autocast
from st_xlret.functional.contrastive import _unit_rows


def retrieval_contrastive_loss(
    queries: Tensor,
    passages: Tensor,
    *,
    scale: float = 20.0,
    query_text: Tensor | None = None,
    passage_text: Tensor | None = None,
) -> Tensor:
    """L_IR (Eq. 1 of lang-contrastive): the gold passage against all other passages of the batch.

    Mean over queries of ``-log(e^{s_ii} / sum_j e^{s_ij})`` with s the cosine times ``scale`` and j over all
    passages: the gold ones of the other queries, and hard negatives. Eq. 1 as it is printed has the scale 1.
    Where texts are given, passages that say what the gold one says, and gold passages of the same question,
    are not negatives.

    Args:
        queries: Query vectors (N, d).
        passages: Passage vectors (P, d), P >= N: the gold passages in the order of the queries, then hard
            negatives of any of them.
        scale: Factor on the cosines, the inverse of a temperature.
        query_text: Text id of each query, integers (N,).
        passage_text: Text id of each passage, integers (P,).

    Returns:
        A scalar, at least float32; 0 where there are no negatives.

    Raises:
        ValueError: On shapes that do not fit or a scale that is not positive.

    Example:
        >>> x = torch.eye(4)
        >>> round(retrieval_contrastive_loss(x, x, scale=10.0).item(), 6)       # log(1 + 3 e^-10)
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
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    check_tag("query_text", query_text, rows)
    check_tag("passage_text", passage_text, candidates)

    no_negative = torch.eye(rows, candidates, dtype=torch.bool, device=queries.device)
    if query_text is not None:
        no_negative[:, :rows] |= query_text[:, None] == query_text
    if passage_text is not None:
        no_negative |= passage_text[:rows, None] == passage_text
    with without_autocast(queries):
        scores = scale * _unit_rows(at_least_float32(queries)) @ _unit_rows(at_least_float32(passages)).T
        lowest = torch.finfo(scores.dtype).min / 4
        negatives = scores.masked_fill(no_negative, lowest).logsumexp(dim=1)
        return -F.logsigmoid(scores.diagonal() - negatives).mean()
