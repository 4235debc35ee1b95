"""Answers to a query: the best rows of stored vectors, one for each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import NotRequired


class SearchResult(TypedDict):
    """A text that answers, its key in the store, and what this says of the text.

    That is its language, where it is from, and its group, where results are groups.
    """

    score: float
    language: str | None
    text: str
    id: str
    source: str | None
    group: NotRequired[str | None]


class Row(NamedTuple):
    """What stands beside a vector. A row without a group is its own: its number."""

    group: str | int
    language: str
    text: str
    key: str
    source: str | None


class Rows(NamedTuple):
    """Vectors (n, d), and what stands beside them, (n,) each; see `Row`."""

    vectors: NDArray[np.float32]
    group: Any  # a sequence, of which some can be selected
    language: NDArray[Any]
    text: NDArray[Any]
    key: NDArray[Any]
    source: NDArray[Any]

    def row(self, place: int) -> Row:
        """What stands beside one vector."""
        return Row(
            self.group[place],
            self.language[place],
            self.text[place],
            self.key[place],
            self.source[place],
        )

    def select(self, is_chosen: Any) -> Rows:
        """Some of the rows."""
        return Rows(*(column[is_chosen] for column in self))

    def versions(self, groups: list[str | int], languages: list[str]) -> Rows:
        """The rows of some groups that are in one of some languages."""
        is_of_group = np.isin(self.group, np.array(groups, object))
        is_in_language = np.isin(self.language, languages)
        return self.select(is_of_group & is_in_language)


@dataclass
class Answer:
    """The best rows for a query, one for each group, best first; `count` at most."""

    count: int
    scores: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, batch: Rows, scores: Any) -> None:
        """Take the rows of a batch into account; of equal scores, the first stays."""
        from st_xlret.search import best_of_groups  # which loads PyTorch: not for --help

        best = best_of_groups(scores, batch.group, self.count)
        rows = self.rows + [batch.row(place) for place in best]
        every_score = self.scores + [float(scores[place]) for place in best]
        groups = [row.group for row in rows]
        kept = best_of_groups(np.array(every_score), groups, self.count)
        self.rows = [rows[place] for place in kept]
        self.scores = [every_score[place] for place in kept]

    def shown_by(self, version: Answer) -> Answer:
        """The same groups and scores, with the rows of a version where it has some."""
        row_of = {row.group: row for row in version.rows}
        rows = [row_of.get(row.group, row) for row in self.rows]
        return Answer(self.count, self.scores, rows)

    def results(self, *, with_group: bool) -> list[SearchResult]:
        """What is shown of each row."""
        results = []
        for score, row in zip(self.scores, self.rows, strict=True):
            result = SearchResult(
                score=round(score, 4),
                language=row.language or None,
                text=row.text,
                id=row.key,
                source=row.source,
            )
            if with_group:
                result["group"] = row.group if isinstance(row.group, str) else None
            results.append(result)
        return results


def place_of(result: SearchResult) -> str:
    """Where a result is: its key, and its group and source if there are any."""
    return ", ".join(filter(None, (result["id"], result.get("group"), result["source"])))
