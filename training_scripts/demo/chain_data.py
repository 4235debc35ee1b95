"""Data for the whole chain on the generated corpus: documents, parallel sentences, questions, and a test set.

    python -m training_scripts.demo.chain_data --output runs/chain/data

A question is a sentence of a story, and its passage the rest of the story, in English and German. The test set has
sentences in six languages: each is to find its translations among the sentences of all languages (LAReQA's task).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_xlret.files import write_text_atomically
from st_xlret.options import option, parse
from training_scripts.demo.corpus import TOY_LANGUAGES, write_toy_corpus
from training_scripts.demo.corpus.generate import generate_documents

QUESTION_LANGUAGES = ("en", "de")


@dataclass
class ChainDataArguments:
    """How much is generated."""

    output: str = option("runs/chain/data", "Folder for documents, pairs, questions.jsonl and test.")
    documents: int = option(1000, "Documents in each of the six languages.", minimum=1)
    questions: int = option(1000, "Questions in each of two languages.", minimum=1)
    test: int = option(200, "Sentences of the test set, each in six languages.", minimum=1)
    seed: int = option(0, "Seed of the corpus.", minimum=0)


def main(arguments: list[str] | None = None) -> Path:
    """Write the data; returns the folder."""
    (options,) = parse([ChainDataArguments], arguments, description=__doc__)
    folder = write_toy_corpus(
        options.output,
        documents_per_language=options.documents,
        languages_without_pairs=("zh",),
        test_sentences=options.test,
        seed=options.seed,
    )
    _write(folder / "questions.jsonl", questions(options.questions, options.seed))
    write_test(folder)
    return folder


def questions(count: int, seed: int) -> Iterator[dict[str, str]]:
    """A sentence of each of some stories that are not among the documents, with the rest of the story."""
    for language in QUESTION_LANGUAGES:
        dice = random.Random(f"questions/{language}/{seed}")
        for story in generate_documents(language, count, seed=seed + 1):
            sentences = list(story["sentences"])
            asked = sentences.pop(dice.randrange(len(sentences)))
            yield {"query": asked, "positive": " ".join(sentences), "language": language}


def write_test(folder: Path) -> None:
    """Write the parallel test sentences as a pool in BEIR's layout, in which each is a question and a candidate."""
    texts = {code: (folder / "test" / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in TOY_LANGUAGES}
    rows = range(len(texts["en"]))
    names = {code: [f"{code}-{row}" for row in rows] for code in texts}
    for file in ("corpus", "queries"):
        lines = (
            {"_id": names[code][row], "text": texts[code][row], "metadata": {"language": code}}
            for code in texts
            for row in rows
        )
        _write(folder / "test" / f"{file}.jsonl", lines)
    judged = [
        f"{names[code][row]}\t{names[other][row]}\t1"
        for code in texts
        for row in rows
        for other in texts
        if other != code
    ]
    header = "query-id\tcorpus-id\tscore"
    write_text_atomically(folder / "test" / "qrels" / "test.tsv", "\n".join([header, *judged]) + "\n")


def _write(file: Path, records: Iterable[dict[str, Any]]) -> None:
    write_text_atomically(file, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


if __name__ == "__main__":
    main()
