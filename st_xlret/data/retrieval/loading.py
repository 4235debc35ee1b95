"""Reading questions and passages from the layouts that retrieval data comes in."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import datasets

from st_xlret.data.languages import check_language
from st_xlret.data.pairs.selection import normalise_text
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.json_lists import first_character
from st_xlret.data.reading.jsonl import BadLines, DataError
from st_xlret.data.reading.records import format_report
from st_xlret.data.reading.sources import Sources
from st_xlret.data.retrieval.beir import find_beir, is_beir, read_beir
from st_xlret.data.retrieval.dpr import read_dpr
from st_xlret.data.retrieval.examples import Example
from st_xlret.data.retrieval.ms_marco import read_ms_marco
from st_xlret.data.retrieval.squad import read_squad

PASSAGE, SENTENCE = "passage", "sentence"


@dataclass
class RetrievalCounts:
    """What was found in one source.

    Attributes:
        examples: Examples kept.
        no_query: Left out: a question without text.
        no_positive: Left out: no passage answers it, or one without text.
        no_negative: Left out: hard negatives were asked for and it has none.
        duplicate: Left out: the same question and passage stood before.
        excluded: Left out: the question or the passage is in ``exclude``.
        whole_passage: Kept, but with the whole passage: no sentence of it holds the answer.
    """

    examples: int = 0
    no_query: int = 0
    no_positive: int = 0
    no_negative: int = 0
    duplicate: int = 0
    excluded: int = 0
    whole_passage: int = 0


@dataclass
class RetrievalReport:
    """What :func:`load_retrieval` kept and left out; ``str(report)`` is a small table.

    Attributes:
        languages: Counts by source.
        bad_lines: (file, line or entry, reason) of the first 1 000 that were skipped.
        bad_line_count: How many were skipped.
        reused: Whether an earlier result for the same unchanged files was taken.
    """

    languages: dict[str, RetrievalCounts] = field(default_factory=dict)
    bad_lines: list[tuple[str, int, str]] = field(default_factory=list)
    bad_line_count: int = 0
    reused: bool = False
    other_languages: dict[str, int] = field(default_factory=dict)
    skipped_files: list[str] = field(default_factory=list)

    @property
    def examples(self) -> int:
        """Examples kept, over all sources."""
        return sum(counts.examples for counts in self.languages.values())

    def __str__(self) -> str:
        header = ["source", "examples", "no query", "no positive", "no negative", "duplicate", "excluded", "whole"]
        return format_report(header, self)


def load_retrieval(
    sources: Any,
    *,
    negatives: int = 0,
    positives: str = PASSAGE,
    titles: bool = True,
    split: str = "train",
    language: str = "en",
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    r"""Read questions with the passages that answer them into one memory-mapped dataset.

    What a source is, is seen from it: a folder with ``corpus.jsonl`` is in BEIR's layout; a ``.json`` file is
    DPR's (a list) or SQuAD's (an object with ``data``); a ``.tsv`` file holds MS MARCO triplets, as texts or
    as ids. All may be gzipped. White space becomes single spaces; a passage's title is put before its text.

    Args:
        sources: One or several files or folders.
        negatives: Hard negatives per question. One with fewer repeats those it has; one without is left out
            and counted.
        positives: "passage", or "sentence" for the sentence that holds the answer (DPR, SQuAD, and BEIR where
            the queries have ``metadata.answers``); where none does, the whole passage is taken and counted.
        titles: Put the titles of passages before their texts.
        split: Which qrels of a BEIR folder.
        language: Language of the questions and passages.
        exclude: Texts as :func:`~st_xlret.data.normalise_text` gives them; an example whose question or
            passage is among them is left out (to keep test data out of the training data).
        skip_bad_lines: Count bad lines and go on, instead of raising.
        cache_dir: Folder for the Arrow files. Default: ``st_xlret`` inside the cache of ``datasets``.
        show_progress: Show a progress bar.

    Returns:
        Dataset with the string columns ``query``, ``positive``, ``negative_1`` ... and ``language``.

    Raises:
        DataError: For a bad line (file and line or entry are named), an unknown layout, a split that is not
            there, or no example left.
        ValueError: For a bad option.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "triples.tsv").write_text("who\tme\tit\n", encoding="utf-8")
        >>> load_retrieval(folder / "triples.tsv", negatives=1, cache_dir=folder, show_progress=False)[0]
        {'query': 'who', 'positive': 'me', 'negative_1': 'it', 'language': 'en'}
    """
    return load_retrieval_with_report(
        sources,
        negatives=negatives,
        positives=positives,
        titles=titles,
        split=split,
        language=language,
        exclude=exclude,
        skip_bad_lines=skip_bad_lines,
        cache_dir=cache_dir,
        show_progress=show_progress,
    )[0]


def load_retrieval_with_report(
    sources: Any,
    *,
    negatives: int = 0,
    positives: str = PASSAGE,
    titles: bool = True,
    split: str = "train",
    language: str = "en",
    exclude: Collection[str] | None = None,
    skip_bad_lines: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, RetrievalReport]:
    """Like :func:`load_retrieval`, and also return a :class:`RetrievalReport` of what was left out."""
    if negatives < 0:
        raise ValueError(f"negatives must not be negative, got {negatives}")
    if positives not in (PASSAGE, SENTENCE):
        raise ValueError(f"positives must be {PASSAGE!r} or {SENTENCE!r}, got {positives!r}")
    language = check_language(language, where="language")
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    layouts = [(Path(path).expanduser().resolve(), layout_of(path)) for path in paths]
    if not layouts:
        raise DataError("no sources given; pass files or BEIR folders")
    files = [find_beir(path, split) if layout == "beir" else (path,) for path, layout in layouts]
    options = {
        "negatives": negatives,
        "positives": positives,
        "titles": titles,
        "language": language,
        "exclude": sorted(exclude or ()),
        "skip_bad_lines": skip_bad_lines,
    }
    key = Sources([str(file) for group in files for file in group], [], []).cache_key(options)
    names = ["query", "positive", *(f"negative_{i}" for i in range(1, negatives + 1)), "language"]
    cache = ArrowCache("retrieval", datasets.Features({name: datasets.Value("string") for name in names}), cache_dir)
    with cache.lock(key):
        if (stored := cache.load(key)) is not None:
            return stored[0], _report_from_json(stored[1])
        report, bad_lines = RetrievalReport(), BadLines(skip=skip_bad_lines)

        def rows() -> Iterator[tuple[str, ...]]:
            seen: set[int] = set()
            for path, layout in layouts:
                counts = report.languages.setdefault(str(path), RetrievalCounts())
                texts = {"sentences": positives == SENTENCE, "titles": titles, "language": language}
                examples = _read(path, layout, split, texts, bad_lines, show_progress)
                for example in select(examples, counts, negatives, seen, frozenset(exclude or ())):
                    yield (*example, language)

        def finish() -> dict[str, Any]:
            report.bad_lines, report.bad_line_count = bad_lines.examples, bad_lines.count
            if not report.examples:
                raise DataError(f"no questions left to train on:\n{report}")
            return asdict(report)

        return cache.store(key, rows(), finish), report


def layout_of(path: str | os.PathLike[str]) -> str:
    """The layout of a source: "beir", "dpr", "squad" or "ms_marco".

    Raises:
        DataError: If it is none of them.
    """
    name = Path(path).name.removesuffix(".gz")
    if is_beir(path):
        return "beir"
    if not Path(path).exists():
        raise DataError(f"no such file or directory: {os.fspath(path)!r}")
    if name.endswith(".tsv") and Path(path).is_file():
        return "ms_marco"
    if name.endswith(".json") and Path(path).is_file():
        first = first_character(path)
        if first in ("[", "{"):
            return "dpr" if first == "[" else "squad"
    raise DataError(
        f"{os.fspath(path)!r} is no retrieval data that is known here: a folder with corpus.jsonl (BEIR), a .json "
        "file with a list (DPR) or an object (SQuAD), or a .tsv file of triplets (MS MARCO)"
    )


def _read(
    path: Path, layout: str, split: str, texts: dict[str, Any], bad_lines: BadLines, show_progress: bool
) -> Iterator[Example]:
    if layout == "beir":
        yield from read_beir(path, split, **texts, bad_lines=bad_lines, show_progress=show_progress)
        return
    reader: Callable[..., Iterator[Example]] = read_ms_marco
    if layout != "ms_marco":
        reader = partial(read_dpr if layout == "dpr" else read_squad, **texts)
    opened = Sources([str(path)], [], []).opened(
        reader, bad_lines, show_progress=show_progress, description=f"Reading {path.name}"
    )
    for _, examples in opened:
        yield from examples


def select(
    examples: Iterable[Example],
    counts: RetrievalCounts,
    negatives: int,
    seen: set[int],
    exclude: Collection[str],
) -> Iterator[Sequence[str]]:
    """Stream the examples to keep as (query, positive, negatives ...), counting all."""
    for query, positive, others, answer_found in examples:
        distinct = [text for text in dict.fromkeys(others) if text and text != positive]
        if not query:
            counts.no_query += 1
        elif not positive:
            counts.no_positive += 1
        elif negatives and not distinct:
            counts.no_negative += 1
        elif exclude and not {normalise_text(query), normalise_text(positive)}.isdisjoint(exclude):
            counts.excluded += 1
        elif (row := hash((query, positive, *(distinct if negatives else ())))) in seen:
            counts.duplicate += 1
        else:
            seen.add(row)
            counts.examples += 1
            counts.whole_passage += not answer_found
            yield query, positive, *(distinct[i % len(distinct)] for i in range(negatives))


def _report_from_json(stored: dict[str, Any]) -> RetrievalReport:
    sources = {name: RetrievalCounts(**counts) for name, counts in stored.pop("languages").items()}
    bad_lines = [(file, line, reason) for file, line, reason in stored.pop("bad_lines")]
    return RetrievalReport(languages=sources, bad_lines=bad_lines, **{**stored, "reused": True})
