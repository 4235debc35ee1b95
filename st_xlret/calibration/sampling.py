"""Texts and questions of each language: what a calibration is fitted on, and what a language bias is measured on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from st_xlret.data.beir import is_beir, read_texts
from st_xlret.data.documents import Unit, read_documents
from st_xlret.data.lines import BadLines, DataError, Limits, read_jsonl, read_lines
from st_xlret.data.sources import existing_path
from st_xlret.languages import LanguageIdentifier, check_language, check_languages, language_in_name, match_language

logger = logging.getLogger(__name__)

_OF_MEANS = frozenset({"lsar", "shift", "to_pivot"})  # steps that need means alone
_TEXT_COLUMNS = ("text", "sentence")
_QUESTION_FIELDS = ("text", "query", "question")
_Entries = Iterator[tuple[str, str, str, str]]  # language, text, file, document


class Sample(NamedTuple):
    """Distinct texts of one language, and the numbers of the documents that they are from (n,)."""

    texts: list[str]
    documents: Tensor


def usual_texts(steps: Sequence[str]) -> int:
    """Texts of each language that a calibration needs: 300 for steps that means determine, and 1 500 for others.

    Example:
        >>> usual_texts(["lsar"]), usual_texts(["shift", "coral"])
        (300, 1500)
    """
    return 300 if _OF_MEANS.issuperset(steps) else 1500


def sample_texts(
    texts: Any,
    *,
    languages: Sequence[str] | None = None,
    texts_per_language: int = 1500,
    min_texts: int = 1,
    unit: Unit | None = None,
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
    seed: int = 0,
) -> dict[str, Sample]:
    """Draw distinct texts of each language at random: evenly from its files, and within a file from its documents.

    Args:
        texts: Language -> texts; or a data set with the columns `text` or `sentence`, `language` and, if texts are from
            documents, `document`, as `load_documents` returns it; or the path of a folder in BEIR's layout, or paths of
            documents as `load_documents` reads them. Samples that were drawn before are taken as they are.
        languages: Languages to keep; all by default.
        texts_per_language: How many, at most. A smaller sample is the beginning of a larger one.
        min_texts: Fewest texts of a language.
        unit: What a text of files is, see `read_documents`. By default a document of a folder in BEIR's layout, and a
            sentence of other sources.
        skip_bad_lines: Skip bad lines of files, and log how many there were.
        limits: Longest line and sentence of files. By default those of `Limits`.
        seed: Seed of the draw.

    Returns:
        Language -> its sample.

    Raises:
        DataError: If there is a single language, a language has fewer than `min_texts` texts, or texts do not name
            their language.

    Example:
        >>> found = sample_texts({"en": ["one", "two", "two"], "fr": ["un", "deux"]}, texts_per_language=2)
        >>> {code: sorted(sample.texts) for code, sample in found.items()}
        {'en': ['one', 'two'], 'fr': ['deux', 'un']}
    """
    wanted = check_languages(languages or None)
    if isinstance(texts, Mapping) and all(isinstance(found, Sample) for found in texts.values()):
        drawn = {code: found for code, found in texts.items() if wanted is None or code in wanted}
    else:
        found: dict[str, dict[str, tuple[int, int]]] = {}  # language -> text -> the numbers of its file and document
        files: dict[str, int] = {}
        numbers: dict[tuple[str, str], int] = {}
        for language, text, file, document in _entries(
            texts, wanted, unit, BadLines(skip_bad_lines, limits or Limits())
        ):
            place = files.setdefault(file, len(files)), numbers.setdefault((file, document), len(numbers))
            found.setdefault(language, {}).setdefault(text, place)
        if missing := sorted((wanted or frozenset()) - found.keys()):
            raise DataError(f"no text is in {', '.join(missing)}, only in {', '.join(sorted(found)) or 'no language'}")
        generator = np.random.default_rng([seed, 29])
        drawn = {}
        for language in sorted(found):
            distinct = list(found[language])
            file_of, documents = np.array(list(found[language].values())).T
            # One of each document before a second one of any: else long documents, such as novels, would decide.
            order = generator.permutation(len(documents))
            order = order[_take_turns(documents[order])]
            order = order[_take_turns(file_of[order])][:texts_per_language]
            drawn[language] = Sample([distinct[i] for i in order], torch.from_numpy(documents[order]))
    if len(drawn) < 2:
        there = ", ".join(drawn) or "none"
        raise DataError(f"all texts are in one language ({there}): there is no language bias to measure or to remove")
    few = [f"{code!r} has {len(part.texts)}" for code, part in drawn.items() if len(part.texts) < min_texts]
    if few:
        raise DataError(
            f"a language needs {min_texts} distinct texts at least (min_texts), and {', '.join(few)}: give more text, "
            "leave these languages out, or lower min_texts"
        )
    return drawn


def sample_questions(
    questions: Any, languages: Sequence[str], *, texts_per_language: int = 1500, min_texts: int = 1, seed: int = 0
) -> dict[str, list[str]]:
    """Draw distinct questions of each language at random.

    Args:
        questions: Language -> questions; a data set with the columns `text`, `query` or `question` and `language`; or
            paths: folders in BEIR's layout, JSON lines with such fields, or text files with a question per line, named
            after their language (`questions.fr.txt`).
        languages: The languages of the documents. Questions in others are left out. Those that name no language are
            identified among these, which needs the extra `langid`.
        texts_per_language: How many, at most.
        min_texts: Languages with fewer questions are left out.
        seed: Seed of the draw.

    Returns:
        Language -> questions.

    Raises:
        DataError: If a source cannot be read, or fewer than two languages have enough questions.
        ImportError: If a language has to be identified and the extra is not installed.
    """
    identifier: LanguageIdentifier | None = None
    wanted = check_languages(list(languages))
    found: dict[str, dict[str, None]] = {}
    for code, text in _questions(questions):
        if code is None:
            identifier = identifier or LanguageIdentifier(languages)
            language: str | None = identifier.identify(text)
        else:
            language = match_language(check_language(code), wanted)
        if language is not None and text.strip():
            found.setdefault(language, {})[text.strip()] = None
    if not found:
        raise DataError(f"no question is in {', '.join(languages)}")
    generator = np.random.default_rng([seed, 31])
    drawn = {}
    for language in sorted(found):
        texts = list(found[language])
        drawn[language] = [texts[i] for i in generator.permutation(len(texts))[:texts_per_language]]
    enough = {code: texts for code, texts in drawn.items() if len(texts) >= min_texts}
    if len(enough) < 2:
        counts = ", ".join(f"{code} {len(texts)}" for code, texts in drawn.items())
        raise DataError(
            f"{min_texts} distinct questions (min_texts) in each of two languages at least are needed, and there are "
            f"{counts}: give more, lower min_texts, or leave the questions out"
        )
    return enough


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


def _entries(texts: Any, wanted: frozenset[str] | None, unit: Unit | None, bad_lines: BadLines) -> _Entries:
    if isinstance(texts, Mapping):
        return _of_rows(((code, text, str(row)) for code in texts for row, text in enumerate(texts[code])), wanted)
    if isinstance(texts, Dataset):
        column = next((name for name in _TEXT_COLUMNS if name in texts.column_names), None)
        if column is None or "language" not in texts.column_names:
            there = ", ".join(texts.column_names)
            raise ValueError(f"the data set needs a column 'text' or 'sentence', and 'language'; it has: {there}")
        names = [texts[name] for name in ("language", column)]
        documents = texts["document"] if "document" in texts.column_names else range(len(texts))
        return _of_rows(zip(*names, map(str, documents), strict=True), wanted)
    return _of_documents([texts] if isinstance(texts, str | Path) else list(texts), wanted, unit, bad_lines)


def _of_rows(rows: Iterable[tuple[str, str, str]], wanted: frozenset[str] | None) -> _Entries:
    for code, text, document in rows:
        language = match_language(check_language(code), wanted)
        if language is not None and text.strip():
            yield language, text.strip(), language, document


def _of_documents(
    sources: list[Any], wanted: frozenset[str] | None, unit: Unit | None, bad_lines: BadLines
) -> _Entries:
    """The texts of documents; those of a document in several languages are documents of their own."""
    for entry in read_documents(sources, languages=wanted, unit=unit, bad_lines=bad_lines):
        for text in filter(None, entry.sentences):
            yield entry.language, text, entry.file, f"{entry.language} {entry.name}"
    bad_lines.warn(logger)


def _questions(questions: Any) -> Iterator[tuple[str | None, str]]:
    """(language or None, question)."""
    if isinstance(questions, Mapping):
        yield from ((code, text) for code, texts in questions.items() for text in texts)
    elif isinstance(questions, Dataset):
        for row in questions:
            yield _language_of(row), _question_of(row, "the data set", 0)
    else:
        for source in [questions] if isinstance(questions, str | Path) else questions:
            yield from _of_questions(str(source))


def _of_questions(source: str) -> Iterator[tuple[str | None, str]]:
    if is_beir(source):
        file = next((path for path in sorted(Path(source).iterdir()) if path.name.startswith("queries.jsonl")), None)
        if file is None:
            raise DataError("the folder has no queries.jsonl", file=source)
        yield from ((text.language, text.text) for text in read_texts(file))
        return
    path = existing_path(source)
    if path.is_dir():
        raise DataError("questions are read from files, or from a folder in BEIR's layout", file=source)
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        for line, record in read_jsonl(path):
            yield _language_of(record), _question_of(record, str(path), line)
        return
    try:
        language = language_in_name(path)
    except ValueError:
        language = None
    yield from ((language, text) for _, text in read_lines(path))


def _question_of(record: Mapping[str, Any], file: str, line: int) -> str:
    text = next((record[name] for name in _QUESTION_FIELDS if isinstance(record.get(name), str)), None)
    if text is None:
        raise DataError(f"a question needs a field out of {', '.join(_QUESTION_FIELDS)}", file=file, line=line)
    return str(text)


def _language_of(record: Mapping[str, Any]) -> str | None:
    metadata = record.get("metadata")
    language = record.get("language") or (metadata.get("language") if isinstance(metadata, dict) else None)
    return language if isinstance(language, str) else None
