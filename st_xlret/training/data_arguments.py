"""Where a script's documents and parallel sentences come from."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets

from st_xlret.data import (
    load_documents_with_report,
    load_hub_documents,
    load_pairs_with_report,
    pairs_from_dictionary,
    pairs_from_parallel_documents,
)
from st_xlret.data.pairs.selection import lines_to_exclude

logger = logging.getLogger(__name__)


@dataclass
class DocumentArguments:
    """Documents to train on."""

    documents: list[str] = field(default_factory=list, metadata={"help": "Document files or folders."})
    hub_documents: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Hugging Face datasets of texts: NAME:CONFIG=LANGUAGE, such as wikimedia/wikipedia:20231101.fr=fr."
        },
    )
    languages: list[str] = field(default_factory=list, metadata={"help": "Languages to keep (ISO 639-1); default all."})
    skip_bad_lines: bool = field(default=False, metadata={"help": "Count bad lines instead of stopping at the first."})

    def load_documents(self) -> Dataset | None:
        """All documents as one dataset of sentences."""
        sources = [*self.documents, *(load_hub_documents(name) for name in self.hub_documents)]
        if not sources:
            return None
        dataset, report = load_documents_with_report(
            sources, languages=self.languages or None, skip_bad_lines=self.skip_bad_lines
        )
        logger.info("%s", report)
        return dataset


@dataclass
class DataArguments(DocumentArguments):
    """What to train on."""

    pairs: list[str] = field(default_factory=list, metadata={"help": "Files or folders of parallel sentences."})
    parallel_documents: list[str] = field(
        default_factory=list,
        metadata={"help": "Documents with verse references: equal references are parallel sentences."},
    )
    dictionaries: list[str] = field(
        default_factory=list,
        metadata={"help": "Word lists, two columns; the languages are read off names like WORDS.en-fr.tsv.gz."},
    )
    pairs_per_language: int | None = field(
        default=None,
        metadata={"help": "At most so many pairs per language pair; the 500 are among the 5000."},
    )
    exclude: list[str] = field(
        default_factory=list,
        metadata={"help": "Text files whose lines must not be in the pairs, such as a test set's English side."},
    )
    evaluation_pairs: int = field(
        default=200,
        metadata={"help": "Pairs per language to put aside, to evaluate and choose the best model by."},
    )

    def __post_init__(self) -> None:
        if not (self.documents or self.hub_documents or self.pairs or self.parallel_documents or self.dictionaries):
            raise ValueError(
                "nothing to train on: give --documents, --hub-documents, --pairs, --parallel-documents or "
                "--dictionaries"
            )

    def load_pairs(self) -> Dataset | None:
        """All parallel data as one dataset."""
        options: dict[str, Any] = {
            "per_language": self.pairs_per_language,
            "exclude": lines_to_exclude(self.exclude),
            "skip_bad_lines": self.skip_bad_lines,
        }
        languages = self.languages or None
        parts = []
        if self.pairs:
            part, report = load_pairs_with_report(self.pairs, languages=languages, **options)
            logger.info("%s", report)
            parts.append(part)
        if self.parallel_documents:
            parts.append(pairs_from_parallel_documents(self.parallel_documents, languages=languages, **options))
        for file in self.dictionaries:
            source, target = languages_of_dictionary(file)
            if not languages or {source, target} <= set(languages):
                parts.append(pairs_from_dictionary([file], source, target, **options))
        return concatenate_datasets(parts) if parts else None


def languages_of_dictionary(file: str) -> tuple[str, str]:
    """The two languages in a name like WORDS.en-fr.tsv.gz."""
    for part in Path(file).name.split(".")[:-1]:
        source, dash, target = part.partition("-")
        if dash and 2 <= len(source) <= 3 and 2 <= len(target) <= 7:
            return source, target
    raise ValueError(f"{file!r} does not name its languages, as WORDS.en-fr.tsv.gz does")
