"""Answers to a query: the best rows of stored vectors, one for each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import NotRequired


class SearchResult(TypedDict):
    """A text that answers, its key in the store, and what this says of the text.

    That is its language, where it is from, and its group, where results are groups. A text without
    a group is its own: its number.
    """

    score: float
    language: str | None
    text: str
    id: str
    source: str | None
    group: NotRequired[str | int | None]


class Rows(NamedTuple):
    """Vectors (n, d), and what stands beside them, (n,) each; see `SearchResult`."""

    vectors: NDArray[np.float32]
    group: Any  # a sequence, of which some can be selected
    language: NDArray[Any]
    text: NDArray[Any]
    key: NDArray[Any]
    source: NDArray[Any]

    def result(self, place: int, score: float) -> SearchResult:
        """What stands beside one vector, which has this score."""
        return SearchResult(
            score=score,
            language=self.language[place] or None,
            text=self.text[place],
            id=self.key[place],
            source=self.source[place],
            group=self.group[place],
        )

    def select(self, is_chosen: Any) -> Rows:
        """Some of the rows."""
        return Rows(*(column[is_chosen] for column in self))

    def versions(self, groups: list[str | int | None], languages: list[str]) -> Rows:
        """The rows of some groups that are in one of some languages."""
        is_of_group = np.isin(self.group, np.array(groups, object))
        is_in_language = np.isin(self.language, languages)
        return self.select(is_of_group & is_in_language)


@dataclass
class Answer:
    """The best rows for a query, one for each group, best first; `count` at most."""

    count: int
    results: list[SearchResult] = field(default_factory=list)

    @property
    def groups(self) -> list[str | int | None]:
        """The group of each result."""
        return [result["group"] for result in self.results]

    def add(self, batch: Rows, scores: Any) -> None:
        """Take the rows of a batch into account; of equal scores, the first stays."""
        from st_xlret.search import best_of_groups  # which loads PyTorch: not for --help

        for place in best_of_groups(scores, batch.group, self.count):
            self.results.append(batch.result(place, float(scores[place])))
        every_score = np.array([result["score"] for result in self.results])
        kept = best_of_groups(every_score, self.groups, self.count)
        self.results = [self.results[place] for place in kept]

    def shown_by(self, version: Answer) -> Answer:
        """The same groups and scores, with the rows of a version where it has some."""
        shown = dict(zip(version.groups, version.results, strict=True))
        results: list[SearchResult] = []
        for result in self.results:
            row = shown.get(result["group"], result)
            results.append({**row, "score": result["score"]})
        return Answer(self.count, results)

    def as_shown(self, *, with_group: bool) -> list[SearchResult]:
        """The results, with rounded scores, and the names of groups if these were asked for."""
        for result in self.results:
            result["score"] = round(result["score"], 4)
            group = result.pop("group")
            if with_group:
                result["group"] = group if isinstance(group, str) else None
        return self.results


def place_of(result: SearchResult) -> str:
    """Where a result is: its key, and its group and source if there are any."""
    parts = [result["id"], result.get("group"), result["source"]]
    return ", ".join(str(part) for part in parts if part)
