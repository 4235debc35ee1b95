"""Readers of retrieval data in BEIR's layout, and of relevance judgements in BEIR's and TREC's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from st_xlret.data.reading.jsonl import DataError, read_jsonl, read_lines
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection


def find_file(folder: str | os.PathLike[str], name: str, *, instead: str = "") -> Path:
    """The file ``name`` or ``name.gz`` in a folder.

    Raises:
        FileNotFoundError: If there is neither; says what was expected where.
    """
    for candidate in (Path(folder) / name, Path(folder) / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    there = sorted(entry.name for entry in Path(folder).iterdir())[:12] if Path(folder).is_dir() else None
    found = f"the folder holds {there}" if there is not None else "there is no such folder"
    raise FileNotFoundError(f"expected {Path(folder) / name} (or {name}.gz){instead}; {found}.")


def read_qrels(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    r"""Relevance judgements: query id to document id to judgement.

    Reads BEIR's ``query-id <tab> corpus-id <tab> score`` with a header line, and TREC's
    ``query-id 0 document-id judgement``; plain or gzip.

    Raises:
        DataError: If a line is neither, or judges a pair that an earlier line judged otherwise.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "qrels.tsv")
        >>> _ = file.write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n", encoding="utf-8")
        >>> read_qrels(file)
        {'q1': {'d1': 1}}
    """
    name = os.fspath(path)
    qrels: dict[str, dict[str, int]] = {}
    for number, line in read_lines(path):
        fields = line.split("\t") if "\t" in line else line.split()
        if number == 1 and fields[-1].strip() in ("score", "relevance"):
            continue
        if len(fields) not in (3, 4):
            raise DataError(
                f"expected 'query document judgement' or TREC's 'query 0 document judgement', got {line[:80]!r}",
                file=name,
                line=number,
            )
        query, document, judgement = fields[0].strip(), fields[-2].strip(), fields[-1].strip()
        try:
            value = int(judgement)
        except ValueError as error:
            raise DataError(f"the judgement {judgement!r} is no whole number", file=name, line=number) from error
        known = qrels.setdefault(query, {}).setdefault(document, value)
        if known != value:
            raise DataError(
                f"query {query!r} and document {document!r} are judged {value}, and {known} above",
                file=name,
                line=number,
            )
    return qrels


def read_texts(path: str | os.PathLike[str], language: str | None = None) -> TextCollection:
    """A corpus or queries in BEIR's JSONL: ``{"_id", "title", "text", "metadata": {"language"}}``.

    The language may also stand in a field ``language``; titles are read where a line has one.

    Args:
        path: The file, plain or gzip.
        language: Of texts that do not say theirs.

    Raises:
        DataError: If a line lacks its id, its text or a language, or its id stood before.
    """
    name = os.fspath(path)
    line_of: dict[str, int] = {}
    texts, titles, languages = [], [], []
    for number, record in read_jsonl(path):
        identifier = record.get("_id", record.get("id"))
        text, title = record.get("text"), record.get("title") or ""
        metadata = record.get("metadata") or {}
        of_record = metadata.get("language") or record.get("language") or language
        if not isinstance(identifier, str | int) or not isinstance(text, str) or not isinstance(title, str):
            raise DataError("needs '_id' and 'text' (a string), and a string for 'title'", file=name, line=number)
        if not isinstance(of_record, str):
            raise DataError("has no language: give metadata.language or pass one for all", file=name, line=number)
        if str(identifier) in line_of:
            before = line_of[str(identifier)]
            raise DataError(f"id {identifier!r} stood in line {before} before", file=name, line=number)
        line_of[str(identifier)] = number
        texts.append(text)
        titles.append(title)
        languages.append(of_record)
    return TextCollection(list(line_of), texts, languages, titles if any(titles) else None, source=name)


def read_beir(
    folder: str | os.PathLike[str],
    *,
    split: str = "test",
    language: str | None = None,
    languages: Sequence[str] | None = None,
) -> RetrievalData:
    """Reads ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/{split}.tsv``, each plain or gzip.

    Args:
        folder: Where they are.
        split: Which judgements; queries that they do not name are left out.
        language: Of texts that do not say theirs.
        languages: Only queries in these; the corpus stays whole.

    Raises:
        FileNotFoundError: If a file is missing; says which.
        ValueError: As `read_texts`, `read_qrels` and `RetrievalData`, with file and line.
    """
    layout = " of BEIR's layout: corpus.jsonl, queries.jsonl and qrels/*.tsv"
    files = [find_file(folder, name, instead=layout) for name in ("corpus.jsonl", "queries.jsonl")]
    qrels_file = find_file(Path(folder) / "qrels", f"{split}.tsv", instead=layout)
    corpus, queries = (read_texts(file, language) for file in files)
    data = RetrievalData(corpus, queries, read_qrels(qrels_file), str(qrels_file))
    return data if languages is None else data.of_languages(languages)
