"""Tables that are read once and kept on the disk, with the counts of what they hold."""

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from filelock import FileLock

from st_xlret import __version__
from st_xlret.data.reading import BadLines, DataError, read_lines
from st_xlret.data.texts import normalize_text
from st_xlret.files import PathLike, atomic_file, write_text
from st_xlret.folders import unpacked_name
from st_xlret.languages import check_languages

_logger = logging.getLogger(__name__)
_ROWS_PER_BATCH = 100_000
_WITH_FIELDS = re.compile(r"\.(jsonl?|csv|tsv|parquet)$")


class Counts(Counter[tuple[str, str]]):
    """What a loader kept and left out, as a table when it is printed.

    They are by (language, pair or source; what was counted).
    """

    def __str__(self) -> str:
        from tabulate import tabulate

        names = list(dict.fromkeys(name for _, name in self))
        rows = []
        for code in sorted({code for code, _ in self}):
            rows.append([code, *(self[code, name] for name in names)])
        return tabulate(rows, ["", *names], tablefmt="plain")


def cache_key(options: Any, files: Iterable[PathLike] = ()) -> str:
    """A name for what options (as JSON can hold them) and files as they are now give."""
    states = []
    for file in files:
        state = os.stat(file)
        states.append((os.path.abspath(file), state.st_size, state.st_mtime_ns))
    content = json.dumps([__version__, _readers(), options, states], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


@cache
def _readers() -> str:
    """What tells the code that reads from another state of it."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def cached_table(
    name: str,
    columns: Mapping[str, str],
    rows: Iterable[tuple[Any, ...]],
    *,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
    needed: str = "",
) -> datasets.Dataset:
    """The memory-mapped table of a name, written from rows if there is none.

    Two processes write it once. Rows that fail leave nothing behind. `counts` are filled by them,
    or from what is kept beside the table, and logged. There must be rows if `needed` says what they
    are.
    """
    folder = Path(cache_dir or Path(datasets.config.HF_DATASETS_CACHE, "st_xlret")).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.arrow"
    counts = Counts() if counts is None else counts
    with FileLock(f"{file}.lock"):
        if file.is_file():
            _read_counts(file, counts)
        else:
            _write_table(file, columns, rows, counts, needed)
    if counts:
        _logger.info("%s", counts)
    return datasets.Dataset.from_file(str(file))


def _write_table(
    file: Path,
    columns: Mapping[str, str],
    rows: Iterable[tuple[Any, ...]],
    counts: Counts,
    needed: str,
) -> None:
    """Write a table with the counts of reading it, which are complete once all rows are read.

    A row has its values in the order of `columns`.
    A table without rows is refused where something is `needed`; nothing is written then.
    """
    # Dataset.from_generator takes three times as long.
    types = {column: datasets.Value(kind) for column, kind in columns.items()}
    schema = datasets.Features(types).arrow_schema
    is_empty = True
    with (
        atomic_file(file) as part,
        pa.OSFile(str(part), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as out,
    ):
        remaining = iter(rows)
        while batch := list(islice(remaining, _ROWS_PER_BATCH)):
            values = [list(column) for column in zip(*batch, strict=True)]
            out.write_batch(pa.record_batch(values, schema))
            is_empty = False
        if needed and is_empty:
            raise DataError(f"no {needed} are left to train on:\n{counts}")
        # The table is renamed in when the block ends, and whoever finds it reads its counts. So
        # they are on the disk before: a run that is stopped between the two writes both again.
        listed = [(code, what, count) for (code, what), count in counts.items()]
        write_text(_counts_file(file), json.dumps(listed))


def _read_counts(file: Path, counts: Counts) -> None:
    """Add the counts of a table that was kept to `counts`."""
    for code, what, count in json.loads(_counts_file(file).read_text("utf-8")):
        counts[code, what] += count


def _counts_file(table: Path) -> Path:
    return table.with_suffix(".json")


class Loader:
    """What the loaders share: which languages, texts and lines are left out, and their counts."""

    def __init__(
        self,
        languages: Iterable[str] | None,
        exclude: PathLike | Iterable[PathLike],
        skip_bad_lines: bool,
        counts: Counts | None,
    ) -> None:
        self.languages = check_languages(languages)
        self.bad_lines = BadLines(skip_bad_lines)
        self.counts = Counts() if counts is None else counts
        excluded = set()
        for file in [exclude] if isinstance(exclude, str | os.PathLike) else exclude:
            if _WITH_FIELDS.search(unpacked_name(file)):
                raise DataError("texts to leave out stand one a line, without fields", file)
            for _, line in read_lines(file):
                excluded.add(normalize_text(line))
        self._excluded = frozenset(excluded)

    def excludes(self, *texts: str) -> bool:
        """Whether one of these texts is to be left out."""
        if not self._excluded:
            return False
        return not self._excluded.isdisjoint(map(normalize_text, texts))

    def cached_table(
        self,
        what: str,
        columns: Mapping[str, str],
        rows: Iterable[tuple[Any, ...]],
        options: list[Any],
        files: Iterable[PathLike],
        cache_dir: PathLike | None,
    ) -> datasets.Dataset:
        """The kept table of rows, which must not be none.

        It is kept by the loader's own options and those that are given, and by what is in `files`.
        `what` names the table, and the rows in errors.
        """
        left_out = [sorted(self.languages or []), sorted(self._excluded), self.bad_lines.skip]
        key = cache_key([*left_out, options], files)
        return cached_table(
            f"{what}-{key}",
            columns,
            self._rows_then_warning(rows),
            counts=self.counts,
            cache_dir=cache_dir,
            needed=what,
        )

    def _rows_then_warning(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        yield from rows
        self.bad_lines.warn()
