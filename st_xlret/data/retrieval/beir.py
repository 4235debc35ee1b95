"""Reading retrieval data in BEIR's layout: a corpus, queries, and judgements of which document answers which query."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl, read_lines
from st_xlret.data.retrieval.examples import Example, make_example, texts_in

Qrels = dict[str, dict[str, int]]
"""Query id -> document id -> judgement; a document is relevant where its judgement is above 0."""


class BEIRFiles(NamedTuple):
    """The three files of one split."""

    corpus: Path
    queries: Path
    qrels: Path


class BEIRText(NamedTuple):
    """A document of the corpus or a query.

    Attributes:
        id: Its id.
        text: Its text.
        title: Its title; empty if it has none.
        language: Its language, from `metadata.language` or a field `language`; None if there is neither.
        metadata: The record's `metadata`.
        line: Its line in the file.
    """

    id: str
    text: str
    title: str
    language: str | None
    metadata: Mapping[str, Any]
    line: int


def is_beir(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder in BEIR's layout."""
    return _one_of(Path(path), "corpus.jsonl") is not None


def find_beir(folder: str | os.PathLike[str], split: str) -> BEIRFiles:
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
    path: str | os.PathLike[str],
    *,
    only: Collection[str] | None = None,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[BEIRText]:
    r"""Stream a corpus or queries: records `{"_id", "title", "text", "metadata"}`, one per line, plain or gzipped.

    Args:
        path: The file.
        only: Ids to keep. By default all.
        on_bad_line: Called with a `DataError` for a bad line. If it returns, the line is left out. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Raises:
        DataError: If a line lacks its id or its text, unless `on_bad_line` returns. Equal ids are not noticed.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "queries.jsonl")
        >>> _ = file.write_text('{"_id": "q1", "text": "who?", "metadata": {"language": "en"}}\n', encoding="utf-8")
        >>> next(read_texts(file))[:4]
        ('q1', 'who?', '', 'en')
    """
    handle_error = on_bad_line or BadLines()
    for number, record in read_jsonl(path, on_bad_line=handle_error, on_bytes_read=on_bytes_read):
        identifier = record.get("_id", record.get("id"))
        if only is not None and str(identifier) not in only:
            continue
        text, title = record.get("text"), record.get("title") or ""
        if not isinstance(identifier, str | int) or not isinstance(text, str) or not isinstance(title, str):
            reason = "a record needs '_id', 'text' (a string) and, if it has one, a string for 'title'"
            handle_error(DataError(reason, file=os.fspath(path), line=number))
            continue
        metadata = record.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        language = metadata.get("language") or record.get("language")
        yield BEIRText(str(identifier), text, title, language if isinstance(language, str) else None, metadata, number)


def read_qrels(path: str | os.PathLike[str], *, on_bad_line: Callable[[DataError], None] | None = None) -> Qrels:
    r"""Read relevance judgements, plain or gzipped.

    They are in BEIR's format, `query-id <tab> corpus-id <tab> score` with a header line, or in TREC's,
    `query-id 0 document-id judgement`.

    Args:
        path: The file.
        on_bad_line: Called with a `DataError` for a bad line. If it returns, the line is left out. By default the
            error is raised.

    Raises:
        DataError: If a line is in neither format, or contradicts an earlier one, unless `on_bad_line` returns.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "qrels.tsv")
        >>> _ = file.write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
        >>> read_qrels(file)
        {'q1': {'d1': 1}}
    """
    handle_error = on_bad_line or BadLines()
    qrels: Qrels = {}
    for number, line in read_lines(path, on_bad_line=handle_error):
        fields = _judgement_fields(line)
        if number == 1 and fields[-1] in ("score", "relevance"):
            continue
        try:
            if len(fields) not in (3, 4):
                raise ValueError(
                    f"expected 'query document judgement' or TREC's 'query 0 document judgement', found {line[:80]!r}"
                )
            query, document, value = fields[0], fields[-2], _whole_number(fields[-1])
            known = qrels.setdefault(query, {}).setdefault(document, value)
            if known != value:
                raise ValueError(f"query {query!r} and document {document!r} are judged {value}, and {known} above")
        except ValueError as error:
            handle_error(DataError(str(error), file=os.fspath(path), line=number))
    return qrels


def line_of_judgement(path: str | os.PathLike[str], query: str, document: str) -> int:
    """The line of a file of judgements that judges a query and a document, for messages; 0 if there is none."""
    for number, line in read_lines(path):
        fields = _judgement_fields(line)
        if len(fields) > 2 and (fields[0], fields[-2]) == (query, document):
            return number
    return 0


def read_beir(
    folder: str | os.PathLike[str],
    split: str = "train",
    *,
    sentences: bool = False,
    titles: bool = True,
    language: str = "en",
    bad_lines: BadLines | None = None,
    show_progress: bool = True,
) -> Iterator[Example]:
    """Stream the judged questions of a split, as training examples.

    A question gives an example for each relevant passage; passages judged 0 are its hard negatives. Only the judged
    passages and questions are held in memory.

    Args:
        folder: Folder of `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and
            `qrels/SPLIT.tsv` (query id, passage id, score).
        split: Name of the judgements.
        sentences: Take the sentence with the answer instead of the whole passage; the answers are those in the
            question's `metadata`.
        titles: Put the titles before the texts.
        language: Language of the passages that name none.
        bad_lines: What to do about a bad line.
        show_progress: Show progress bars.

    Yields:
        Examples, in the order of the judgements.

    Raises:
        FileNotFoundError: If a file is missing.
        DataError: For a bad line.
    """
    handle_error = bad_lines or BadLines()
    files = find_beir(folder, split)
    qrels = read_qrels(files.qrels, on_bad_line=handle_error)
    judged = {passage for judgements in qrels.values() for passage in judgements}
    passages = _read_by_id(files.corpus, judged, handle_error, show_progress)
    queries = _read_by_id(files.queries, qrels.keys(), handle_error, show_progress)

    def report(reason: str, query: str, passage: str) -> None:
        line = line_of_judgement(files.qrels, query, passage)
        handle_error(DataError(reason, file=str(files.qrels), line=line))

    for query, judgements in qrels.items():
        if query not in queries:
            report(f"query {query!r} is not in {files.queries.name}", query, next(iter(judgements)))
            continue
        for unknown in (name for name in judgements if name not in passages):
            report(f"passage {unknown!r} is not in {files.corpus.name}", query, unknown)
        known = {name: score for name, score in judgements.items() if name in passages}
        negatives = [_passage(passages[name], titles) for name, score in known.items() if score <= 0]
        for name in (name for name, score in known.items() if score > 0):
            try:
                answers = _answers(queries[query]) if sentences else None
                title, text = _passage(passages[name], titles)
                code = queries[query].language and check_language(str(queries[query].language))
                yield make_example(
                    queries[query].text,
                    title,
                    text,
                    negatives,
                    answers=answers,
                    language=passages[name].language or language,
                    question_language=code or None,
                )
            except ValueError as error:
                report(f"{query!r} and {name!r}: {error}", query, name)


def _read_by_id(path: Path, ids: Collection[str], bad_lines: BadLines, show_progress: bool) -> dict[str, BEIRText]:
    size = os.path.getsize(path)
    with tqdm(total=size, desc=f"Reading {path.name}", unit="B", unit_scale=True, disable=not show_progress) as bar:
        texts = read_texts(path, only=ids, on_bad_line=bad_lines, on_bytes_read=bar.update)
        return {text.id: text for text in texts}


def _judgement_fields(line: str) -> list[str]:
    return [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the judgement {text!r} is no whole number") from None


def _passage(text: BEIRText, titles: bool) -> tuple[str | None, str]:
    return text.title if titles else None, text.text


def _answers(query: BEIRText) -> list[str]:
    answers = query.metadata.get("answers") or query.metadata.get("answer") or []
    return texts_in([answers] if isinstance(answers, str) else answers, "answers")


def _one_of(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
