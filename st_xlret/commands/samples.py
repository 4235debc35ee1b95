"""Texts and questions of each language: what a calibration is fitted on, and what a language bias is measured on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from st_xlret.commands.texts import read_texts as read_lines_of
from st_xlret.data.documents.loading import LoadReport
from st_xlret.data.documents.reading import find_documents, read_documents
from st_xlret.data.language_identification import LanguageIdentifier
from st_xlret.data.languages import check_language, check_languages, language_in_name, match_language
from st_xlret.data.reading.jsonl import BadLines, DataError, Limits, read_jsonl
from st_xlret.data.reading.sources import existing_path
from st_xlret.data.retrieval.beir import is_beir, read_texts

logger = logging.getLogger(__name__)

QUESTION_FIELDS = ("text", "query", "question")


class Sample(NamedTuple):
    """Texts of one language.

    Attributes:
        texts: Distinct texts.
        documents: For each text, the number of the document that it is from (n,).
    """

    texts: list[str]
    documents: Tensor


def sample_texts(
    sources: Sequence[str],
    *,
    languages: Sequence[str] = (),
    texts_per_language: int = 1500,
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
    seed: int = 0,
) -> dict[str, Sample]:
    """Distinct texts of each language, drawn at random: evenly from its files, and within a file from its documents.

    Args:
        sources: One folder in BEIR's layout, or documents.
        languages: Languages to keep; all by default.
        texts_per_language: How many, at most. A smaller sample is the beginning of a larger one.
        skip_bad_lines: Skip bad lines, and say how many there were.
        limits: Longest line and sentence. By default those of `Limits`.
        seed: Seed of the draw.

    Returns:
        Language to its sample.

    Raises:
        DataError: If the texts of a BEIR folder do not name their languages, or a language has no text.
    """
    bad_lines = BadLines(skip_bad_lines, limits or Limits())
    if len(sources) == 1 and is_beir(sources[0]):
        entries = _of_beir(Path(sources[0]), languages, bad_lines)
    else:
        entries = _of_documents(sources, languages, bad_lines)
    found: dict[str, dict[str, tuple[int, int]]] = {}  # language -> text -> the numbers of its file and its document
    files: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    for language, text, file, document in entries:
        place = files.setdefault(file, len(files)), numbers.setdefault((file, document), len(numbers))
        found.setdefault(language, {}).setdefault(text, place)
    if missing := sorted((check_languages(languages or None) or frozenset()) - found.keys()):
        raise DataError(f"no text is in {', '.join(missing)}, only in {', '.join(sorted(found)) or 'no language'}")
    generator = np.random.default_rng([seed, 29])
    drawn = {}
    for language in sorted(found):
        texts = list(found[language])
        file_of, documents = np.array(list(found[language].values())).T
        order = _over_documents(documents, generator)
        order = order[_take_turns(file_of[order])][:texts_per_language]
        drawn[language] = Sample([texts[i] for i in order], torch.from_numpy(documents[order]))
    return drawn


def check_counts(counts: dict[str, int], least: int) -> None:
    """Refuse what nothing can be fitted to or measured on, before anything is embedded.

    Args:
        counts: Language to its number of texts.
        least: Fewest texts of a language.

    Raises:
        DataError: If there is one language, or a language has fewer texts. Names all of them.
    """
    if len(counts) < 2:
        there = ", ".join(counts) or "none"
        raise DataError(f"all texts are in one language ({there}): there is no language bias to measure or to remove")
    few = [f"{code!r} has {count}" for code, count in counts.items() if count < least]
    if few:
        raise DataError(
            f"a language needs {least} distinct texts at least, and {', '.join(few)}: give more text, name the other "
            "languages with --languages, or lower --min_texts"
        )


def sample_questions(
    sources: Sequence[str], languages: Sequence[str], *, texts_per_language: int = 1500, seed: int = 0
) -> dict[str, list[str]]:
    """Distinct questions of each language, drawn at random.

    Args:
        sources: Folders in BEIR's layout, JSON lines with a field `text`, `query` or `question` and, if they name it, a
            `language`, or text files with a question per line, named after their language (`questions.fr.txt`).
        languages: The languages of the documents. Questions in others are left out. Those that name no language are
            identified among these, which needs the extra `langid`.
        texts_per_language: How many, at most.
        seed: Seed of the draw.

    Returns:
        Language to questions, for those of `languages` that have any.

    Raises:
        DataError: If a source cannot be read, or no question is in any of the languages.
        ImportError: If a language has to be identified and the extra is not installed.
    """
    identifier: LanguageIdentifier | None = None
    wanted = check_languages(list(languages))
    found: dict[str, dict[str, None]] = {}
    for code, text in (entry for source in sources for entry in _questions_of(source)):
        if code is None:
            identifier = identifier or LanguageIdentifier(languages)
            language: str | None = identifier.identify(text)
        else:
            language = match_language(check_language(code), wanted)
        if language is not None and text.strip():
            found.setdefault(language, {})[text.strip()] = None
    if not found:
        raise DataError(f"--queries {' '.join(sources)}: no question is in {', '.join(languages)}")
    generator = np.random.default_rng([seed, 31])
    drawn = {}
    for language in sorted(found):
        texts = list(found[language])
        drawn[language] = [texts[i] for i in generator.permutation(len(texts))[:texts_per_language]]
    return drawn


def _over_documents(documents: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random order of texts that takes one of each document before a second one of any.

    Long documents, such as novels, would otherwise decide what the texts of their language are about.
    """
    order = generator.permutation(len(documents))
    return order[_take_turns(documents[order])]


def _take_turns(groups: np.ndarray) -> np.ndarray:
    """Places of rows such that each group gives its first row before any gives its second one.

    Example:
        >>> _take_turns(np.array([7, 7, 7, 8, 8])).tolist()
        [0, 3, 1, 4, 2]
    """
    seen: dict[int, int] = {}
    turns = np.empty(len(groups), dtype=np.int64)
    for place, group in enumerate(groups.tolist()):
        turns[place] = seen[group] = seen.get(group, -1) + 1
    return np.argsort(turns, kind="stable")


def _questions_of(source: str) -> Iterator[tuple[str | None, str]]:
    """(language or None, question) of one source."""
    if is_beir(source):
        file = next((path for path in sorted(Path(source).iterdir()) if path.name.startswith("queries.jsonl")), None)
        if file is None:
            raise DataError(f"--queries {source}: the folder has no queries.jsonl")
        yield from ((text.language, text.text) for text in read_texts(file))
        return
    path = existing_path(source)
    if path.is_dir():
        raise DataError(f"--queries {source}: name files, or a folder in BEIR's layout")
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        for line, record in read_jsonl(path):
            text = next((record[name] for name in QUESTION_FIELDS if isinstance(record.get(name), str)), None)
            if text is None:
                reason = f"a question needs a field out of {', '.join(QUESTION_FIELDS)}"
                raise DataError(reason, file=str(path), line=line)
            yield _language_of(record), text
        return
    try:
        language = language_in_name(path)
    except DataError:
        language = None
    yield from ((language, text) for text in read_lines_of(str(path)))


def _language_of(record: dict[str, Any]) -> str | None:
    metadata = record.get("metadata")
    language = record.get("language") or (metadata.get("language") if isinstance(metadata, dict) else None)
    return language if isinstance(language, str) else None


def _of_beir(folder: Path, languages: Sequence[str], bad_lines: BadLines) -> Iterator[tuple[str, str, str, str]]:
    """(language, text, file, document) of the corpus."""
    wanted = check_languages(languages or None)
    file = next(path for name in ("corpus.jsonl", "corpus.jsonl.gz") if (path := folder / name).is_file())
    identifier = None
    for entry in read_texts(file, on_bad_line=bad_lines):
        text = entry.text.strip()
        if not text:
            continue
        if entry.language is None:
            identifier = identifier or _identifier(languages, file, entry.id, entry.line)
            language: str | None = identifier.identify(text)
        else:
            try:
                language = match_language(check_language(entry.language), wanted)
            except ValueError as error:
                bad_lines(DataError(str(error), file=str(file), line=entry.line))
                continue
        if language is not None:
            document = entry.metadata.get("document") or entry.title or entry.id
            yield language, text, file.name, f"{language} {document}"
    if bad_lines.count:
        logger.warning("%d bad lines were skipped", bad_lines.count)


def _identifier(languages: Iterable[str], file: Path, name: str, line: int) -> LanguageIdentifier:
    """An identifier for texts that name no language, if there is a closed list of languages to choose from."""
    ways = "add metadata.language to the corpus, or fit on documents that name theirs with --documents"
    if not languages:
        reason = f"the text {name!r} names no language: {ways}, or list the languages to tell apart with --languages"
        raise DataError(reason, file=str(file), line=line)
    try:
        return LanguageIdentifier(languages)
    except ImportError as error:
        raise DataError(f"the text {name!r} names no language: {ways} ({error})", file=str(file), line=line) from error


def _of_documents(
    sources: Sequence[str], languages: Sequence[str], bad_lines: BadLines
) -> Iterator[tuple[str, str, str, str]]:
    """(language, text, file, document) of all documents."""
    for entry in read_documents(
        find_documents(list(sources)), check_languages(languages or None), LoadReport(), bad_lines
    ):
        for text in entry.sentences:
            if text:
                yield entry.language, text, entry.file, str(entry.line)
    if bad_lines.count:
        logger.warning("%d bad lines were skipped", bad_lines.count)
