"""Loading questions and passages from the layouts that retrieval data comes in."""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from st_xlret.data.beir import beir_examples, find_beir, is_beir
from st_xlret.data.cache import cached_dataset
from st_xlret.data.lines import DAMAGED, BadLines, DataError, Limits, PathLike, Report, open_bytes, read_jsonl
from st_xlret.data.question_formats import (
    DPR,
    MEWSLI_X,
    MR_TYDI,
    MS_MARCO,
    ROWS,
    SQUAD,
    Example,
    Reading,
    named_language,
    read_questions,
)
from st_xlret.data.sources import Sources, existing_path, first_record, require_content, texts_to_exclude
from st_xlret.data.text import clean_text, normalise_text
from st_xlret.languages import check_language, check_languages, match_language

logger = logging.getLogger(__name__)

PASSAGE, SENTENCE = "passage", "sentence"
BEIR = "beir"
_XOR_QUESTIONS = "xor_*.jsonl*"


class RetrievalReport(Report):
    """What [`load_retrieval`][st_xlret.load_retrieval] kept and left out, by source (in `languages`).

    It counts `examples` that were kept, of these the `whole_passage` ones without a sentence that has the answer; and
    those left out: with `no_query` text, `no_positive` text or `no_negative`, a `duplicate`, or `excluded`.
    """

    counted = ("examples", "no_query", "no_positive", "no_negative", "duplicate", "excluded", "whole_passage")


def load_retrieval(
    sources: Any,
    *,
    negatives: int = 0,
    positives: str = PASSAGE,
    context: bool = False,
    titles: bool = True,
    split: str = "train",
    language: str = "en",
    languages: Iterable[str] | None = None,
    exclude: Sequence[PathLike] = (),
    skip_bad_lines: bool = False,
    limits: Limits | None = None,
    report: RetrievalReport | None = None,
    cache_dir: PathLike | None = None,
    show_progress_bar: bool = True,
) -> datasets.Dataset:
    r"""Read questions with the passages that answer them into one memory-mapped data set.

    The layout of a source is recognised; all files may be gzipped: a folder with `corpus.jsonl` (BEIR); `.json` with a
    list (DPR) or an object with `data` (SQuAD); `.tsv` (triplets of MS MARCO, texts or ids); `.jsonl` with
    `positive_passages` (Mr.TyDi), `contextual_mention` (Mewsli-X) or rows `{"query", "positive", "negatives",
    "language"}`; a folder with `train.jsonl.gz` (Mr.TyDi). White space becomes single spaces.

    The language of a question is that of its field `language` or `lang` (in BEIR, of `metadata`), of Mr.TyDi's folder,
    or of XOR-TyDi's `xor_*.jsonl` beside the file; else that of `PATH=LANGUAGE`; else `language`.

    Args:
        sources: One or several files or folders, each of which may be given as `PATH=LANGUAGE`.
        negatives: Hard negatives per question; questions with fewer repeat theirs, those without any are left out.
        positives: "passage", or "sentence" for the sentence that contains the answer (DPR, SQuAD, and BEIR with
            `metadata.answers`): other sentences are negatives, and passages without such a sentence stay whole.
        context: Put its passage after each sentence, positive or negative, as LAReQA's candidates in XTREME-R have
            it: `LAReQAEvaluator` with `context` reads the same.
        titles: Put the titles of passages before their texts.
        split: Which judgements of a BEIR folder to use, and which files of a folder of Mr.TyDi.
        language: Language of questions that name none.
        languages: Languages of questions to keep. All by default.
        exclude: Text files, one text per line. An example is left out if its question or passage occurs in them,
            whatever the case, punctuation and white space.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        limits: Longest line of a file, and longest entry of a JSON list.
        report: Filled with counts of what was kept and left out.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress_bar: Show a progress bar.

    Returns:
        Data set with the string columns `query`, `positive`, `negative_1` ... and `language`.

    Raises:
        DataError: For a bad line (file and line or entry are named), an unknown layout, or if no example is left.
        FileNotFoundError: If a BEIR folder lacks a file or the split.
        ValueError: For a bad option.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "triples.tsv")
        >>> _ = file.write_text("who\tme\tit\n", encoding="utf-8")
        >>> load_retrieval(file, negatives=1, cache_dir=file.parent, show_progress_bar=False)[0]
        {'query': 'who', 'positive': 'me', 'negative_1': 'it', 'language': 'en'}
    """
    if negatives < 0:
        raise ValueError(f"negatives must not be negative, got {negatives}")
    if positives not in (PASSAGE, SENTENCE):
        raise ValueError(f"positives must be {PASSAGE!r} or {SENTENCE!r}, got {positives!r}")
    if context and positives != SENTENCE:
        raise ValueError(f"context puts a passage after each sentence: it needs positives={SENTENCE!r}")
    language = check_language(language, where="language")
    found, wanted, excluded = find_retrieval(sources, split), check_languages(languages), texts_to_exclude(exclude)
    made = RetrievalReport(skip_bad_lines, limits or Limits())
    reading = Reading(positives == SENTENCE, context, titles, language)

    def rows() -> Iterator[tuple[str, ...]]:
        seen: set[int] = set()
        for source in found:
            counts = made.languages[str(source.path)]
            for query, positive, others, answer_found, code in source.read(made, reading, show_progress_bar):
                kept_as = match_language(str(code), wanted)
                distinct = [text for text in dict.fromkeys(others) if text and text != positive]
                if kept_as is None:
                    made.other_languages[str(code)] += 1
                elif not query:
                    counts["no_query"] += 1
                elif not positive:
                    counts["no_positive"] += 1
                elif negatives and not distinct:
                    counts["no_negative"] += 1
                elif excluded and not excluded.isdisjoint(map(normalise_text, (query, positive))):
                    counts["excluded"] += 1
                elif (row := hash((query, positive, *(distinct if negatives else ())))) in seen:
                    counts["duplicate"] += 1
                else:
                    seen.add(row)
                    counts["examples"] += 1
                    counts["whole_passage"] += not answer_found
                    yield query, positive, *(distinct[i % len(distinct)] for i in range(negatives)), kept_as
        if not made.total("examples"):
            raise DataError(f"no questions left to train on:\n{made}")

    options = [negatives, positives, context, titles, language, [source.language for source in found], skip_bad_lines]
    files = [str(file) for source in found for file in source.files]
    key = Sources(files).cache_key([*options, wanted and sorted(wanted), sorted(excluded)])
    names = ["query", "positive", *(f"negative_{i}" for i in range(1, negatives + 1)), "language"]
    features = dict.fromkeys(names, "string")
    dataset = cached_dataset("retrieval", features, rows(), key=key, report=made, cache_dir=cache_dir)
    made.publish(report, logger)
    return dataset


class RetrievalSource(NamedTuple):
    """A file or folder of one layout, and the language that the user named as PATH=LANGUAGE, if any."""

    path: Path
    layout: str
    language: str | None
    split: str

    @property
    def files(self) -> list[Path]:
        """The files that the examples depend on."""
        return list(find_beir(self.path, self.split)) if self.layout == BEIR else [self.path, *self.xor_questions]

    @property
    def xor_questions(self) -> list[Path]:
        """XOR-TyDi's files of questions beside a file of passages: they tell the languages of the questions."""
        beside = self.path.parent.glob(_XOR_QUESTIONS) if self.layout in (DPR, SQUAD) else ()
        return sorted(path for path in beside if path.is_file())

    def has_negatives(self, positives: str) -> bool:
        """Whether the examples have hard negatives; sentences with the answer have the others of their passage."""
        if self.layout == ROWS:
            return not {"negative", "negatives"}.isdisjoint(first_record(self.path) or {})
        return self.layout in (DPR, MS_MARCO, MR_TYDI) or (positives == SENTENCE and self.layout in (SQUAD, BEIR))

    def read(self, bad_lines: BadLines, reading: Reading, show_progress_bar: bool) -> Iterator[Example]:
        """Stream the examples; each has a language."""
        named = self.language or reading.language
        if self.layout == BEIR:
            own = reading._replace(language=named)
            examples = beir_examples(self.path, self.split, own, bad_lines, show_progress_bar=show_progress_bar)
        else:
            languages = _question_languages(self.xor_questions)
            # XOR-TyDi's passages are English, whatever the language of the questions.
            passages = "en" if languages else named
            own = reading._replace(language=passages, named=self.language, question_languages=languages)
            in_files = Sources([str(self.path)]).in_files(
                lambda file, *options: read_questions(file, self.layout, own, *options),
                bad_lines,
                show_progress_bar=show_progress_bar,
                description=f"Reading {self.path.name}",
            )
            examples = (example for _, example in in_files)
        for example in examples:
            yield example._replace(language=example.language or named)


def find_retrieval(sources: PathLike | Iterable[PathLike], split: str = "train") -> list[RetrievalSource]:
    """The sources of retrieval data that a `sources` argument names; a DataError if one has no known layout."""
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    found = [source for path in paths for source in _sources_in(path, split)]
    if not found:
        raise DataError("no sources given; pass files or folders of questions with passages")
    return found


def _sources_in(path: PathLike, split: str) -> list[RetrievalSource]:
    language = None
    if not os.path.exists(os.path.expanduser(path)) and "=" in os.fspath(path):
        path, _, code = os.fspath(path).rpartition("=")
        language = check_language(code, where=f"{path}={code}")
    found = existing_path(path)
    if found.is_dir() and not is_beir(found):
        names = (f"{split}.jsonl", f"{split}.jsonl.gz")
        if files := sorted(file for name in names for file in found.rglob(name) if _layout_of(file) == MR_TYDI):
            return [RetrievalSource(file, MR_TYDI, language, split) for file in files]
    return [RetrievalSource(found, _layout_of(found), language, split)]


def _layout_of(path: Path) -> str:
    """Tell the layout of a file, or of a folder in BEIR's layout."""
    if is_beir(path):
        return BEIR
    require_content(path)
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    if path.is_file() and name.endswith(".tsv"):
        return MS_MARCO
    if path.is_file() and name.endswith(".json"):
        try:
            with open_bytes(path) as stream:
                first = stream.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        except DAMAGED as error:
            raise DataError(f"the compressed file is damaged ({error})", file=str(path)) from error
        if first in (b"[", b"{"):
            return DPR if first == b"[" else SQUAD
    if path.is_file() and name.endswith(".jsonl"):
        record = first_record(path) or {}
        layouts = {"positive_passages": MR_TYDI, "contextual_mention": MEWSLI_X, "positive": ROWS}
        if layout := next((layout for field, layout in layouts.items() if field in record), None):
            return layout
        if fnmatch.fnmatch(path.name, _XOR_QUESTIONS):
            raise DataError(
                f"{str(path)!r} has questions and answers without passages: give XOR-TyDi's training data in "
                "DPR's layout (dpr_train_data.json) or its gold paragraphs in SQuAD's, with this file beside them"
            )
    raise DataError(
        f"{str(path)!r} is in none of the layouts of retrieval data: a folder with corpus.jsonl (BEIR) or with "
        "train.jsonl.gz (Mr.TyDi), a .json file with a list (DPR) or an object (SQuAD), a .tsv file of triplets (MS "
        "MARCO), or a .jsonl file with 'positive_passages' (Mr.TyDi), 'contextual_mention' (Mewsli-X) or 'query' and "
        "'positive'"
    )


def _question_languages(files: Sequence[Path]) -> Mapping[str, str]:
    """Question -> its language, from XOR-TyDi's files `{"question", "lang", "answers"}`."""
    languages: dict[str, str] = {}
    for file in files:
        for number, record in read_jsonl(file):
            try:
                code = named_language(record, None)
                question = clean_text(record.get("question"))
            except ValueError as error:
                raise DataError(str(error), file=str(file), line=number) from None
            if code is not None:
                languages[question] = code
    return languages
