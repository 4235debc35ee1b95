"""The whole generated corpus: training documents, few parallel sentences, a held-out parallel test set."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_scripts.demo.corpus.concepts import TOY_LANGUAGES, forms
from training_scripts.demo.corpus.generate import generate_documents, generate_pairs, parallel_rows

_PIVOT = "en"


@dataclass(frozen=True)
class ToyCorpus:
    """A generated corpus in the six languages of ``TOY_LANGUAGES``.

    Attributes:
        documents: Language -> documents ``{"id", "language", "title", "sentences"}``, not parallel.
        pairs: Language -> pairs ``{"source_language", "target_language", "source", "target"}`` with English
            sources; languages without pairs are left out.
        test: Language -> row-aligned test sentences.
    """

    documents: dict[str, list[dict[str, Any]]]
    pairs: dict[str, list[dict[str, str]]]
    test: dict[str, list[str]]


def toy_corpus(
    *,
    documents_per_language: int = 2000,
    pairs_per_language: int = 300,
    languages_without_pairs: Sequence[str] = ("zh", "ru"),
    test_sentences: int = 500,
    seed: int = 0,
) -> ToyCorpus:
    """Generate a corpus on which a small cross-lingual retriever can be trained and tested.

    Args:
        documents_per_language: Documents of 6 to 14 sentences in each language.
        pairs_per_language: English parallel sentences of each language that has any.
        languages_without_pairs: Languages for which there are none.
        test_sentences: Rows of the test set.
        seed: Seed of all choices.

    Returns:
        The corpus. No test sentence occurs in documents or pairs in any language, nor does another sentence
        that says the same.

    Raises:
        ValueError: For unknown languages and negative numbers.

    Example:
        >>> corpus = toy_corpus(documents_per_language=2, pairs_per_language=3, test_sentences=4)
        >>> sorted(corpus.pairs), len(corpus.documents["zh"]), len(corpus.test["zh"])
        (['ar', 'de', 'fr'], 2, 4)
    """
    for language in languages_without_pairs:
        forms(language)
    documents = {
        language: generate_documents(language, documents_per_language, seed=seed) for language in TOY_LANGUAGES
    }
    pairs = {
        language: generate_pairs(_PIVOT, language, pairs_per_language, seed=seed)
        for language in TOY_LANGUAGES
        if language != _PIVOT and language not in languages_without_pairs
    }
    known = {
        language: {sentence for document in documents[language] for sentence in document["sentences"]}
        for language in TOY_LANGUAGES
    }
    for language, rows in pairs.items():
        known[_PIVOT].update(row["source"] for row in rows)
        known[language].update(row["target"] for row in rows)
    return ToyCorpus(documents, pairs, parallel_rows(test_sentences, seed=seed, known=known))


def write_toy_corpus(folder: str | os.PathLike[str], **kwargs: Any) -> Path:
    """Generate the corpus and write it as files that ``load_documents`` and ``load_pairs`` read.

    Each file is written under a temporary name and then moved into place: no interruption leaves half a file.

    Args:
        folder: Where ``documents/<language>.jsonl.gz``, ``pairs/en-<language>.jsonl.gz`` and
            ``test/<language>.txt`` go; created where it is not there.
        **kwargs: Arguments of ``toy_corpus``.

    Returns:
        The folder.

    Raises:
        ValueError: As ``toy_corpus``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sizes = {"documents_per_language": 1, "pairs_per_language": 1, "test_sentences": 1}
        ...     written = write_toy_corpus(folder, **sizes)
        ...     sorted(path.name for path in written.glob("pairs/*"))
        ['en-ar.jsonl.gz', 'en-de.jsonl.gz', 'en-fr.jsonl.gz']
    """
    corpus = toy_corpus(**kwargs)
    root = Path(folder)
    for language, documents in corpus.documents.items():
        _write_json_lines(root / "documents" / f"{language}.jsonl.gz", documents)
    for language, pairs in corpus.pairs.items():
        _write_json_lines(root / "pairs" / f"{_PIVOT}-{language}.jsonl.gz", pairs)
    for language, sentences in corpus.test.items():
        text = "".join(sentence + "\n" for sentence in sentences)
        _write(root / "test" / f"{language}.txt", text.encode())
    return root


def _write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    _write(path, gzip.compress(text.encode(), mtime=0))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
