"""Reading DPR's training files, such as ``biencoder-nq-train.json``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from st_xlret.data.reading.json_lists import EntryError, read_json_list
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.records import required_field
from st_xlret.data.retrieval.examples import Example, make_example


def read_dpr(
    path: str | os.PathLike[str],
    *,
    sentences: bool = False,
    titles: bool = True,
    language: str = "en",
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Stream a list of ``{"question", "answers", "positive_ctxs", "hard_negative_ctxs", "negative_ctxs"}``.

    As DPR does, the first positive context is taken, and negatives are the hard ones, in their order, or the
    easy ones where there is no hard one. A context is ``{"title", "text"}``.

    Args:
        path: A ``.json`` or ``.json.gz`` file.
        sentences: Take the sentence with the answer instead of the whole passage.
        titles: Put the titles before the texts.
        language: Language of the passages.
        on_bad_line: As in :func:`~st_xlret.data.reading.json_lists.read_json_list`.
        on_bytes_read: As there.

    Yields:
        Examples; that of a question without a positive context has an empty passage.
    """
    handle_error = on_bad_line or BadLines()
    for number, record in read_json_list(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read):
        try:
            question = required_field(record, "question", str)
            positives = _contexts(required_field(record, "positive_ctxs", list), titles)
            negatives = _contexts(record.get("hard_negative_ctxs") or record.get("negative_ctxs") or [], titles)
            title, text = positives[0] if positives else (None, "")
            answers = required_field(record, "answers", list) if sentences else None
            example = make_example(question, title, text, negatives, answers=answers, language=language)
        except ValueError as error:
            handle_error(EntryError(str(error), file=os.fspath(path), line=number))
            continue
        yield example


def _contexts(contexts: Sequence[Any], titles: bool) -> list[tuple[Any, str]]:
    for context in contexts:
        if not isinstance(context, Mapping):
            raise ValueError(f"a context must be an object with 'title' and 'text', found {type(context).__name__}")
    return [(context.get("title") if titles else None, required_field(context, "text", str)) for context in contexts]
