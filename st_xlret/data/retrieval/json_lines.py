"""Reading questions with passages from JSON lines: Mr.TyDi's and MIRACL's training files, and rows of one's own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl, required_field
from st_xlret.data.retrieval.examples import Example, make_example, texts_in

MR_TYDI_LANGUAGES = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ja": "japanese",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
    "th": "thai",
}
"""Code -> the name that the folders of Mr.TyDi have."""

_FOLDER = re.compile(r"(?:mrtydi|miracl)-v[0-9.]+-([a-z]+)")


def read_mr_tydi(
    path: str | os.PathLike[str],
    *,
    titles: bool = True,
    language: str | None = None,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Stream the training questions of Mr.TyDi, or of another data set in the same layout, such as MIRACL.

    A record is `{"query", "positive_passages", "negative_passages"}`, where a passage is `{"docid", "title", "text"}`.
    A question with several passages gives an example for each of them.

    Args:
        path: The file, such as `mrtydi-v1.1-swahili/train.jsonl.gz`.
        titles: Put the titles before the texts.
        language: Language of the records that name none by a field `language` or `lang`. By default the folder's name
            tells it.
        on_bad_line: Called with an error that names file and line. If it returns, the line is left out. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        Examples; that of a question without a passage has an empty one.

    Raises:
        DataError: For a bad line, or if the language is not known.
    """
    handle_error = on_bad_line or BadLines()
    common = language or language_of_folder(path)
    for number, record in read_jsonl(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read):
        try:
            code = language_of_record(record, common)
            if code is None:
                raise ValueError(f"the language is not known: name it, as {os.path.basename(path)}=sw")
            query = required_field(record, "query", str)
            positives = _passages(record, "positive_passages", titles) or [(None, "")]
            negatives = _passages(record, "negative_passages", titles)
            made = [make_example(query, *passage, negatives, question_language=code) for passage in positives]
        except ValueError as error:
            handle_error(DataError(str(error), file=os.fspath(path), line=number))
            continue
        yield from made


def read_rows(
    path: str | os.PathLike[str],
    *,
    language: str | None = None,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    r"""Stream `{"query", "positive", "negatives", "language"}`, of which the last two may be missing.

    `negatives` is a list of texts; `negative`, one text, will do.

    Args:
        path: A `.jsonl` file, plain or compressed.
        language: Language of the records that name none.
        on_bad_line: Called with an error that names file and line. If it returns, the line is left out. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        One example for each record.

    Raises:
        DataError: For a bad line.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "questions.jsonl")
        >>> _ = file.write_text('{"query": "nani?", "positive": "mimi", "language": "sw"}\n', encoding="utf-8")
        >>> next(read_rows(file)).language
        'sw'
    """
    handle_error = on_bad_line or BadLines()
    for number, record in read_jsonl(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read):
        try:
            texts = [record["negative"]] if "negative" in record else record.get("negatives") or []
            negatives = [(None, text) for text in texts_in(texts, "negatives")]
            query, positive = (required_field(record, name, str) for name in ("query", "positive"))
            code = language_of_record(record, language)
            example = make_example(query, None, positive, negatives, question_language=code)
        except ValueError as error:
            handle_error(DataError(str(error), file=os.fspath(path), line=number))
            continue
        yield example


def language_of_record(record: Mapping[str, Any], default: str | None) -> str | None:
    """The language that a record names by its field `language` or `lang`; the default if it names none.

    Raises:
        ValueError: If it is no language code.
    """
    code = record.get("language") or record.get("lang")
    return default if code is None else check_language(code)


def language_of_folder(path: str | os.PathLike[str]) -> str | None:
    """The language that a folder of Mr.TyDi or MIRACL is named after, or None.

    Example:
        >>> language_of_folder("data/mrtydi-v1.1-swahili/train.jsonl.gz"), language_of_folder("swahili/train.jsonl")
        ('sw', None)
    """
    codes = {name: code for code, name in MR_TYDI_LANGUAGES.items()}
    for part in reversed(Path(path).absolute().parts):
        if found := _FOLDER.fullmatch(part):
            return codes.get(found[1], found[1])
    return None


def _passages(record: Mapping[str, Any], name: str, titles: bool) -> list[tuple[Any, str]]:
    passages = record.get(name) or []
    if not isinstance(passages, list) or not all(isinstance(passage, Mapping) for passage in passages):
        raise ValueError(f"field {name!r} must be a list of objects with 'title' and 'text'")
    return [(passage.get("title") if titles else None, required_field(passage, "text", str)) for passage in passages]
