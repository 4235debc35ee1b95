"""What the equations share: checks of their arguments, types of numbers, rows of unit length."""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

LOWEST = torch.finfo(torch.float32).min / 4
"""A logit that weighs nothing. It is finite, and so are differences of two: -inf would give NaN gradients."""


def at_least_float32(x: Tensor) -> Tensor:
    """Convert 16-bit floats to float32 and leave wider ones as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def normalize_rows(x: Tensor) -> Tensor:
    """Scale each row to unit length with gradients, for losses, in float32 at least; `unit_rows` is for search.

    A row of zeros has no direction. It stays zero and gets no gradient; `F.normalize` alone would give it one of 1e12.
    """
    x, zero = at_least_float32(x), ~x.any(dim=1, keepdim=True)
    return F.normalize(x.masked_fill(zero, 1.0), dim=1).masked_fill(zero, 0.0)


def check_matrices(
    rows: int | None = None,
    temperature: float = 1.0,
    least_rows: int = 1,
    **matrices: Tensor | None,
) -> None:
    """Raise a ValueError unless all but None are float matrices of one width and `rows` rows, at least `least_rows`."""
    present = {name: x for name, x in matrices.items() if x is not None}
    fits = all(
        x.ndim == 2 and x.is_floating_point() and rows in (None, len(x)) for x in present.values()
    )
    enough = rows is None or rows >= least_rows
    if not (
        fits and enough and len({x.shape[1] for x in present.values()}) == 1 and temperature > 0
    ):
        got = ", ".join(f"{name} {x.dtype} {tuple(x.shape)}" for name, x in present.items())
        raise ValueError(
            f"matrices must be floating-point, of shape ({rows or 'rows'}, features) with one number of features and "
            f"{least_rows} rows or more, and temperature must be positive: got {got}, temperature {temperature}"
        )


def check_integers_per_row(rows: int, needed: Collection[str] = (), **tags: Tensor | None) -> None:
    """Raise a ValueError unless each of `tags` holds one integer per row, or is None and not `needed`."""
    for name, tag in tags.items():
        if name in needed if tag is None else tag.shape != (rows,) or tag.is_floating_point():
            got = None if tag is None else f"{tag.dtype} {tuple(tag.shape)}"
            raise ValueError(
                f"{name} must hold integers of shape ({rows},), one per row: got {got}"
            )
