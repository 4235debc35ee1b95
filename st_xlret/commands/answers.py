"""Answers to a query: the best rows of stored vectors, one for each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import NotRequired

GroupName: TypeAlias = str | int
"""What versions of a text share; a text without a group is its own: its number."""


class SearchResult(TypedDict):
    """A text that answers, as it is shown: its key in the store, and what this says of the text.

    That is its language, where it is from, and the name of its group, where results are groups. The
    help of `--json` lists these fields.
    """

    score: float
    language: str | None
    text: str
    id: str
    source: str | None
    group: NotRequired[str | None]


class FoundRow(NamedTuple):
    """A row that answers, with its group."""

    group: GroupName
    result: SearchResult


class StoredRows(NamedTuple):
    """Vectors (n, d), and what stands beside them, (n,) each, as in `SearchResult`."""

    vectors: NDArray[np.float32]
    group: Any  # a sequence, of which some can be selected
    language: NDArray[Any]
    text: NDArray[Any]
    key: NDArray[Any]
    source: NDArray[Any]

    def found_row(self, place: int, score: float) -> FoundRow:
        """The row at a place, which has this score."""
        result = SearchResult(
            score=score,
            language=self.language[place] or None,
            text=self.text[place],
            id=self.key[place],
            source=self.source[place],
        )
        return FoundRow(self.group[place], result)

    def select(self, is_chosen: NDArray[np.bool_]) -> StoredRows:
        """Some of the rows."""
        return StoredRows(*(column[is_chosen] for column in self))

    def versions_of_groups(self, groups: list[GroupName], languages: list[str]) -> StoredRows:
        """The rows of some groups that are in one of some languages."""
        is_of_group = np.isin(self.group, np.array(groups, object))
        is_in_language = np.isin(self.language, languages)
        return self.select(is_of_group & is_in_language)


@dataclass
class Answer:
    """The best rows for a query, one for each group, best first; `count` at most.

    Batches of rows are added in the order of the store.
    """

    count: int
    rows: list[FoundRow] = field(default_factory=list)

    @property
    def groups(self) -> list[GroupName]:
        """The group of each row."""
        return [row.group for row in self.rows]

    def add(self, batch: StoredRows, scores: NDArray[np.floating]) -> None:
        """Take the rows of a batch into account; of equal scores, the first stays."""
        from st_xlret.search import best_of_groups  # which loads PyTorch: not for --help

        for place in best_of_groups(scores, batch.group, self.count):
            self.rows.append(batch.found_row(place, float(scores[place])))
        every_score = np.array([row.result["score"] for row in self.rows])
        kept = best_of_groups(every_score, self.groups, self.count)
        self.rows = [self.rows[place] for place in kept]

    def shown_by(self, version: Answer) -> Answer:
        """The same groups and scores, with the rows of a version where it has some."""
        versions = dict(version.rows)
        rows = []
        for group, result in self.rows:
            shown = versions.get(group, result)
            rows.append(FoundRow(group, {**shown, "score": result["score"]}))
        return Answer(self.count, rows)

    def results(self, *, with_group: bool) -> list[SearchResult]:
        """What is shown: rounded scores, and the names of groups if these were asked for."""
        results: list[SearchResult] = []
        for group, found in self.rows:
            result: SearchResult = {**found, "score": round(found["score"], 4)}
            if with_group:
                result["group"] = group if isinstance(group, str) else None
            results.append(result)
        return results


def shown_language(result: SearchResult) -> str:
    """The language of a result as people see it, `?` for none."""
    return result["language"] or "?"


def shown_place(result: SearchResult) -> str:
    """Where a result is, for people: its key, and its group and source if there are any."""
    parts = [result["id"], result.get("group"), result["source"]]
    return ", ".join(str(part) for part in parts if part)
