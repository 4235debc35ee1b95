"""Where the three kinds of data of language-agnostic retrieval come from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from st_xlret.data import normalise_text, pairs_from_dictionary
from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.data.languages import check_languages, match_language
from st_xlret.data.pairs.connections import SETTINGS, connect_languages, keep_connections, without_parallel
from st_xlret.data.pairs.opus import languages_in_name, pairs_from_moses, pairs_from_wikimatrix
from st_xlret.data.pairs.selection import lines_to_exclude
from st_xlret.data.pairs.tmx import pairs_from_tmx
from st_xlret.data.reading.jsonl import DataError
from st_xlret.data.retrieval.loading import load_retrieval_with_report
from st_xlret.training.data_arguments import DataArguments

logger = logging.getLogger(__name__)

# More of a test set's questions than chance explains.
_TOO_MANY_KNOWN = 0.05


@dataclass
class IRDataArguments(DataArguments):
    """Questions with passages, parallel sentences, and sentences without translation (--documents)."""

    retrieval: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Questions and passages: BEIR folders, DPR's or SQuAD's JSON files, MS MARCO triplets (TSV)."
        },
    )
    split: str = field(default="train", metadata={"help": "Which qrels of a BEIR folder to train on."})
    positives: str = field(
        default="passage",
        metadata={
            "help": "What a question is to find: the whole passage, or the sentence of it with the answer.",
            "choices": ["passage", "sentence"],
        },
    )
    titles: bool = field(
        default=True, metadata={"help": "Put the titles of passages before their texts; --no-titles: leave them out."}
    )
    hard_negatives: int = field(
        default=0, metadata={"help": "Hard negatives per question, as DPR's and MS MARCO's files have them."}
    )
    wikimatrix: list[str] = field(
        default_factory=list, metadata={"help": "Mined pairs, as WikiMatrix.en-fr.tsv.gz: score, source, target."}
    )
    wikimatrix_threshold: float = field(default=1.04, metadata={"help": "Lowest score of a mined pair."})
    moses: list[str] = field(
        default_factory=list, metadata={"help": "OPUS's Moses files: X.en-fr.en; X.en-fr.fr stands beside it."}
    )
    tmx: list[str] = field(default_factory=list, metadata={"help": "TMX files."})
    tsv: list[str] = field(
        default_factory=list, metadata={"help": "Parallel sentences, two columns, named like X.en-fr.tsv."}
    )
    connections: str = field(
        default="all",
        metadata={
            "help": "Which language pairs to keep: all, pairs such as 'en-ko ja-fi', or a setting of Table 4: "
            + "; ".join(f"{name}, {about}" for name, about in SETTINGS.items())
            + ". Pairs that are missing are joined through the pivot's sentences."
        },
    )
    pivot: str = field(default="en", metadata={"help": "The language of the questions and passages."})
    bridge: str | None = field(
        default=None, metadata={"help": "The bridge of those settings (the paper's is ko); by default the last."}
    )
    no_parallel: list[str] = field(
        default_factory=list,
        metadata={"help": "Languages to leave without parallel sentences (Table 5: ru sw te th)."},
    )
    others_languages: list[str] = field(
        default_factory=list,
        metadata={"help": "Languages of the sentences without translation; by default all of --documents."},
    )
    others_per_language: int | None = field(
        default=None, metadata={"help": "At most so many sentences without translation per language (Figure 4)."}
    )
    evaluation_questions: int = field(
        default=1000, metadata={"help": "Questions to put aside, to evaluate and choose the best model by."}
    )

    def __post_init__(self) -> None:
        if not self.retrieval:
            raise ValueError("nothing to train on: give --retrieval, questions and passages")

    def load_retrieval(self, test_texts: Sequence[str] = ()) -> Dataset:
        """Questions and passages, without those of a test set.

        Args:
            test_texts: Questions of the test set.

        Raises:
            DataError: If so many of them are among the training data that the wrong part was given.
        """
        dataset, report = load_retrieval_with_report(
            self.retrieval,
            negatives=self.hard_negatives,
            positives=self.positives,
            titles=self.titles,
            split=self.split,
            language=self.pivot,
            skip_bad_lines=self.skip_bad_lines,
        )
        logger.info("%s", report)
        if not test_texts:
            return dataset
        test, questions = {normalise_text(text) for text in test_texts}, list(map(normalise_text, dataset["query"]))
        known = test & set(questions)
        if len(known) > _TOO_MANY_KNOWN * len(test):
            raise DataError(
                f"{len(known)} of the {len(test)} questions of the test set are among those to train on: is it the "
                "part that the test set was made of (XQuAD of SQuAD's dev)? Train on another one"
            )
        logger.info("left out, in the test set: %d questions", len(known))
        return dataset.select([row for row, question in enumerate(questions) if question not in known])

    def load_pairs(self) -> Dataset | None:
        """All parallel sentences, of the languages that are to be connected."""
        if self.connections == "none":
            return None
        languages = self.languages or None
        options: dict[str, Any] = {
            "per_language": self.pairs_per_language,
            "exclude": lines_to_exclude(self.exclude),
            "skip_bad_lines": self.skip_bad_lines,
        }
        parts = [part for part in [super().load_pairs()] if part is not None]
        readers: list[tuple[Any, list[str], dict[str, Any]]] = [
            (pairs_from_wikimatrix, self._wanted(self.wikimatrix), {"threshold": self.wikimatrix_threshold}),
            (pairs_from_moses, self._wanted(self.moses), {}),
            (pairs_from_tmx, self.tmx, {}),
        ]
        for reader, files, more in readers:
            if files:
                found, report = reader(files, languages=languages, **options, **more)
                logger.info("%s", report)
                parts.append(found)
        for file in self._wanted(self.tsv):
            parts.append(pairs_from_dictionary([file], *languages_in_name(file), **options))
        if not parts:
            return None
        pairs = concatenate_datasets(parts)
        if self.connections != "all":
            codes = self.languages or sorted({self.pivot, *_languages(pairs)})
            wanted = connect_languages(codes, self.connections, pivot=self.pivot, bridge=self.bridge)
            pairs, connected = keep_connections(pairs, wanted, pivot=self.pivot)
            logger.info("%s", connected)
        if self.no_parallel:
            pairs, count = without_parallel(pairs, self.no_parallel)
            logger.info("%s: %d pairs left out", ", ".join(self.no_parallel), count)
        return pairs

    def _wanted(self, files: list[str]) -> list[str]:
        """Those whose names hold languages to keep."""
        kept = check_languages(self.languages or None)
        return [file for file in files if all(match_language(code, kept) for code in languages_in_name(file))]

    def load_others(self, seed: int = 0) -> Dataset | None:
        """Sentences without translation, or None."""
        documents = self.load_documents()
        if documents is None:
            return None
        code, names = column_codes(documents, ["language"])
        wanted = set(self.others_languages or (name for (name,) in names))
        if missing := sorted(wanted - {name for (name,) in names}):
            raise DataError(f"--documents holds no sentences in {', '.join(missing)}, which --others-languages names")
        if not self.others_languages and self.others_per_language is None:
            return documents
        generator, chosen = np.random.default_rng([seed, 17]), []
        for (name,), rows in zip(names, rows_by_code(code, len(names)), strict=True):
            if name in wanted:
                limit = len(rows) if self.others_per_language is None else self.others_per_language
                chosen.append(generator.permutation(rows)[:limit])
        return documents.select(np.sort(np.concatenate(chosen)))


def describe_languages(pairs: Dataset | None, others: Dataset | None) -> dict[str, list[str]]:
    """Which languages the cross-lingual losses see, and how.

    Args:
        pairs: Parallel sentences.
        others: Sentences without translation.

    Returns:
        Languages under "with_parallel" and "without_parallel", and under "parallel_only" those with parallel
        sentences that have no others: they are drawn through their pairs alone.
    """
    parallel = set() if pairs is None else _languages(pairs)
    alone = set() if others is None else set(others.unique("language"))
    return {
        "with_parallel": sorted(parallel),
        "without_parallel": sorted(alone - parallel),
        "parallel_only": sorted(parallel - alone),
    }


def _languages(pairs: Dataset) -> set[str]:
    return {code for side in ("source_language", "target_language") for code in pairs.unique(side)}
