"""Reading SQuAD's own JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from st_xlret.data.reading.json_lists import EntryError, open_bytes
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.records import required_field
from st_xlret.data.retrieval.examples import Example, make_example


def read_squad(
    path: str | os.PathLike[str],
    *,
    sentences: bool = False,
    titles: bool = True,
    language: str = "en",
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Read ``{"data": [{"title", "paragraphs": [{"context", "qas": [{"question", "answers"}]}]}]}``.

    Args:
        path: A ``.json`` or ``.json.gz`` file of SQuAD 1.1 or 2.0, or of a set in its format (XQuAD, MLQA,
            TyDi-GoldP). Unanswerable questions of 2.0 give an empty passage.
        sentences: Take the sentence with the answer instead of the whole paragraph.
        titles: Put the titles before the texts.
        language: Language of the paragraphs.
        on_bad_line: Called with an error that names the article; if it returns, the article's rest is left
            out. Default: raise.
        on_bytes_read: Called with the number of bytes read.

    Yields:
        Examples, a question each.
    """
    handle_error = on_bad_line or BadLines()
    name = os.fspath(path)
    try:
        with open_bytes(path) as stream:
            content = stream.read()
        articles = json.loads(content)["data"]
    except (ValueError, KeyError, TypeError, EOFError, OSError) as error:
        handle_error(DataError(f"no SQuAD file, {{'data': [articles]}}: {error!r}", file=name, line=1))
        return
    if on_bytes_read is not None:
        on_bytes_read(os.path.getsize(path))
    for number, article in enumerate(articles, start=1):
        try:
            title = str(article.get("title") or "").replace("_", " ") if titles else ""
            for paragraph in required_field(article, "paragraphs", list):
                for question in required_field(paragraph, "qas", list):
                    yield _example(title, paragraph, question, sentences, language)
        except (ValueError, AttributeError) as error:
            handle_error(EntryError(str(error), file=name, line=number))


def _example(
    title: str, paragraph: Mapping[str, Any], question: Mapping[str, Any], sentences: bool, language: str
) -> Example:
    answers = required_field(question, "answers", list) if sentences else []
    unanswerable = question.get("is_impossible", False)
    return make_example(
        required_field(question, "question", str),
        None if unanswerable else title,
        "" if unanswerable else required_field(paragraph, "context", str),
        answers=[required_field(answer, "text", str) for answer in answers] if sentences and not unanswerable else None,
        start=answers[0].get("answer_start") if answers else None,
        language=language,
    )
