"""Retrieval data in BEIR's layout: a corpus, queries, and judgements of which document answers which query."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tqdm.auto import tqdm

from st_xlret.data.lines import BadLines, PathLike, read_jsonl, read_lines
from st_xlret.data.question_formats import Example, Reading, make_example, texts_in
from st_xlret.languages import check_language

Qrels: TypeAlias = dict[str, dict[str, int]]
"""Query id -> document id -> judgement; a document is relevant where its judgement is above 0."""


class BEIRFiles(NamedTuple):
    """The files of a corpus, queries and judgements of one split."""

    corpus: Path
    queries: Path
    qrels: Path


class BEIRText(NamedTuple):
    """A document of the corpus or a query.

    The language, and the id of the document that this one is a translation of, are those of `metadata` or of fields
    `language` and `translation_of`, if they are named.
    """

    id: str
    text: str
    title: str
    language: str | None
    translation_of: str | None
    metadata: Mapping[str, Any]
    line: int


def is_beir(path: PathLike) -> bool:
    """Whether a path is a folder in BEIR's layout."""
    return _one_of(Path(path), "corpus.jsonl") is not None


def find_beir(folder: PathLike, split: str) -> BEIRFiles:
    """Find `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`, each of which may be gzipped.

    Raises:
        FileNotFoundError: If one is missing. The message says what is there: for judgements, the other splits.
    """
    root = Path(folder).expanduser()
    corpus, queries, qrels = (_one_of(root, name) for name in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"))
    if corpus is None or queries is None:
        missing = "corpus.jsonl" if corpus is None else "queries.jsonl"
        there = f"the folder contains {sorted(os.listdir(root))[:12]}" if root.is_dir() else "there is no such folder"
        raise FileNotFoundError(
            f"expected {root / missing} (or {missing}.gz) of BEIR's layout: corpus.jsonl, queries.jsonl and "
            f"qrels/*.tsv; {there}"
        )
    if qrels is None:
        splits = sorted({path.name.partition(".")[0] for path in root.glob("qrels/*.tsv*")})
        raise FileNotFoundError(
            f"expected {root / 'qrels' / split}.tsv (or .tsv.gz) of BEIR's layout; the folder has judgements of the "
            f"splits {splits}"
        )
    return BEIRFiles(corpus, queries, qrels)


def read_texts(
    path: PathLike,
    bad_lines: BadLines | None = None,
    *,
    only: Collection[str] | None = None,
) -> Iterator[BEIRText]:
    """Stream a corpus or queries: records `{"_id", "title", "text", "metadata"}`, one per line, plain or gzipped.

    `only` are the ids to keep; the other arguments are those of [`read_lines`][st_xlret.data.read_lines].

    Raises:
        DataError: If a line lacks its id or its text, unless `bad_lines` skips it. Equal ids are not noticed.
    """
    bad_lines = bad_lines or BadLines()
    for number, record in read_jsonl(path, bad_lines):
        identifier = record.get("_id", record.get("id"))
        if only is not None and str(identifier) not in only:
            continue
        text, title = record.get("text"), record.get("title") or ""
        if not isinstance(identifier, str | int) or not isinstance(text, str) or not isinstance(title, str):
            bad_lines("a record needs '_id', 'text' (a string) and, if it has one, a string for 'title'", path, number)
            continue
        metadata = record.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        language = metadata.get("language") or record.get("language")
        language = language if isinstance(language, str) else None
        named = (about.get("translation_of") for about in (metadata, record))
        original = next((name for name in named if name is not None), None)
        if not isinstance(original, str | int | None):
            bad_lines("'translation_of' must be the id of a document", path, number)
            continue
        original = None if original is None else str(original)
        yield BEIRText(str(identifier), text, title, language, original, metadata, number)


def read_qrels(path: PathLike, bad_lines: BadLines | None = None) -> Qrels:
    """Read relevance judgements, plain or gzipped.

    Lines are BEIR's `query-id <tab> corpus-id <tab> score`, after a header, or TREC's `query 0 document judgement`.

    Raises:
        DataError: For another line or one that contradicts an earlier one, unless `bad_lines` skips it.
    """
    bad_lines, qrels = bad_lines or BadLines(), Qrels()
    for number, line in read_lines(path, bad_lines):
        fields = _judgement_fields(line)
        if number == 1 and fields[-1] in ("score", "relevance"):
            continue
        try:
            if len(fields) not in (3, 4):
                raise ValueError(
                    f"expected 'query document judgement' or TREC's 'query 0 document judgement', found {line[:80]!r}"
                )
            if not re.fullmatch(r"-?\d{1,9}", fields[-1]):
                raise ValueError(f"the judgement {fields[-1][:40]!r} is no whole number")
            query, document, value = fields[0], fields[-2], int(fields[-1])
            known = qrels.setdefault(query, {}).setdefault(document, value)
            if known != value:
                raise ValueError(f"query {query!r} and document {document!r} are judged {value}, and {known} above")
        except ValueError as error:
            bad_lines(str(error), path, number)
    return qrels


def beir_examples(
    folder: PathLike,
    split: str,
    reading: Reading,
    bad_lines: BadLines,
    *,
    show_progress_bar: bool,
) -> Iterator[Example]:
    """Stream the judged questions of a split, as training examples in the order of the judgements.

    A question gives an example for each relevant passage; passages judged 0 are its hard negatives. Only the judged
    passages and questions are held in memory.
    """
    files = find_beir(folder, split)
    qrels = read_qrels(files.qrels, bad_lines)

    def by_id(path: Path, ids: Collection[str]) -> dict[str, BEIRText]:
        texts = read_texts(path, bad_lines, only=ids)
        shown = tqdm(texts, desc=f"Reading {path.name}", total=len(ids), unit=" texts", disable=not show_progress_bar)
        return {text.id: text for text in shown}

    passages = by_id(files.corpus, {passage for judgements in qrels.values() for passage in judgements})
    queries = by_id(files.queries, qrels.keys())

    def report(reason: str, query: str, passage: str) -> None:
        bad_lines(reason, files.qrels, line_of_judgement(files.qrels, query, passage))

    for query, judgements in qrels.items():
        if query not in queries:
            report(f"query {query!r} is not in {files.queries.name}", query, next(iter(judgements)))
            continue
        for unknown in (name for name in judgements if name not in passages):
            report(f"passage {unknown!r} is not in {files.corpus.name}", query, unknown)
        known = {name: score for name, score in judgements.items() if name in passages}
        texts = {name: (passages[name].title if reading.titles else None, passages[name].text) for name in known}
        negatives = [texts[name] for name, score in known.items() if score <= 0]
        for name in (name for name, score in known.items() if score > 0):
            try:
                code, about = queries[query].language, queries[query].metadata
                answers = about.get("answers") or about.get("answer") or []
                answers = [answers] if isinstance(answers, str) else answers
                yield make_example(
                    queries[query].text,
                    *texts[name],
                    negatives,
                    reading._replace(language=passages[name].language or reading.language),
                    answers=texts_in(answers, "answers") if reading.sentences else None,
                    question_language=check_language(code) if code else None,
                )
            except ValueError as error:
                report(f"{query!r} and {name!r}: {error}", query, name)


def _judgement_fields(line: str) -> list[str]:
    return [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]


def line_of_judgement(path: PathLike, query: str, document: str) -> int:
    """The line of a table or of JSON lines that names a query and a document, for messages; 0 if there is none."""
    for number, line in read_lines(path, BadLines(skip=True)):
        fields = _judgement_fields(line)
        if all(name in fields or f'"{name}"' in line for name in (query, document)):
            return number
    return 0


def _one_of(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
