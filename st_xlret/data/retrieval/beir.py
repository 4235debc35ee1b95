"""Reading training data in BEIR's layout."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl, read_lines
from st_xlret.data.reading.records import required_field
from st_xlret.data.retrieval.examples import Example, make_example


class BEIRFiles(NamedTuple):
    """The three files of one split."""

    corpus: Path
    queries: Path
    qrels: Path


def is_beir(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder in BEIR's layout."""
    return _one_of(Path(path), "corpus.jsonl") is not None


def find_beir(folder: str | os.PathLike[str], split: str = "train") -> BEIRFiles:
    """The files ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``, each of which may be gzipped.

    Raises:
        DataError: If one is missing; for the split, those that there are are named.
    """
    root = Path(folder)
    found = [_one_of(root, name) for name in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv")]
    if found[2] is None:
        there = sorted(path.name.partition(".")[0] for path in root.glob("qrels/*.tsv*"))
        raise DataError(f"{str(root)!r} has no qrels/{split}.tsv; its splits are {there}: is it meant for training?")
    if found[0] is None or found[1] is None:
        raise DataError(f"{str(root)!r} must hold corpus.jsonl and queries.jsonl, gzipped or not")
    return BEIRFiles(found[0], found[1], found[2])


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
    """Stream the judged questions of a split.

    A question gives an example for each relevant passage; passages judged 0 are its hard negatives. Only the
    judged passages and questions are held in memory.

    Args:
        folder: Folder of ``corpus.jsonl`` (``_id``, ``title``, ``text``), ``queries.jsonl`` (``_id``,
            ``text``) and ``qrels/SPLIT.tsv`` (query id, passage id, score).
        split: Name of the qrels.
        sentences: Take the sentence with the answer instead of the whole passage; the answers are those in
            the question's ``metadata``.
        titles: Put the titles before the texts.
        language: Language of the passages.
        bad_lines: What to do about a bad line.
        show_progress: Show progress bars.

    Yields:
        Examples, in the order of the qrels.

    Raises:
        DataError: For a missing file or a bad line.
    """
    handle_error = bad_lines or BadLines()
    files = find_beir(folder, split)
    judged = _read_qrels(files.qrels, handle_error)
    passages = _read_needed(
        files.corpus, {p for _, found in judged.values() for p in found}, handle_error, show_progress
    )
    queries = _read_needed(files.queries, judged.keys(), handle_error, show_progress)
    for query, (line, scores) in judged.items():
        known = {name: score for name, score in scores.items() if name in passages}
        if query not in queries or len(known) < len(scores):
            unknown = f"query {query!r}" if query not in queries else f"passage {next(iter(scores.keys() - known))!r}"
            file = files.queries if query not in queries else files.corpus
            handle_error(DataError(f"{unknown} is not in {file.name}", file=str(files.qrels), line=line))
            if query not in queries:
                continue
        record = queries[query]
        negatives = [_passage(passages[name], titles) for name, score in known.items() if score <= 0]
        for name in (name for name, score in known.items() if score > 0):
            try:
                answers = _answers(record) if sentences else None
                title, text = _passage(passages[name], titles)
                yield make_example(record.get("text"), title, text, negatives, answers=answers, language=language)
            except ValueError as error:
                handle_error(DataError(f"{query!r} and {name!r}: {error}", file=str(files.qrels), line=line))


def _read_qrels(path: Path, bad_lines: BadLines) -> dict[str, tuple[int, dict[str, int]]]:
    """Query id -> (its first line, passage id -> score)."""
    judged: dict[str, tuple[int, dict[str, int]]] = {}
    for number, line in read_lines(path, on_bad_line=bad_lines):
        cells = line.split("\t")
        if number == 1 and cells[-1].strip() == "score":
            continue
        try:
            query, passage, score = cells
            judged.setdefault(query, (number, {}))[1][passage] = int(score)
        except ValueError:
            reason = f"expected query id, passage id and a whole number with tabs between them, found {line[:80]!r}"
            bad_lines(DataError(reason, file=str(path), line=number))
    return judged


def _read_needed(path: Path, needed: Any, bad_lines: BadLines, show_progress: bool) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    size = os.path.getsize(path)
    with tqdm(total=size, desc=f"Reading {path.name}", unit="B", unit_scale=True, disable=not show_progress) as bar:
        for number, record in read_jsonl(path, on_bad_line=bad_lines, on_bytes_read=bar.update):
            name = record.get("_id")
            if not isinstance(name, str):
                bad_lines(DataError("no field '_id' with a string", file=str(path), line=number))
            elif name in needed:
                found[name] = record
    return found


def _passage(record: Mapping[str, Any], titles: bool) -> tuple[Any, str]:
    return record.get("title") if titles else None, required_field(record, "text", str)


def _answers(record: Mapping[str, Any]) -> list[str]:
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    answers = metadata.get("answers") or metadata.get("answer") or []
    return [answers] if isinstance(answers, str) else [str(answer) for answer in answers]


def _one_of(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
