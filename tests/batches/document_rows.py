"""Documents of given lengths, for the tests of batches."""

from __future__ import annotations

from datasets import Dataset


def documents(lengths: dict[str, list[int]]) -> Dataset:
    """A row for each sentence of documents with these numbers of sentences, by language."""
    counts = [(code, count) for code, of_code in lengths.items() for count in of_code]
    return Dataset.from_list(
        [
            {"sentence": f"{d}.{p}", "language": code, "document": d, "position": p}
            for d, (code, count) in enumerate(counts)
            for p in range(count)
        ]
    )
