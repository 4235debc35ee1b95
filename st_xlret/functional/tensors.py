"""What the equations share: checks of their arguments, types of numbers, rows and their means."""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

LOWEST = torch.finfo(torch.float32).min / 4
"""A logit that weighs nothing. It is finite, and so are differences of two: -inf would give NaN
gradients."""

MOST_LOGITS = 2**22
"""That are held at a time (4 bytes each)."""


def rows_at_once(columns: int) -> int:
    """How many rows of a matrix of so many columns are held at a time."""
    return max(1, MOST_LOGITS // columns)


def at_least_float32(x: Tensor) -> Tensor:
    """Convert 16-bit floats to float32 and leave wider ones as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def normalize_rows(x: Tensor) -> Tensor:
    """Scale each row to unit length with gradients, for losses, in float32 at least.

    A row of zeros has no direction. It stays zero and gets no gradient; `F.normalize` alone would
    give it one of 1e12. `unit_rows` is for search.
    """
    x = at_least_float32(x)
    is_zero = ~x.any(dim=1, keepdim=True)
    unit = F.normalize(x.masked_fill(is_zero, 1.0), dim=1)
    return unit.masked_fill(is_zero, 0.0)


def mean_where(x: Tensor, mask: Tensor) -> Tensor:
    """The mean of each row of a matrix where the mask is set, 0 where it never is."""
    return (x * mask).sum(1) / mask.sum(1).clamp(min=1)


def check_matrices(
    rows: int | None = None,
    temperature: float = 1.0,
    least_rows: int = 1,
    **matrices: Tensor | None,
) -> None:
    """Raise a ValueError unless all but None are float matrices of one width.

    They have `rows` rows, where that is given, and `least_rows` or more.
    """
    present = {name: x for name, x in matrices.items() if x is not None}
    fit = [_is_matrix(x, rows) for x in present.values()]
    widths = {x.shape[-1] for x in present.values() if x.ndim}
    enough = rows is None or rows >= least_rows
    if all(fit) and len(widths) == 1 and enough and temperature > 0:
        return
    got = ", ".join(f"{name} {x.dtype} {tuple(x.shape)}" for name, x in present.items())
    raise ValueError(
        f"matrices must be floating-point, of shape ({rows or 'rows'}, features) with one number "
        f"of features and {least_rows} rows or more, and temperature must be positive: "
        f"got {got}, temperature {temperature}"
    )


def _is_matrix(x: Tensor, rows: int | None) -> bool:
    return x.ndim == 2 and x.is_floating_point() and rows in (None, len(x))


def check_integers_per_row(rows: int, needed: Collection[str] = (), **tags: Tensor | None) -> None:
    """Raise a ValueError unless each of `tags` holds one integer per row.

    A tag may be None, unless its name is among `needed`.
    """
    for name, tag in tags.items():
        if tag is None and name not in needed:
            continue
        if tag is not None and tag.shape == (rows,) and not tag.is_floating_point():
            continue
        got = "None"
        if tag is not None:
            got = f"{tag.dtype} {tuple(tag.shape)}"
        raise ValueError(f"{name} must hold integers of shape ({rows},), one per row: got {got}")
