"""A sample of the rows that can be used, in which every row has the same chance."""

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from st_xlret.languages import match_language
from st_xlret.stores.batches import Matrix
from st_xlret.stores.examined import ExaminedRows
from st_xlret.stores.left_out import LeftOut, Reason, counts_in_words


class StoredSample(NamedTuple):
    """Stored vectors of each language, in the order of the codes.

    Attributes:
        vectors: Language -> (n, d), float32.
        documents: Language -> (n,), the document of each, or the row's own id.
    """

    vectors: dict[str, Matrix]
    documents: dict[str, NDArray[Any]]


class Draw:
    """A draw of rows for each language, in one pass: each row has a lot, and the lowest stay.

    For each batch, in the order of the store, `draw_lots` is called and then `add`; at the end,
    `problem` and then `drawn_sample`.

    Attributes:
        left_out: How many rows could not be used, by the reason.
    """

    def __init__(self, per_language: int, wanted: frozenset[str] | None, seed: int) -> None:
        self.left_out = LeftOut()
        self._per_language = per_language
        self._wanted = wanted
        self._generator = np.random.default_rng(seed)
        self._lots: dict[str, NDArray[np.float64]] = {}
        self._vectors: dict[str, Matrix] = {}
        self._documents: dict[str, NDArray[Any]] = {}
        self._known = Counter[str]()

    def draw_lots(self, count: int) -> NDArray[np.float64]:
        """The lots of the next rows, from 0 to 1."""
        return self._generator.random(count)

    def add(self, lots: NDArray[np.float64], rows: ExaminedRows, documents: NDArray[Any]) -> None:
        """Draw from rows that have these lots, and are of these documents."""
        usable = np.flatnonzero(rows.is_usable)
        codes = rows.codes[usable].tolist()
        self._known.update(codes)
        names = np.array([match_language(code, self._wanted) or "" for code in codes], object)
        for name in set(names.tolist()) - {""}:
            chosen = usable[names == name]
            every_lot = np.append(self._lots.get(name, []), lots[chosen])
            vectors = rows.vectors[chosen]
            of_rows = documents[chosen]
            if name in self._vectors:
                vectors = np.concatenate([self._vectors[name], vectors])
                of_rows = np.concatenate([self._documents[name], of_rows])
            lowest = np.argsort(every_lot)[: self._per_language]
            self._lots[name] = every_lot[lowest]
            self._vectors[name] = vectors[lowest]
            self._documents[name] = of_rows[lowest]

    def drawn_sample(self) -> StoredSample:
        """What was drawn."""
        in_order = sorted(self._vectors)
        return StoredSample(
            vectors={code: self._vectors[code] for code in in_order},
            documents={code: self._documents[code] for code in in_order},
        )

    def problem(self, total: int, present: Collection[str]) -> str | None:
        """Why the sample cannot be used, in words, or None; `present` are the fields of the store.

        It cannot where a language that is wanted has no row, none has any, or most labels are no
        codes.
        """
        missing = sorted((self._wanted or frozenset()) - set(self._vectors))
        if not missing and self._known and not self._are_most_labels_no_codes():
            return None
        lacking = ", ".join(missing) or "any"
        there_are = ", ".join(sorted(self._known)[:20]) or "none"
        left_out = counts_in_words(self.left_out.counts_by_words()) or "no rows"
        alike = ", ".join(name for name in present if _looks_like_language(name)) or "none"
        return (
            f"of {total} rows none has a vector and a language ({lacking}); "
            f"there are {there_are}, left out are {left_out}. Languages come from a field "
            f"(--language_field; {alike} looks like one), a file with a code a line "
            "(--languages_file), or texts (--text_field)"
        )

    def _are_most_labels_no_codes(self) -> bool:
        """Whether more rows have a label that is no code than have a language."""
        return self.left_out.count_of(Reason.NO_CODE) > self._known.total()


def _looks_like_language(field: str) -> bool:
    """Whether the name of a field suggests languages, as advice after an error."""
    return "lang" in field.lower() or "locale" in field.lower()
