"""Reading questions and passages in the JSON formats of DPR and SQuAD."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from st_xlret.data.reading.json_list import stream_list
from st_xlret.data.reading.jsonl import DAMAGED, BadLines, DataError, EntryError, limits_of, open_bytes, required_field
from st_xlret.data.reading.text import clean_text
from st_xlret.data.retrieval.examples import Example, make_example, texts_in
from st_xlret.data.retrieval.json_lines import language_of_record


def first_character(path: str | os.PathLike[str]) -> str:
    """The first character of a text file that is not white space; empty if there is none."""
    with open_bytes(path) as stream:
        while chunk := stream.read(1024):
            if text := chunk.lstrip(b"\xef\xbb\xbf \t\r\n"):
                return chr(text[0])
    return ""


def read_dpr(
    path: str | os.PathLike[str],
    *,
    sentences: bool = False,
    titles: bool = True,
    language: str = "en",
    question_languages: Mapping[str, str] | None = None,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Stream a DPR training file, such as `biencoder-nq-train.json`.

    It is one list of `{"question", "answers", "positive_ctxs", "hard_negative_ctxs", "negative_ctxs"}`, where a context
    is `{"title", "text"}`. XOR-TyDi's training data has the same layout. As in DPR, the first positive context is
    taken; the negatives are the hard ones, in their order, or the easy ones if there are no hard ones.

    Args:
        path: A `.json` or `.json.gz` file.
        sentences: Take the sentence with the answer instead of the whole passage.
        titles: Put the titles before the texts.
        language: Language of the passages.
        question_languages: Language of each question whose record names none by a field `language` or `lang`.
        on_bad_line: Called with an error that names the entry. If it returns, the entry is left out. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        Examples; that of a question without a positive context has an empty passage.

    Raises:
        DataError: For a bad entry, and a truncated file, unless `on_bad_line` returns.
    """
    handle_error = on_bad_line or BadLines()
    for number, record in _list_entries(path, handle_error, on_bytes_read):
        try:
            question = required_field(record, "question", str)
            positives = _contexts(required_field(record, "positive_ctxs", list), titles)
            negatives = _contexts(record.get("hard_negative_ctxs") or record.get("negative_ctxs") or [], titles)
            title, text = positives[0] if positives else (None, "")
            answers = texts_in(required_field(record, "answers", list), "answers") if sentences else None
            code = language_of_record(record, (question_languages or {}).get(clean_text(question)))
            example = make_example(
                question, title, text, negatives, answers=answers, language=language, question_language=code
            )
        except ValueError as error:
            handle_error(EntryError(str(error), file=os.fspath(path), line=number))
            continue
        yield example


def read_squad(
    path: str | os.PathLike[str],
    *,
    sentences: bool = False,
    titles: bool = True,
    language: str = "en",
    question_languages: Mapping[str, str] | None = None,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Read a file in SQuAD's format: `{"data": [{"title", "paragraphs": [{"context", "qas": [...]}]}]}`.

    Args:
        path: A `.json` or `.json.gz` file of SQuAD 1.1 or 2.0, or of a data set in its format (XQuAD, MLQA,
            TyDi-GoldP). Unanswerable questions of SQuAD 2.0 give an empty passage.
        sentences: Take the sentence with the answer instead of the whole paragraph.
        titles: Put the titles before the texts.
        language: Language of the paragraphs.
        question_languages: Language of each question whose record names none by a field `language` or `lang`.
        on_bad_line: Called with an error that names the article. If it returns, the rest of the article is left out.
            By default the error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        One example for each question.

    Raises:
        DataError: For a bad article, and a file that is not in the format, unless `on_bad_line` returns.
    """
    handle_error = on_bad_line or BadLines()
    name = os.fspath(path)
    try:
        with open_bytes(path, on_bytes_read) as stream:
            content = stream.read()
        articles = required_field(json.loads(content), "data", list)
    except (ValueError, AttributeError, RecursionError, OSError, *DAMAGED) as error:
        handle_error(DataError(f"not a file in SQuAD's format, {{'data': [articles]}}: {error!r}", file=name, line=1))
        return
    for number, article in enumerate(articles, start=1):
        try:
            title = str(article.get("title") or "").replace("_", " ") if titles else ""
            for paragraph in required_field(article, "paragraphs", list):
                for question in required_field(paragraph, "qas", list):
                    yield _squad_example(title, paragraph, question, sentences, language, question_languages or {})
        except (ValueError, AttributeError) as error:
            handle_error(EntryError(str(error), file=name, line=number))


def _list_entries(
    path: str | os.PathLike[str],
    handle_error: Callable[[DataError], None],
    on_bytes_read: Callable[[int], None] | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Stream (number from 1, object) of a file that is one JSON list, however large."""
    name, number = os.fspath(path), 0
    with open_bytes(path, on_bytes_read) as stream:
        try:
            for number, entry in enumerate(stream_list(stream, limits_of(handle_error).line_bytes), start=1):
                if isinstance(entry, dict):
                    yield number, entry
                else:
                    reason = f"expected a JSON object, found {type(entry).__name__}"
                    handle_error(EntryError(reason, file=name, line=number))
        except (ValueError, RecursionError, *DAMAGED) as error:
            reason = f"the file is truncated or is not JSON from here on ({error})"
            handle_error(EntryError(reason, file=name, line=number + 1))


def _contexts(contexts: Sequence[Any], titles: bool) -> list[tuple[Any, str]]:
    for context in contexts:
        if not isinstance(context, Mapping):
            raise ValueError(f"a context must be an object with 'title' and 'text', found {type(context).__name__}")
    return [(context.get("title") if titles else None, required_field(context, "text", str)) for context in contexts]


def _squad_example(
    title: str,
    paragraph: Mapping[str, Any],
    question: Mapping[str, Any],
    sentences: bool,
    language: str,
    question_languages: Mapping[str, str],
) -> Example:
    text = required_field(question, "question", str)
    answers = required_field(question, "answers", list) if sentences else []
    unanswerable = question.get("is_impossible", False)
    return make_example(
        text,
        None if unanswerable else title,
        "" if unanswerable else required_field(paragraph, "context", str),
        answers=[required_field(answer, "text", str) for answer in answers] if sentences and not unanswerable else None,
        start=_start(answers[0]) if answers else None,
        language=language,
        question_language=language_of_record(question, question_languages.get(clean_text(text))),
    )


def _start(answer: Mapping[str, Any]) -> int | None:
    start = answer.get("answer_start")
    if start is not None and (not isinstance(start, int) or start < 0):
        raise ValueError(f"field 'answer_start' must be a number of characters, found {start!r:.40}")
    return start
