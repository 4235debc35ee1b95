"""Which rows of a store cannot be used: counted by the reason, and put into words."""

from collections import Counter
from collections.abc import Mapping
from enum import Enum


class Reason(Enum):
    """Why a row is left out, in the words that follow a count of rows."""

    NO_VECTOR = "without a vector that can be mapped"
    NO_LANGUAGE = "without a language"
    NO_CODE = "with a language that is no code, such as {!r}"
    NO_MAP = "in {}, for which there is no map"
    NOTHING_TO_STORE = "of which the map leaves nothing to store"
    DELETED = "deleted meanwhile"


class LeftOut:
    """How many rows were left out, by the reason.

    Those of `Reason.NO_MAP` are counted for each language, those of `Reason.NO_CODE` together,
    under the first label.
    """

    def __init__(self) -> None:
        self._counts = Counter[tuple[Reason, str]]()
        self._first_label: str | None = None

    def add(self, reason: Reason, count: int, detail: str = "") -> None:
        """Count further rows; the detail is the language, or a label that is no code.

        Of such labels, the first one stands for all.
        """
        if reason is Reason.NO_CODE:
            self._first_label = self._first_label or detail
            detail = self._first_label
        self._counts[reason, detail] += count

    def count_of(self, reason: Reason) -> int:
        """How many rows were left out for a reason."""
        return sum(count for (why, _), count in self._counts.items() if why is reason)

    def counts_by_words(self) -> Counter[str]:
        """The counts by their reasons in words, without those of no rows."""
        words = Counter[str]()
        for (reason, detail), count in self._counts.items():
            words[reason.value.format(detail)] = count
        return +words


def counts_in_words(left_out: Mapping[str, int]) -> str:
    """Counts of rows by reason, as `LeftOut.counts_by_words` gives them, in words."""
    parts = []
    for reason, count in left_out.items():
        rows = "row" if count == 1 else "rows"
        parts.append(f"{count} {rows} {reason}")
    return "; ".join(parts)
