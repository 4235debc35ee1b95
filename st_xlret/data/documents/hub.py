"""Documents from the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets import Dataset, load_dataset

from st_xlret.data.languages import check_language


class HubDocuments:
    """Records ``{"language", "text"}`` out of a dataset that has a text column, read again at each iteration.

    Args:
        dataset: Rows with ``text``, ``content`` or ``sentences``.
        language: Language of all of them; by default the rows' own ``language`` column.

    Raises:
        ValueError: If the dataset has none of the text columns, or no language is known.
    """

    def __init__(self, dataset: Dataset, language: str | None = None) -> None:
        names = ("sentences", "text", "content")
        column = next((name for name in names if name in dataset.column_names), None)
        if column is None:
            raise ValueError(f"the dataset needs a column out of {', '.join(names)}; it has {dataset.column_names}")
        if language is None and "language" not in dataset.column_names:
            raise ValueError("the dataset has no 'language' column: name the language as NAME:CONFIG=LANGUAGE")
        self.dataset, self.column = dataset, column
        self.language = None if language is None else check_language(language)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        key = "sentences" if self.column == "sentences" else "text"
        for row in self.dataset:
            yield {"language": self.language or row["language"], key: row[self.column]}


def load_hub_documents(name: str, *, split: str = "train") -> HubDocuments:
    """Load a dataset of documents from the Hub, or from its local cache when offline.

    Args:
        name: ``NAME``, ``NAME:CONFIG``, each with ``=LANGUAGE`` where the rows do not say theirs, such as
            ``wikimedia/wikipedia:20231101.fr=fr``.
        split: Split of the dataset.

    Returns:
        Records that :func:`~st_xlret.data.load_documents` takes as a source.

    Raises:
        ValueError: If columns or the language are missing.
    """
    path, _, language = name.partition("=")
    path, _, config = path.partition(":")
    return HubDocuments(load_dataset(path, config or None, split=split), language or None)
