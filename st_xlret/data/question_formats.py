"""Questions with the passages that answer them, in the formats in which they are published; a reader for each."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from st_xlret.data.lines import (
    DAMAGED,
    BadLines,
    DataError,
    PathLike,
    open_bytes,
    read_jsonl,
    read_lines,
    required_field,
)
from st_xlret.data.text import clean_text, split_sentences
from st_xlret.languages import check_language

DPR, SQUAD, MS_MARCO = "dpr", "squad", "ms_marco"
MR_TYDI, MEWSLI_X, ROWS = "mr_tydi", "mewsli_x", "rows"
_NAMES = "arabic bengali english finnish indonesian japanese korean russian swahili telugu thai"
MR_TYDI_LANGUAGES = dict(
    zip(["ar", "bn", "en", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"], _NAMES.split(), strict=True)
)
"""Code -> the name that the folders of Mr.TyDi have."""

_FOLDER = re.compile(r"(?:mrtydi|miracl)-v[0-9.]+-([a-z]+)")
_CHARACTERS_AT_A_TIME = 1 << 18
_BRACED = re.compile(r"\{(.*?)\}")
_COLLECTIONS = ("collection.tsv", "collection.tsv.gz")
_QUERIES = ("queries.train.tsv", "queries.train.tsv.gz", "queries.tsv", "queries.tsv.gz")


class Example(NamedTuple):
    """One training example; texts are clean and may be empty. The language is that of the query, if it is known."""

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    answer_found: bool = True
    language: str | None = None


class Reading(NamedTuple):
    """How questions are read.

    Attributes:
        sentences: Take the sentence with the answer instead of the whole passage.
        context: Put the passage after each sentence, see `sentence_in_paragraph`.
        titles: Put the titles before the texts.
        language: Language of the passages.
        named: Language that the user gave to questions that name none.
        question_languages: Question (cleaned) -> its language, from another file.
    """

    sentences: bool = False
    context: bool = False
    titles: bool = True
    language: str = "en"
    named: str | None = None
    question_languages: Mapping[str, str] = {}


_WHOLE_PASSAGES = Reading()


def read_questions(path: PathLike, layout: str, reading: Reading, bad_lines: BadLines) -> Iterator[Example]:
    """Stream the examples of a file in one of the layouts of this module; a DataError for a bad line or entry."""
    read, examples_of, unit = _READERS[layout]
    if layout == MR_TYDI and reading.named is None:
        reading = reading._replace(named=language_of_folder(path))
    for number, entry in read(path, bad_lines):
        try:
            yield from examples_of(entry, reading)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            bad_lines(reason, path, number, unit=unit)


def _of_dpr(record: Mapping[str, Any], reading: Reading) -> Iterable[Example]:
    """Of DPR and XOR-TyDi: the first positive, and the hard negatives or, without any, the easy ones (as DPR does)."""
    question = required_field(record, "question", str)
    required_field(record, "positive_ctxs", list)
    positives = _passages(record, "positive_ctxs", reading.titles) or [(None, "")]
    easy_or_hard = "hard_negative_ctxs" if record.get("hard_negative_ctxs") else "negative_ctxs"
    yield make_example(
        question,
        *positives[0],
        _passages(record, easy_or_hard, reading.titles),
        reading,
        answers=texts_in(required_field(record, "answers", list), "answers") if reading.sentences else None,
        question_language=named_language(record, reading.question_languages.get(clean_text(question))),
    )


def _of_squad(article: Mapping[str, Any], reading: Reading) -> Iterator[Example]:
    """Of SQuAD 1.1 or 2.0, whose unanswerable questions give an empty passage, or a data set in their format."""
    title = str(article.get("title") or "").replace("_", " ") if reading.titles else ""
    for paragraph in required_field(article, "paragraphs", list):
        for question in required_field(paragraph, "qas", list):
            text, answers, start = required_field(question, "question", str), None, None
            is_answerable = not question.get("is_impossible", False)
            if reading.sentences:
                given = required_field(question, "answers", list)
                start = given[0].get("answer_start") if given else None
                if start is not None and (not isinstance(start, int) or start < 0):
                    raise ValueError(f"field 'answer_start' must be a number of characters, found {start!r:.40}")
                answers = [required_field(answer, "text", str) for answer in given] if is_answerable else None
            yield make_example(
                text,
                title if is_answerable else None,
                required_field(paragraph, "context", str) if is_answerable else "",
                reading=reading,
                answers=answers,
                start=start,
                question_language=named_language(question, reading.question_languages.get(clean_text(text))),
            )


def _of_mr_tydi(record: Mapping[str, Any], reading: Reading) -> Iterable[Example]:
    """Of Mr.TyDi, MIRACL or Tevatron: an example for each passage of the question."""
    code = named_language(record, reading.named)
    if code is None:
        raise ValueError("the language is not known: name it, as PATH=sw")
    query = required_field(record, "query", str)
    positives = _passages(record, "positive_passages", reading.titles) or [(None, "")]
    negatives = _passages(record, "negative_passages", reading.titles)
    return [make_example(query, *passage, negatives, question_language=code) for passage in positives]


def _of_mewsli_x(record: Mapping[str, Any], reading: Reading) -> Iterable[Example]:
    """Of `wikipedia_pairs-train.jsonl`: a mention in its sentence, and the description of the entity."""
    context = record["contextual_mention"]["context"]
    span = record["contextual_mention"]["mention"]["mention_span"]
    text = context["text"]
    query = mention_in_context(text, span["start"], span["end"], spans_of_sentences(context, text))
    passage, language = clean_text(entity_text(record["entity"])), check_language(context["language"])
    yield Example(clean_text(query), passage, language=language)


def _of_rows(record: Mapping[str, Any], reading: Reading) -> Iterable[Example]:
    """Of `{"query", "positive", "negatives", "language"}`; `negative`, one text, will do for the third."""
    texts = [record["negative"]] if "negative" in record else record.get("negatives") or []
    negatives = [(None, text) for text in texts_in(texts, "negatives")]
    query, positive = (required_field(record, name, str) for name in ("query", "positive"))
    code = named_language(record, reading.named)
    yield make_example(query, None, positive, negatives, question_language=code)


def make_example(
    query: Any,
    title: Any,
    text: Any,
    negatives: Sequence[tuple[Any, Any]] = (),
    reading: Reading = _WHOLE_PASSAGES,
    *,
    answers: Sequence[str] | None = None,
    start: int | None = None,
    question_language: str | None = None,
) -> Example:
    """Make an example of a question, its passage, and (title, text) of passages that do not answer it.

    With `answers`, the sentence with one of them is taken instead of the passage; the sentences without any become
    negatives. `start` is the character position of the first answer in the passage, if it is known.
    """
    found, others = True, [_passage_text(*negative) for negative in negatives]
    if answers is not None:
        text = clean_text(text) if start is None else text
        sentences, wanted = split_sentences(text, reading.language), [" ".join(answer.split()) for answer in answers]
        sentence = _answer_sentence(sentences, text, wanted, start)
        found = sentence is not None
        if sentence is not None:
            without = [one for one in sentences if not any(answer and answer in one for answer in wanted)]
            sentence, *without = (
                sentence_in_paragraph(one, text) if reading.context else one for one in (sentence, *without)
            )
            others += [_passage_text(title, other) for other in without]
            text = sentence
    return Example(clean_text(query), _passage_text(title, text), tuple(others), found, question_language)


def _passage_text(title: Any, text: Any) -> str:
    return clean_text(f"{title} {text}" if title else text)


def _answer_sentence(sentences: Sequence[str], text: str, answers: Sequence[str], start: int | None) -> str | None:
    if start is not None and answers:
        # Splitting changes white space: characters are counted without it.
        position = len("".join(text[:start].split()))
        for sentence in sentences:
            length = len("".join(sentence.split()))
            if position < length:
                return sentence if answers[0] in sentence else None
            position -= length
    return next((sentence for answer in answers for sentence in sentences if answer and answer in sentence), None)


def texts_in(value: Any, name: str) -> list[str]:
    """A field that must be a list of strings."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"field {name!r} must be a list of strings, found {str(value)[:40]!r}")
    return value


def _passages(record: Mapping[str, Any], name: str, titles: bool) -> list[tuple[Any, str]]:
    passages = record.get(name) or []
    if not isinstance(passages, list) or not all(isinstance(passage, Mapping) for passage in passages):
        raise ValueError(f"field {name!r} must be a list of objects with 'title' and 'text'")
    return [(passage.get("title") if titles else None, required_field(passage, "text", str)) for passage in passages]


def named_language(record: Mapping[str, Any], default: str | None) -> str | None:
    """The language that a record names by its field `language` or `lang`; the default if it names none."""
    code = record.get("language") or record.get("lang")
    return default if code is None else check_language(code)


def language_of_folder(path: PathLike) -> str | None:
    """The language that a folder of Mr.TyDi or MIRACL is named after, such as `mrtydi-v1.1-swahili`, or None."""
    codes = {name: code for code, name in MR_TYDI_LANGUAGES.items()}
    for part in reversed(Path(path).absolute().parts):
        if found := _FOLDER.fullmatch(part):
            return codes.get(found[1], found[1])
    return None


def mention_in_context(text: str, start: int, end: int, sentence_spans: Sequence[tuple[int, int]]) -> str:
    """The text of a query of Mewsli-X: a mention, then its sentence with the mention marked, as XTREME-R's baseline.

    Braces in the text become parentheses. The whole text is taken where no sentence overlaps the mention.

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
    return " ".join(f"{mention}: {before} {{ {mention} }} {after}".split())


def spans_of_sentences(record: Mapping[str, Any], text: str) -> list[tuple[int, int]]:
    """The `sentence_spans` of a record of Mewsli-X, as (start, end) in characters."""
    spans = [(int(span["start"]), int(span["end"])) for span in record["sentence_spans"]]
    outside = [span for span in spans if not 0 <= span[0] < span[1] <= len(text)]
    if outside:
        raise ValueError(f"the sentence span {outside[0]} is not within the text of {len(text)} characters")
    return spans


def entity_text(entity: Mapping[str, Any]) -> str:
    """The text of a candidate: the sentences of its description, or the whole description if it has none."""
    description = entity["description"]
    sentences = [description[start:end] for start, end in spans_of_sentences(entity, description)]
    return " ".join(" ".join(sentences).split()) or " ".join(description.split())


def sentence_in_paragraph(sentence: str, paragraph: str) -> str:
    """The text of a candidate of LAReQA that is read in its context: the sentence, then its paragraph.

    This is the order of XTREME-R's baseline, whose code puts nothing between the two; here a space keeps words apart.

    Example:
        >>> sentence_in_paragraph("It rained.", "We left. It rained.")
        'It rained. We left. It rained.'
    """
    return f"{sentence} {paragraph}"


def _read_triplets(path: PathLike, bad_lines: BadLines) -> Iterator[tuple[int, list[str]]]:
    """MS MARCO's `query<TAB>positive<TAB>negative`; the texts of ids are taken from the files beside it."""
    first = next(_cells(path, 3, BadLines(skip=True)), None)
    if first is None or not all(cell.strip().isdecimal() for cell in first[1]):
        yield from _cells(path, 3, bad_lines)
        return
    needed: tuple[set[str], set[str]] = (set(), set())
    for _, cells in _cells(path, 3, BadLines(skip=True)):
        needed[0].add(cells[0])
        needed[1].update(cells[1:])
    texts: list[dict[str, str]] = []
    for names, ids in zip((_QUERIES, _COLLECTIONS), needed, strict=True):
        file = next((f for name in names if (f := Path(path).parent / name).is_file()), None)
        if file is None:
            raise DataError(f"{os.fspath(path)!r} contains ids: put {names[0]} with their texts into its folder")
        texts.append({cells[0]: cells[1] for _, cells in _cells(file, 2, BadLines()) if cells[0] in ids})
    for number, cells in _cells(path, 3, bad_lines):
        known = [texts[place > 0].get(cell) for place, cell in enumerate(cells)]
        if None in known:
            kind, name = "passage" if known.index(None) else "query", cells[known.index(None)]
            bad_lines(f"there is no {kind} with the id {name!r} beside the triplets", path, number)
        else:
            yield number, [text or "" for text in known]


def _cells(path: PathLike, columns: int, bad_lines: BadLines) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path, bad_lines):
        cells = line.split("\t")
        if len(cells) == columns:
            yield number, cells
        else:
            bad_lines(f"expected {columns} columns with tabs between them, found {len(cells)}", path, number)


def _read_list(path: PathLike, bad_lines: BadLines) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number from 1, object) of a file that is one JSON list, or an object with a list `data`, however large."""
    number = 0
    with open_bytes(path) as stream:
        try:
            for number, entry in enumerate(stream_list(stream, bad_lines.limits.line_bytes), start=1):
                if isinstance(entry, dict):
                    yield number, entry
                else:
                    bad_lines(f"expected a JSON object, found {type(entry).__name__}", path, number, unit="entry")
        except (ValueError, RecursionError, *DAMAGED) as error:
            if isinstance(error, DataError):
                raise
            reason = f"the file is truncated or not in its format from here on ({error})"
            bad_lines(reason, path, number + 1, unit="entry")


def stream_list(stream: IO[bytes], limit: int) -> Iterator[Any]:
    """Stream the entries of a JSON list, or read those of the list `data` of an object; a ValueError for other text."""
    read, decode = io.TextIOWrapper(stream, "utf-8-sig").read, json.JSONDecoder().raw_decode
    text, position = read(_CHARACTERS_AT_A_TIME).lstrip(), 1
    if text[:1] == "{":
        if len(text := text + read(limit)) > limit:
            raise ValueError(f"an object is read at once, and this one is longer than {limit:,} characters")
        if not isinstance(entries := json.loads(text).get("data"), list):
            raise ValueError("the object has no list 'data'")
        yield from entries
        return
    if text[:1] != "[":
        raise ValueError(f"expected a JSON list or object, found {text[:40]!r}")
    is_first, is_due = True, True  # whether an entry is due: at the start, and after a comma
    while True:
        while (mark := text[position : position + 1]) and (mark.isspace() or (mark == "," and not is_due)):
            is_due, position = is_due or mark == ",", position + 1
        if mark == "]" and (is_first or not is_due):
            if rest := (text[position + 1 :] + read(_CHARACTERS_AT_A_TIME)).strip():
                raise ValueError(f"expected the end after the list, found {rest[:40]!r}")
            return
        if mark and not is_due:
            raise ValueError(f"expected , or ] after an entry, found {text[position : position + 40]!r}")
        try:
            entry, position = decode(text, position)
        except json.JSONDecodeError as error:
            # As much again as there is, so that a long entry is not tried often.
            more = read(max(_CHARACTERS_AT_A_TIME, len(text) - position))
            if not more or len(text) - position > limit:
                before = text[max(0, error.pos - 30) : error.pos]
                reason = f"no entry of at most {limit:,} characters: {error.msg} after {before!r}"
                raise ValueError(reason) from None
            text, position = text[position:] + more, 0
        else:
            is_first, is_due = False, False
            yield entry


_Read = Callable[[PathLike, BadLines], Iterator[tuple[int, Any]]]
_READERS: dict[str, tuple[_Read, Callable[[Any, Reading], Iterable[Example]], str]] = {
    DPR: (_read_list, _of_dpr, "entry"),
    SQUAD: (_read_list, _of_squad, "entry"),
    MS_MARCO: (
        _read_triplets,
        lambda cells, _: [make_example(cells[0], None, cells[1], [(None, cells[2])])],
        "line",
    ),
    MR_TYDI: (read_jsonl, _of_mr_tydi, "line"),
    MEWSLI_X: (read_jsonl, _of_mewsli_x, "line"),
    ROWS: (read_jsonl, _of_rows, "line"),
}
