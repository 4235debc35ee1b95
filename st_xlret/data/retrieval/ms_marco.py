"""Reading MS MARCO's training triplets, as texts or as ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from st_xlret.data.reading.jsonl import BadLines, DataError, read_lines
from st_xlret.data.retrieval.examples import Example, make_example

COLLECTIONS = ("collection.tsv", "collection.tsv.gz")
QUERIES = ("queries.train.tsv", "queries.train.tsv.gz", "queries.tsv", "queries.tsv.gz")


def read_ms_marco(
    path: str | os.PathLike[str],
    *,
    on_bad_line: Callable[[DataError], None] | None = None,
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[Example]:
    r"""Stream `query<TAB>positive<TAB>negative` lines, such as `triples.train.small.tsv`.

    If the columns are ids (`qidpidtriples.train.full.2.tsv`), the texts are taken from `collection.tsv` and
    `queries.train.tsv` in the same folder. The ids are then read twice, and only the texts that they name are held in
    memory.

    Args:
        path: A `.tsv` or `.tsv.gz` file.
        on_bad_line: Called with an error that names file and line. If it returns, the line is left out. By default the
            error is raised.
        on_bytes_read: Called now and then with the number of bytes of the file (as stored) read since.

    Yields:
        Examples with one negative each.

    Raises:
        DataError: For a bad line, or ids without texts.

    Example:
        >>> import tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp(), "triples.tsv")
        >>> _ = file.write_text("who\tthat is me\tthat is it\n", encoding="utf-8")
        >>> next(read_ms_marco(file))[:3]
        ('who', 'that is me', ('that is it',))
    """
    handle_error = on_bad_line or BadLines()
    texts: tuple[dict[str, str], dict[str, str]] | None = None
    if _holds_ids(path):
        texts = _texts_of_ids(path)
    for number, cells in _cells(path, 3, handle_error, on_bytes_read):
        try:
            if texts is not None:
                cells = [_look_up(texts[i > 0], cell, "query" if i == 0 else "passage") for i, cell in enumerate(cells)]
            yield make_example(cells[0], None, cells[1], [(None, cells[2])])
        except ValueError as error:
            handle_error(DataError(str(error), file=os.fspath(path), line=number))


def _cells(
    path: str | os.PathLike[str],
    columns: int,
    bad_lines: Callable[[DataError], None],
    on_bytes_read: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path, on_bad_line=bad_lines, on_bytes_read=on_bytes_read):
        cells = line.split("\t")
        if len(cells) == columns:
            yield number, cells
        else:
            reason = f"expected {columns} columns with tabs between them, found {len(cells)}"
            bad_lines(DataError(reason, file=os.fspath(path), line=number))


def _holds_ids(path: str | os.PathLike[str]) -> bool:
    first = next(_cells(path, 3, BadLines(skip=True)), None)
    return first is not None and all(cell.strip().isdecimal() for cell in first[1])


def _texts_of_ids(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Read the texts of the queries and of the passages that the triplets name."""
    triplets = [cells for _, cells in _cells(path, 3, BadLines(skip=True))]
    needed = [{cells[0] for cells in triplets}, {cell for cells in triplets for cell in cells[1:]}]
    found: list[dict[str, str]] = []
    for names, ids in zip((QUERIES, COLLECTIONS), needed, strict=True):
        file = next((f for name in names if (f := Path(path).parent / name).is_file()), None)
        if file is None:
            raise DataError(f"{os.fspath(path)!r} contains ids: put {names[0]} with their texts into its folder")
        lines = _cells(file, 2, BadLines())
        found.append({cells[0]: cells[1] for _, cells in lines if cells[0] in ids})
    return found[0], found[1]


def _look_up(texts: dict[str, str], name: str, kind: str) -> str:
    if name not in texts:
        raise ValueError(f"there is no {kind} with the id {name!r} beside the triplets")
    return texts[name]
