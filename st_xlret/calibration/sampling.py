"""Texts and queries of each language, drawn at random for a calibration."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from st_xlret.calibration.fit_options import TEXTS_FOR_OTHER_STEPS, FitOptions
from st_xlret.data.beir import queries_of
from st_xlret.data.document_files import field_names, is_text_file
from st_xlret.data.documents import Document, Unit, read_documents
from st_xlret.data.reading import BadLines, DataError, read_lines
from st_xlret.data.sources import split_sources
from st_xlret.field_names import find_fields
from st_xlret.languages import check_language, check_languages, language_in_name, match_language

logger = logging.getLogger(__name__)

_TEXT_COLUMNS = ("text", "sentence", "query", "question")
_QUERY_COLUMNS = ("query", "question", "text", "sentence")
_RECORDS = re.compile(r"\.((nd)?json|csv|tsv|parquet)", re.IGNORECASE)

# Beside the seed of the caller, one for each kind of draw.
_TEXT_SEED = 29
_QUERY_SEED = 31


Texts = Mapping[str, Sequence[str]]
"""Language -> texts; one that users give may be in any spelling."""

_Row = tuple[str, str, Any]
"""The language of a text, the text, and what tells its document from others of its language."""

Wanted = frozenset[str] | None
"""Languages in normal form; None for all."""


class Sample(NamedTuple):
    """Distinct texts of one language, at random, and the numbers (n,) of their documents.

    No two languages share a number.
    """

    texts: list[str]
    documents: NDArray[np.int64]

    def first(self, count: int) -> Sample:
        """The first texts, which are a smaller sample, and the numbers of their documents."""
        return Sample(self.texts[:count], self.documents[:count])


class _Entry(NamedTuple):
    """A text that may be drawn, its language in normal form, its file, and its document in that."""

    language: str
    text: str
    file: str
    document: str


class _Place(NamedTuple):
    """The numbers of a file and of a document."""

    file: int
    document: int


def sample_texts(
    texts: Any,
    *,
    languages: Sequence[str] | None = None,
    texts_per_language: int = TEXTS_FOR_OTHER_STEPS,
    min_texts: int = 1,
    min_languages: int = 2,
    unit: Unit | None = None,
    skip_bad_lines: bool = False,
    seed: int = 0,
) -> dict[str, Sample]:
    """Draw distinct texts of each language at random; returns language in normal form -> sample.

    They are drawn evenly from its files, and within a file from its documents.

    Args:
        texts: Language -> texts; or a data set with the columns `text` or `sentence`, `language`
            and, if texts are from documents, `document`, as `load_documents` returns it; or the
            path of a folder in BEIR's layout, or paths of documents as `load_documents` reads them.
            What this function returned is taken as it is.
        languages: Languages to keep; all by default. One without a text is a `DataError`.
        texts_per_language: How many, at most. A smaller sample is the beginning of a larger one.
        min_texts: Languages with fewer texts are left out, and a warning names them.
        min_languages: Fewest languages that have to be left; else a `DataError`.
        unit: What a text of files is, as for `read_documents`. By default a document of a folder in
            BEIR's layout, and a sentence of other sources.
        skip_bad_lines: Skip bad lines of files, and log how many there were.
        seed: Seed of the draw.

    Example:
        >>> texts = {"en": ["one", "two", "two"], "fr": ["un", "deux"]}
        >>> drawn = sample_texts(texts, texts_per_language=2)
        >>> {code: sorted(sample.texts) for code, sample in drawn.items()}
        {'en': ['one', 'two'], 'fr': ['deux', 'un']}
    """
    wanted = check_languages(languages or None)
    drawn: dict[str, Sample] = {}
    if _are_samples(texts):
        for code, part in texts.items():
            if wanted is None or code in wanted:
                drawn[code] = part
    else:
        entries = _text_entries(texts, wanted, unit, skip_bad_lines)
        drawn = _draw_samples(entries, texts_per_language, [seed, _TEXT_SEED])
    return _languages_with_enough(drawn, wanted, min_texts, min_languages)


def _are_samples(texts: Any) -> bool:
    """Whether texts are what `sample_texts` has returned."""
    if not isinstance(texts, Mapping):
        return False
    return all(isinstance(part, Sample) for part in texts.values())


def _languages_with_enough(
    drawn: Mapping[str, Sample], wanted: Wanted, min_texts: int, min_languages: int
) -> dict[str, Sample]:
    """The languages that have enough texts; others are left out, with a warning.

    Too few that are left are a `DataError`, and so is one that was wanted and has no text.
    """
    counts = dict.fromkeys(wanted or (), 0)
    for code, part in drawn.items():
        counts[code] = len(part.texts)
    counts = dict(sorted(counts.items()))
    few = {code: count for code, count in counts.items() if count < min_texts}
    missing = [code for code, count in few.items() if count == 0]
    if missing or len(counts) - len(few) < min_languages:
        raise DataError(
            f"needed are {min_texts} distinct texts (min_texts) in each of {min_languages} "
            f"languages at least, got {counts}"
        )
    if few:
        logger.warning(
            "languages with fewer than %s texts (min_texts) are left out of the fit: %s. They "
            "are searched like the others",
            min_texts,
            few,
        )
    return {code: part for code, part in drawn.items() if code not in few}


def sample_queries(
    queries: Any,
    languages: Sequence[str] | None,
    *,
    texts_per_language: int = TEXTS_FOR_OTHER_STEPS,
    min_texts: int = 1,
    min_languages: int = 1,
    seed: int = 0,
) -> dict[str, list[str]]:
    """Draw distinct queries of each language at random; returns language -> queries.

    `queries` are language -> questions; a data set with the columns `text`, `query` or `question`
    and `language`; or paths: folders in BEIR's layout, JSON lines or tables (`.csv`, `.tsv`,
    `.parquet`) with such fields, or text files with a question per line, named after their language
    (`questions.fr.txt`). Those in no language of `languages`, or None for all, are left out, as are
    languages with fewer than `min_texts`. Fewer than `min_languages` are a `DataError`. Where no
    language is named, it is identified (extra `langid`).
    """
    entries = _query_entries(queries, check_languages(languages))
    drawn = _draw_samples(entries, texts_per_language, [seed, _QUERY_SEED])
    enough = {}
    for code, part in drawn.items():
        if len(part.texts) >= min_texts:
            enough[code] = part.texts
    if len(enough) < min_languages:
        counts = {code: len(part.texts) for code, part in drawn.items()}
        raise DataError(
            f"needed are {min_texts} distinct questions (min_texts) in each of {min_languages} of "
            f"the languages that are looked at: {counts}"
        )
    return enough


def sample_queries_to_fit(
    queries: Any, languages: Sequence[str], options: FitOptions, texts_per_language: int
) -> dict[str, list[str]] | None:
    """The queries that a fit of documents in these languages takes, drawn by its seed, or None.

    Those that join the fit are in any language, others in one of these.
    """
    if queries is None:
        return None
    return sample_queries(
        queries,
        None if options.joins_queries else languages,
        texts_per_language=texts_per_language,
        min_texts=options.min_queries,
        min_languages=options.min_languages,
        seed=options.seed,
    )


def _draw_samples(
    entries: Iterable[_Entry], texts_per_language: int, seed: list[int]
) -> dict[str, Sample]:
    """At most so many distinct texts of each language; languages are sorted.

    The order of the draw does not depend on how many are taken: a smaller sample is the beginning
    of a larger one. It depends on the order of the entries.
    """
    places = _first_places(entries)
    new_numbers = count(sum(map(len, places.values())))  # beyond the numbers that are taken
    generator = np.random.default_rng(seed)
    drawn = {}
    for language in sorted(places):
        distinct = list(places[language])
        files, documents = np.array(list(places[language].values())).T
        if len(documents) > 1 and (documents == documents[0]).all():
            # One name, as a title that all have, tells nothing: its texts would have no neighbours.
            logger.warning(
                "all %d texts in %s are of one document: each counts as one of its own",
                len(documents),
                language,
            )
            documents = np.fromiter(new_numbers, np.int64, len(documents))
        # One of each document before a second one of any: else long ones, as novels, would decide.
        order = generator.permutation(len(documents))
        order = order[_turn_order(documents[order])]
        order = order[_turn_order(files[order])][:texts_per_language]
        texts = [distinct[number] for number in order]
        drawn[language] = Sample(texts, documents[order])
    return drawn


def _first_places(entries: Iterable[_Entry]) -> dict[str, dict[str, _Place]]:
    """Language -> text -> where it stands first."""
    places: dict[str, dict[str, _Place]] = {}
    file_numbers: dict[str, int] = {}
    document_numbers: dict[tuple[str, str], int] = {}
    for language, text, file, document in entries:
        file_number = file_numbers.setdefault(file, len(file_numbers))
        document_number = document_numbers.setdefault((file, document), len(document_numbers))
        of_language = places.setdefault(language, {})
        of_language.setdefault(text, _Place(file_number, document_number))
    return places


def _turn_order(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of rows such that each group gives its first row before any gives its second one.

    Within a turn, and within a group, rows stay in their order.
    """
    turns_of: defaultdict[int, Iterator[int]] = defaultdict(count)
    turns = [next(turns_of[group]) for group in groups.tolist()]
    return np.argsort(turns, kind="stable")


def _read_out(sources: Any) -> Any:
    """The sources; those of an iterator, such as that of `Path.glob`, as a list."""
    return list(sources) if isinstance(sources, Iterator) else sources


def _query_entries(queries: Any, wanted: Wanted) -> Iterator[_Entry]:
    """Queries, each a document of its own; one that names no language is identified."""
    if isinstance(queries, Mapping | Dataset):
        yield from _row_entries(queries, wanted)
        return
    sources, collections = split_sources(_read_out(queries))
    for collection in collections:
        if not isinstance(collection, Dataset):
            raise DataError(
                f"queries are in files or a Dataset, not in a {type(collection).__name__}"
            )
        yield from _row_entries(collection, wanted)
    for source in sources:
        path = queries_of(Path(source)) or Path(source)
        for document in _read_queries(path, wanted):
            for text in filter(None, document.sentences):
                yield _Entry(document.language, text, file="", document=text)


def _read_queries(path: Path, wanted: Wanted) -> Iterator[Document]:
    """The queries of a file as documents: records, or a query on each line."""
    if _RECORDS.search(path.name) and not is_text_file(path):
        names = field_names(path)
        column = next((name for name in _QUERY_COLUMNS if find_fields(names, [name])), None)
        return read_documents([path], languages=wanted, unit="text", column=column)
    language = {}
    with suppress(ValueError):
        language["language"] = language_in_name(path)
    records = [{"text": text, **language} for _, text in read_lines(path)]
    return read_documents([records], languages=wanted, unit="text")


def _text_entries(
    texts: Any, wanted: Wanted, unit: Unit | None, skip_bad_lines: bool
) -> Iterator[_Entry]:
    """The texts of a mapping, of a data set or of files, whose bad lines are counted in the log."""
    if isinstance(texts, Mapping | Dataset):
        yield from _row_entries(texts, wanted)
        return
    bad_lines = BadLines(skip_bad_lines)
    sources = _read_out(texts)
    for document in read_documents(sources, languages=wanted, unit=unit, bad_lines=bad_lines):
        # A document in several languages is one in each.
        name = f"{document.language} {document.id}"
        for text in filter(None, document.sentences):
            yield _Entry(document.language, text, document.file, name)
    bad_lines.warn()


def _row_entries(texts: Texts | Dataset, wanted: Wanted) -> Iterator[_Entry]:
    """The texts of a mapping or of a data set, in the languages that are wanted."""
    rows = _rows_of_dataset(texts) if isinstance(texts, Dataset) else _rows_of_mapping(texts)
    for code, text, document in rows:
        if not isinstance(text, str):
            raise DataError(f"a text must be a string, found {text!r:.40} in {code!r}")
        language = match_language(check_language(code), wanted)
        if language is not None and text.strip():
            yield _Entry(language, text.strip(), file=language, document=str(document))


def _rows_of_mapping(texts: Texts) -> Iterator[_Row]:
    """Language, text and number of each text: each is a document of its own."""
    for code, part in texts.items():
        if isinstance(part, str):
            raise DataError(f"a list of texts is needed in {code!r}, found the text {part!r:.40}")
        for number, text in enumerate(part):
            yield code, text, number


def _rows_of_dataset(texts: Dataset) -> Iterator[_Row]:
    """Language, text and document of each row; without documents, each row is one of its own."""
    names = texts.column_names
    column = next((name for name in _TEXT_COLUMNS if name in names), "text")
    documents = texts["document"] if "document" in names else range(len(texts))
    return zip(texts["language"], texts[column], documents, strict=True)
