"""What a rerun writes: rows without a mapped vector, or with that of another vector."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from st_xlret.stores.batches import Matrix

# Of two vectors that are one, the numbers differ by less, as parts of the largest: sums in another
# order, and the type that the store holds.
_LEAST_TOLERANCE = 1e-5


@dataclass
class RerunCounts:
    """What `Store.write` has done with rows that have a mapped vector, but for new ones.

    Attributes:
        gone: Rows that were deleted in the store before they could be written.
        kept: Rows that had the same mapped vector before.
        changed: Rows that had another one, and were written again.
    """

    gone: int = 0
    kept: int = 0
    changed: int = 0

    def add(self, due: "Due", is_gone: NDArray[np.bool_] | None = None) -> None:
        """Count the rows of a batch that is written; `is_gone`, (n,), by default of none.

        Stale rows are not counted: they have no mapped vector now, and are left out for that.
        """
        if is_gone is None:
            is_gone = np.zeros_like(due.is_stale)
        self.gone += int((is_gone & ~due.is_stale).sum())
        self.kept += int(due.is_kept.sum())
        self.changed += int((due.is_changed & ~is_gone).sum())


class Due(NamedTuple):
    """What is to be done with the rows of a batch, (n,) each.

    Attributes:
        is_new: There is no mapped vector yet.
        is_changed: There is another one.
        is_kept: There is the same one.
        is_stale: There is one, and there should be none.
    """

    is_new: NDArray[np.bool_]
    is_changed: NDArray[np.bool_]
    is_kept: NDArray[np.bool_]
    is_stale: NDArray[np.bool_]

    def with_others(self, is_other: NDArray[np.bool_]) -> "Due":
        """Rows that have the same vector, and something else beside it, are changed, too."""
        return self._replace(
            is_changed=self.is_changed | (self.is_kept & is_other),
            is_kept=self.is_kept & ~is_other,
        )


def due_rows(mapped: Matrix, there: Matrix, numbers: DTypeLike) -> Due:
    """Compare mapped vectors, NaN for none, with those that are there, of a type of numbers.

    Both are as the store keeps them: one that divides vectors by their lengths needs the mapped
    ones divided, too. Else every rerun writes all of them again.
    """
    has_vector = ~np.isnan(mapped[:, 0])
    is_there = ~np.isnan(there[:, 0])
    tolerance = max(_LEAST_TOLERANCE, 2 * float(np.finfo(numbers).eps))
    largest = np.abs(mapped).max(axis=1)
    is_same = np.abs(mapped - there).max(axis=1) <= tolerance * largest
    return Due(
        is_new=has_vector & ~is_there,
        is_changed=has_vector & is_there & ~is_same,
        is_kept=has_vector & is_there & is_same,
        is_stale=is_there & ~has_vector,
    )
