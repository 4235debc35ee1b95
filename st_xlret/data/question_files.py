"""Readers of questions with their passages: BEIR folders and JSON lines to examples."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

from st_xlret.data import beir
from st_xlret.data.reading import (
    BadLines,
    first_record,
    parse_entries,
    read_jsonl,
    with_known_names,
)
from st_xlret.data.texts import clean_text
from st_xlret.field_names import has_fields
from st_xlret.folders import unpacked_name
from st_xlret.languages import labelled_language, warn_of_unread_labels

FORMATS = (
    "folders in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), and JSON lines"
    ' {"query", "positive", "title", "negatives", "answers", "answer_start", "language"} (.jsonl),'
    " of which the first two are needed; the guide has recipes for the files of DPR, SQuAD, MS"
    " MARCO, Mr.TyDi, XOR-TyDi and Mewsli-X"
)
_FIELDS = ("query", "positive", "title", "negatives", "answers", "answer_start")
_DEFAULT = "the default language is taken"
_logger = logging.getLogger(__name__)


class Passage(NamedTuple):
    """A passage, whose title may be empty."""

    title: str
    text: str


class Example(NamedTuple):
    """A question as read, its passage, its answers, and passages that do not answer it."""

    query: str
    title: str
    text: str
    answers: list[str]
    language: str | None
    negatives: Sequence[Passage] = ()
    passage_language: str | None = None
    answer_start: int | None = None


def holds_questions(file: Path) -> bool:
    """Whether a file of a folder is one of questions."""
    if not unpacked_name(file).endswith(".jsonl"):
        return False
    return has_fields(first_record(file), ("query", "positive"))


def examples_of_file(file: Path, bad_lines: BadLines) -> Iterator[Example]:
    """Stream the examples of a file of JSON lines."""
    records = warn_of_unread_labels(read_jsonl(file, bad_lines), str(file), _DEFAULT)
    return parse_entries(records, _example_of_row, file, bad_lines)


def _example_of_row(row: Mapping[str, Any]) -> Example:
    """The example of a record. A `KeyError`, `TypeError` or `ValueError` says what it lacks."""
    record = with_known_names(row, _FIELDS)
    query = clean_text(record["query"])
    text = clean_text(record["positive"])
    title = record.get("title")
    title = "" if title is None else clean_text(title)
    language = labelled_language(record)
    negatives = _clean_texts(record.get("negatives"))
    answers = _clean_texts(record.get("answers"))
    start = record.get("answer_start")
    if start is not None:
        start = index(start)
        text = record["positive"]  # the start counts characters of the text as it stands
    return Example(
        query=query,
        title=title,
        text=text,
        answers=answers,
        language=language,
        negatives=[Passage("", negative) for negative in negatives],
        answer_start=start,
    )


def examples_of_beir(files: beir.BeirFiles, bad_lines: BadLines) -> Iterator[Example]:
    """A question gives an example for each relevant passage.

    Passages judged 0 are its hard negatives.
    """
    judged = beir.read_qrels(files.qrels, bad_lines)
    names: set[str] = set()
    for judgements in judged.values():
        names |= judgements.keys()
    passages = _clean_texts_by_id(files.corpus, names, bad_lines)
    asked = _clean_texts_by_id(files.queries, judged.keys(), bad_lines)
    missing = names - passages.keys()
    if missing:
        _logger.warning(
            "%s: %d judged passages are not in %s and left out, such as %r",
            files.qrels,
            len(missing),
            files.corpus.name,
            min(missing),
        )
    for query, judgements in judged.items():
        question = asked.get(query)
        if question is None:
            bad_lines(f"the query {query!r} is not in {files.queries.name}", files.qrels, 0)
            continue
        yield from _examples_of_question(question, judgements, passages)


def _examples_of_question(
    question: beir.BeirText,
    judgements: Mapping[str, int],
    passages: Mapping[str, beir.BeirText],
) -> Iterator[Example]:
    """An example for each relevant passage; all share the list of negatives.

    Both come in the order of the judgements. Passages that are not in the corpus are left out.
    """
    relevant = []
    negatives = []
    for name, grade in judgements.items():
        passage = passages.get(name)
        if passage is None:
            continue
        if grade > 0:
            relevant.append(passage)
        else:
            negatives.append(Passage(passage.title, passage.text))
    for passage in relevant:
        yield Example(
            query=question.text,
            title=passage.title,
            text=passage.text,
            answers=question.answers,
            language=question.language,
            negatives=negatives,
            passage_language=passage.language,
        )


def _clean_texts_by_id(
    file: Path, ids: Collection[str], bad_lines: BadLines
) -> dict[str, beir.BeirText]:
    """The texts with these ids, cleaned; another text of an id is a bad line."""
    texts: dict[str, beir.BeirText] = {}
    for number, text in beir.read_texts(file, bad_lines, ids=ids):
        try:
            clean = replace(
                text,
                title=clean_text(text.title),
                text=clean_text(text.text),
                answers=_clean_texts(text.answers),
            )
        except ValueError as error:
            bad_lines(str(error), file, number)
            continue
        if texts.setdefault(text.id, clean) != clean:
            bad_lines(f"another text above has the id {text.id!r}", file, number)
    return texts


def _clean_texts(value: Any) -> list[str]:
    """The texts of a list, of one text or of nothing."""
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list):
        raise TypeError(f"expected a text or a list of texts, found {texts!r:.40}")
    return [clean_text(text) for text in texts]
