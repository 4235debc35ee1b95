"""Mentions of entities with the descriptions of the entities: Mewsli-X, and the text that XTREME-R makes of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl
from st_xlret.data.reading.text import clean_text
from st_xlret.data.retrieval.examples import Example

_BRACED = re.compile(r"\{(.*?)\}")


def read_mewsli_x_pairs(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    """Stream the English mentions that Mewsli-X is fine-tuned on: `wikipedia_pairs-train.jsonl`.

    A record is `{"contextual_mention": {"context", "mention"}, "entity"}`. The query is the mention in its sentence,
    and the passage is the description of the entity, as in the evaluation.

    Args:
        path: A `.jsonl` file, plain or compressed.
        on_bad_line: Called with an error that names file and line. If it returns, the line is left out. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        Examples without negatives.

    Raises:
        DataError: For a bad line.
    """
    handle_error = on_bad_line or BadLines()
    for number, record in read_jsonl(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read):
        try:
            context = record["contextual_mention"]["context"]
            span = record["contextual_mention"]["mention"]["mention_span"]
            text = context["text"]
            query = mention_in_context(text, span["start"], span["end"], spans_of_sentences(context, text))
            passage = clean_text(entity_text(record["entity"]))
            language = check_language(context["language"])
        except (KeyError, TypeError, ValueError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            handle_error(DataError(f"no mention with its entity: {reason}", file=os.fspath(path), line=number))
            continue
        yield Example(clean_text(query), passage, language=language)


def mention_in_context(text: str, start: int, end: int, sentence_spans: Sequence[tuple[int, int]]) -> str:
    """The text of a query: a mention, and its sentence in which the mention is marked, as in XTREME-R's baseline.

    The mention comes first, so that truncation cannot remove it. Braces in the text become parentheses.

    Args:
        text: The article.
        start: First character of the mention.
        end: One past its last character.
        sentence_spans: (start, end) of the sentences. Those that overlap the mention are kept, or the whole text if
            none does.

    Raises:
        ValueError: If the mention is not within the text.

    Example:
        >>> mention_in_context("Rain. Ann {A} won. Sun.", 6, 9, [(0, 5), (6, 18), (19, 23)])
        'Ann: { Ann } (A) won.'
    """
    if not 0 <= start < end <= len(text):
        raise ValueError(f"the mention {start}..{end} is not within the text of {len(text)} characters.")
    touched = [(left, right) for left, right in sentence_spans if left < end and start < right]
    first, last = (touched[0][0], touched[-1][1]) if touched else (0, len(text))
    first, last = min(first, start), max(last, end)
    mention = text[start:end]
    before, after = (_BRACED.sub(r"(\1)", part) for part in (text[first:start], text[end:last]))
    return _one_line(f"{mention}: {before} {{ {mention} }} {after}")


def spans_of_sentences(record: Mapping[str, Any], text: str) -> list[tuple[int, int]]:
    """The `sentence_spans` of a record, as (start, end) in characters.

    Raises:
        ValueError: If one is not within the text.

    Example:
        >>> spans_of_sentences({"sentence_spans": [{"start": 0, "end": 5}]}, "Rain.")
        [(0, 5)]
    """
    spans = [(int(span["start"]), int(span["end"])) for span in record["sentence_spans"]]
    outside = [span for span in spans if not 0 <= span[0] < span[1] <= len(text)]
    if outside:
        raise ValueError(f"the sentence span {outside[0]} is not within the text of {len(text)} characters")
    return spans


def entity_text(entity: Mapping[str, Any]) -> str:
    """The text of a candidate: the sentences of its description, or the whole description if it has none.

    Example:
        >>> entity_text({"description": "A town. [1]", "sentence_spans": [{"start": 0, "end": 7}]})
        'A town.'
    """
    description = entity["description"]
    sentences = [description[start:end] for start, end in spans_of_sentences(entity, description)]
    return _one_line(" ".join(sentences)) or _one_line(description)


def _one_line(text: str) -> str:
    return " ".join(text.split())
