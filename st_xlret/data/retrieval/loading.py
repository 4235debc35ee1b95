"""Loading questions and passages from the layouts that retrieval data comes in."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import datasets

from st_xlret.data.languages import check_language, check_languages, match_language
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import BadLines, DataError, Limits
from st_xlret.data.reading.report import Report
from st_xlret.data.reading.sources import Sources, texts_to_exclude
from st_xlret.data.reading.text import normalise_text
from st_xlret.data.retrieval.examples import Example
from st_xlret.data.retrieval.layouts import find_retrieval

logger = logging.getLogger(__name__)

PASSAGE, SENTENCE = "passage", "sentence"


@dataclass
class RetrievalCounts:
    """What was found in one source.

    Attributes:
        examples: Examples kept.
        no_query: Examples left out because the question has no text.
        no_positive: Examples left out because no passage answers the question, or the passage has no text.
        no_negative: Examples left out because hard negatives were asked for and there is none.
        duplicate: Examples left out because the same question and passage occurred before.
        excluded: Examples left out because the question or the passage is in the `exclude` files.
        whole_passage: Examples kept with the whole passage, because no sentence of it contains the answer.
    """

    examples: int = 0
    no_query: int = 0
    no_positive: int = 0
    no_negative: int = 0
    duplicate: int = 0
    excluded: int = 0
    whole_passage: int = 0


@dataclass
class RetrievalReport(Report[RetrievalCounts]):
    """What [`load_retrieval`][st_xlret.load_retrieval] kept and left out; `str(report)` is a small table.

    Attributes:
        languages: Counts by source; `sources` is another name of it.
        bad_lines: (file, line or entry, reason) of the first 1,000 lines that were skipped.
        bad_line_count: Number of lines that were skipped.
        reused: Whether an earlier result for the same unchanged files was taken.
    """

    counts_class = RetrievalCounts
    header = ("source", "examples", "no query", "no positive", "no negative", "duplicate", "excluded", "whole")

    @property
    def sources(self) -> dict[str, RetrievalCounts]:
        """Counts by source."""
        return self.languages

    @property
    def examples(self) -> int:
        """Examples kept, over all sources."""
        return self.total("examples")


def load_retrieval(
    sources: Any,
    *,
    negatives: int = 0,
    positives: str = PASSAGE,
    titles: bool = True,
    split: str = "train",
    language: str = "en",
    languages: Iterable[str] | None = None,
    exclude: Sequence[str | os.PathLike[str]] = (),
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
    report: RetrievalReport | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    r"""Read questions with the passages that answer them into one memory-mapped data set.

    The layout of a source is recognised: a folder with `corpus.jsonl` is in BEIR's layout; a `.json` file is DPR's (a
    list) or SQuAD's (an object with `data`); a `.tsv` file contains MS MARCO triplets, as texts or as ids; a `.jsonl`
    file is Mr.TyDi's (`positive_passages`), Mewsli-X's (`contextual_mention`) or has rows `{"query", "positive",
    "negatives", "language"}`; a folder that contains files `train.jsonl.gz` is Mr.TyDi's. All of them may be gzipped.
    White space becomes single spaces; the title of a passage is put before its text.

    A row has the language of its question: that of its own field `language` or `lang` (for BEIR, in the query's
    `metadata`), of the folder of Mr.TyDi, or of XOR-TyDi's file of questions (`xor_train_retrieve_eng_span.jsonl`) in
    the same folder; else the one that is named as `PATH=LANGUAGE`; else `language`.

    Args:
        sources: One or several files or folders, each of which may be given as `PATH=LANGUAGE`.
        negatives: Hard negatives per question: those in the files and, with `positives="sentence"`, the other sentences
            of the passage that contain no answer. Questions with fewer repeat theirs; those without any are left out
            and counted.
        positives: "passage", or "sentence" for the sentence that contains the answer (for DPR, SQuAD, and BEIR if the
            queries have `metadata.answers`). Where no sentence does, the whole passage is taken and counted.
        titles: Put the titles of passages before their texts.
        split: Which judgements of a BEIR folder to use.
        language: Language of questions that name none.
        languages: Languages of questions to keep. All by default.
        exclude: Text files, one text per line, such as the questions of a test set. An example is left out if its
            question or passage occurs in them; case, punctuation and white space make no difference.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        limits: Longest line of a file, and longest entry of a JSON list. By default those of `Limits`.
        report: Filled with counts of what was kept and left out. They are logged as well, at the level INFO.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress: Show a progress bar.

    Returns:
        Data set with the string columns `query`, `positive`, `negative_1` ... and `language`.

    Raises:
        DataError: For a bad line (file and line or entry are named), an unknown layout, or if no example is left.
        FileNotFoundError: If a BEIR folder lacks a file or the split.
        ValueError: For a bad option.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "triples.tsv").write_text("who\tme\tit\n", encoding="utf-8")
        >>> load_retrieval(folder / "triples.tsv", negatives=1, cache_dir=folder, show_progress=False)[0]
        {'query': 'who', 'positive': 'me', 'negative_1': 'it', 'language': 'en'}
    """
    if negatives < 0:
        raise ValueError(f"negatives must not be negative, got {negatives}")
    if positives not in (PASSAGE, SENTENCE):
        raise ValueError(f"positives must be {PASSAGE!r} or {SENTENCE!r}, got {positives!r}")
    language = check_language(language, where="language")
    found, wanted = find_retrieval(sources, split), check_languages(languages)
    excluded = texts_to_exclude(exclude)
    options = {
        "negatives": negatives,
        "positives": positives,
        "titles": titles,
        "language": language,
        "named": [source.language for source in found],
        "languages": None if wanted is None else sorted(wanted),
        "exclude": sorted(excluded),
        "skip_bad_lines": skip_bad_lines,
    }
    key = Sources([str(file) for source in found for file in source.files]).cache_key(options)
    made, bad_lines = RetrievalReport(), BadLines(skip_bad_lines, limits or Limits())

    def rows() -> Iterator[tuple[str, ...]]:
        seen: set[int] = set()
        for source in found:
            examples = source.read(
                bad_lines,
                sentences=positives == SENTENCE,
                titles=titles,
                language=language,
                show_progress=show_progress,
            )
            kept = _of_languages(examples, wanted, made, language)
            yield from _select(kept, made.counts(str(source.path)), negatives, seen, excluded)

    def check() -> None:
        made.take_bad_lines(bad_lines)
        if not made.examples:
            raise DataError(f"no questions left to train on:\n{made}")

    names = ["query", "positive", *(f"negative_{i}" for i in range(1, negatives + 1)), "language"]
    cache = ArrowCache("retrieval", datasets.Features({name: datasets.Value("string") for name in names}), cache_dir)
    dataset, made = cache.take_or_make(key, rows(), made, check)
    made.publish(report, logger)
    return dataset


def _of_languages(
    examples: Iterable[Example], wanted: frozenset[str] | None, report: RetrievalReport, default: str
) -> Iterator[Example]:
    """The examples whose questions are in wanted languages, each with its language."""
    for example in examples:
        code = example.language or default
        language = match_language(code, wanted)
        if language is None:
            report.leave_out(code)
        else:
            yield example._replace(language=language)


def _select(
    examples: Iterable[Example],
    counts: RetrievalCounts,
    negatives: int,
    seen: set[int],
    exclude: Collection[str],
) -> Iterator[tuple[str, ...]]:
    """Stream the examples to keep as (query, positive, negatives ..., language), and count all."""
    for query, positive, others, answer_found, language in examples:
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
            yield query, positive, *(distinct[i % len(distinct)] for i in range(negatives)), str(language)
