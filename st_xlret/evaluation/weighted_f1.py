"""Weighted F1 of nearest neighbours, the score that mteb reports for bitext mining."""

from __future__ import annotations

import torch
from torch import Tensor

from st_xlret.search import top_k


@torch.no_grad()
def weighted_f1(source_embeddings: Tensor, target_embeddings: Tensor) -> float:
    """F1 of the nearest neighbour by cosine, source to target, for row-aligned translations.

    Each target row is a class: its F1 is that of the source rows which find it, and the mean over the target
    rows is what scikit-learn calls weighted and mteb reports, ``f1``, for Tatoeba. Accuracy is higher or
    equal: F1 also counts against a row that others find too. Equal cosines go to the lower row.

    Args:
        source_embeddings: Shape (n, d), not necessarily normalised.
        target_embeddings: Shape (n, d), row-aligned with the source.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: If the shapes differ, there are no rows, or a row holds NaN or infinite values.

    Example:
        >>> source = torch.tensor([[1.0, 0.0], [0.9, 0.1]])
        >>> round(weighted_f1(source, torch.eye(2)), 4)
        0.3333
    """
    if source_embeddings.shape != target_embeddings.shape or not len(source_embeddings):
        shapes = f"{tuple(source_embeddings.shape)} and {tuple(target_embeddings.shape)}"
        raise ValueError(f"source and target must be row-aligned and not empty, got shapes {shapes}.")
    source, target = (
        torch.nn.functional.normalize(side.float(), dim=1) for side in (source_embeddings, target_embeddings)
    )
    nearest = top_k(source, target.to(source.device), 1)[1][:, 0]
    found = torch.bincount(nearest, minlength=len(source))
    right = (nearest == torch.arange(len(source), device=nearest.device)).double()
    return float((2 * right / (1 + found)).mean())
