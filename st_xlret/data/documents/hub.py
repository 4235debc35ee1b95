"""Documents of data sets of the Hugging Face Hub, streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import datasets

from st_xlret.data.languages import check_language
from st_xlret.data.reading.sources import Place

TEXT_COLUMNS = ("sentences", "text", "raw_content", "content")


class HubDocuments:
    """Records `{"language", "text"}` (or `"sentences"`) of a data set with a text column, read anew by each iteration.

    Args:
        dataset: Rows with `text`, `content`, `raw_content` or `sentences`; one that is streamed will do.
        language: Language of all of them. By default the rows' own `language` column.
        identity: What tells this data set from others and from other versions of it, to know that it was read before.
            By default the data set's fingerprint, if it has one.
        total: Number of rows, for the progress bar. By default that of the data set, if it is known.

    Raises:
        ValueError: If the data set has none of the text columns, or no language is known.
    """

    def __init__(
        self,
        dataset: datasets.Dataset | datasets.IterableDataset,
        language: str | None = None,
        *,
        identity: str | None = None,
        total: int | None = None,
    ) -> None:
        names = dataset.column_names or list(next(iter(dataset), {}))
        column = next((name for name in TEXT_COLUMNS if name in names), None)
        if column is None:
            raise ValueError(f"the data set needs a column out of {', '.join(TEXT_COLUMNS)}; it has {names}")
        if language is None and "language" not in names:
            raise ValueError("the data set has no 'language' column: name the language as NAME:CONFIG=LANGUAGE")
        self.dataset, self.column = dataset, column
        self.language = None if language is None else check_language(language)
        self.total = len(dataset) if total is None and isinstance(dataset, datasets.Dataset) else total
        identity = identity or getattr(dataset, "_fingerprint", None)
        self._fingerprint = identity and f"{identity} {column} {self.language}"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._records(self.dataset)

    def after(self, place: Place) -> Iterator[dict[str, Any]]:
        """Read on after a place."""
        if isinstance(self.dataset, datasets.Dataset):
            return self._records(self.dataset.select(range(place.record, len(self.dataset))))
        if place.state is not None:
            self.dataset.load_state_dict(place.state)
            return self._records(self.dataset)
        return self._records(self.dataset.skip(place.record) if place.record else self.dataset)

    def state(self) -> dict[str, Any] | None:
        """Where a streamed data set is being read, as JSON."""
        return None if isinstance(self.dataset, datasets.Dataset) else self.dataset.state_dict()

    def _records(self, rows: datasets.Dataset | datasets.IterableDataset) -> Iterator[dict[str, Any]]:
        key = self.column if self.column in ("sentences", "raw_content") else "text"
        for row in rows:
            yield {"language": self.language or row["language"], key: row[self.column]}

    @classmethod
    def load(cls, name: str) -> HubDocuments:
        """Find the `train` split of a data set of the Hugging Face Hub, to be streamed from there.

        Nothing is downloaded before its rows are read, and no copy of it is kept. When offline (`HF_HUB_OFFLINE`), it
        is taken from the local cache of `datasets`, where `datasets.load_dataset` puts it.

        Args:
            name: `NAME=LANGUAGE`, `NAME:CONFIG=LANGUAGE` or, if the rows have a `language` column, `NAME:CONFIG`. A
                folder of Parquet files will do as the name.
        """
        path, _, language = name.rpartition("=") if "=" in name else (name, "", "")
        path, _, config = path.partition(":")
        if datasets.config.HF_HUB_OFFLINE and not os.path.isdir(path):
            return cls(datasets.load_dataset(path, config or None, split="train"), language or None)
        builder = datasets.load_dataset_builder(path, config or None)
        rows = builder.as_streaming_dataset(split="train")
        known = (builder.info.splits or {}).get("train")
        total = None if known is None else known.num_examples
        return cls(rows, language or None, identity=builder.cache_dir, total=total)
