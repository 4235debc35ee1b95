"""Questions with the passages, or the sentences, that answer them: the table for training."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import datasets
from tqdm.auto import tqdm

from st_xlret.data import beir
from st_xlret.data.kept import Counts, Loader
from st_xlret.data.question_files import (
    FORMATS,
    Example,
    Passage,
    examples_of_beir,
    examples_of_file,
    holds_questions,
)
from st_xlret.data.reading import DataError
from st_xlret.data.sources import source_files, split_sources
from st_xlret.data.texts import clean_text, split_sentences
from st_xlret.files import PathLike
from st_xlret.languages import check_language, match_language


def load_retrieval(
    sources: PathLike | Sequence[PathLike],
    *,
    negatives: int = 0,
    positives: Literal["passage", "sentence"] = "passage",
    context: bool = False,
    titles: bool = True,
    split: str = "train",
    language: str = "en",
    languages: Iterable[str] | None = None,
    exclude: Sequence[PathLike] = (),
    skip_bad_lines: bool = False,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    """Read questions with the passages that answer them into one memory-mapped data set.

    Its string columns are `query`, `positive`, `negative_1` ... and `language`. The table is kept,
    and the other arguments are, as in [`load_documents`][st_xlret.load_documents].

    Args:
        sources: One or several files or folders, as `FORMATS` says.
        negatives: Hard negatives per question; questions with fewer repeat theirs, those without
            any are left out.
        positives: `"passage"`, or `"sentence"` for the sentence that contains the answer: sentences
            without any answer are negatives then, and a passage in which no sentence has it stays
            whole.
        context: Put its passage after each sentence, as `LAReQAEvaluator` with `context` reads
            candidates.
        titles: Put the titles of passages before their texts.
        split: Which judgements of a BEIR folder to use.
        language: Language of questions and passages that name none.
        languages: Languages of questions to keep.
        exclude: Text files, one text per line. An example is left out if its question or passage
            occurs in them.
        skip_bad_lines: Skip and count bad lines.
        counts: Filled by source: the `examples`, and those left out by their reason.
        cache_dir: Folder of the table.
    """
    if positives not in ("passage", "sentence") or (context and positives != "sentence"):
        raise ValueError(
            f"positives must be 'passage' or 'sentence', which context needs, got {positives!r}"
        )
    if negatives < 0:
        raise ValueError(f"negatives={negatives} is below 0")
    language = check_language(language)
    loader = Loader(languages, exclude, skip_bad_lines, counts)
    opened = _open(sources, split, loader)
    texts = _Texts(positives == "sentence", context, titles, language)
    rows = _Rows(loader, texts, negatives, language)
    options = [negatives, positives, context, titles, language]
    numbered = [f"negative_{number}" for number in range(1, negatives + 1)]
    columns = dict.fromkeys(["query", "positive", *numbered, "language"], "string")
    return loader.cached_table(
        "questions", columns, rows.of_sources(opened.streams), options, opened.files, cache_dir
    )


@dataclass
class _Opened:
    """The examples of each source, and all files."""

    streams: list[tuple[PathLike, Iterator[Example]]]
    files: list[Path]


def _open(sources: PathLike | Sequence[PathLike], split: str, loader: Loader) -> _Opened:
    """The streams of examples, which are read later, and the files that they read."""
    opened = _Opened([], [])
    paths, collections = split_sources(sources)
    if collections:
        given = type(collections[0]).__name__
        raise DataError(f"questions are read from files and folders, and this is a {given}")
    for source in paths:
        if beir.is_beir_folder(Path(source).expanduser()):
            found = beir.BeirFiles.of_folder(source, split)
            opened.streams.append((source, examples_of_beir(found, loader.bad_lines)))
            opened.files += [found.corpus, found.queries, found.qrels]
            continue
        for file in source_files([source], holds_questions, f"questions: {FORMATS}"):
            opened.streams.append((file, examples_of_file(file, loader.bad_lines)))
            opened.files.append(file)
    return opened


class _Rows:
    """The rows of examples that are kept; all are counted."""

    def __init__(self, loader: Loader, texts: "_Texts", negatives: int, language: str) -> None:
        self.loader = loader
        self.texts = texts
        self.negatives = negatives
        self.language = language
        self.seen: set[int] = set()

    def of_sources(
        self, streams: Iterable[tuple[PathLike, Iterator[Example]]]
    ) -> Iterator[tuple[str, ...]]:
        """The rows of the table, in the order of the sources; every example is counted."""
        for source, examples in tqdm(streams, desc="Reading", unit=" sources", disable=None):
            for example in examples:
                row = self.row_of(example)
                outcome = self.judge_once(row)
                self.loader.counts[str(source), outcome] += 1
                if outcome == "examples":
                    yield self.values_of(row)

    def row_of(self, example: Example) -> "_Row":
        """The texts of an example, and its language if that is to be kept."""
        positive, others = self.texts.positive_and_negatives(example)
        negatives = [text for text in dict.fromkeys(others) if text and text != positive]
        code = match_language(example.language or self.language, self.loader.languages)
        return _Row(example.query, positive, negatives, code)

    def judge_once(self, row: "_Row") -> str:
        """`examples` if the row is kept, else why it is not.

        A row is looked at once: the second time, it is a repeated one.
        """
        if row.language is None:
            return "other_languages"
        if not row.query or not row.positive:
            return "empty"
        if self.negatives and not row.negatives:
            return "no_negative"
        if self.loader.excludes(row.query, row.positive):
            return "excluded"
        texts = [row.query, row.positive]
        if self.negatives:
            texts += row.negatives
        digest = hash(tuple(texts))
        if digest in self.seen:
            return "duplicate"
        self.seen.add(digest)
        return "examples"

    def values_of(self, row: "_Row") -> tuple[str, ...]:
        """The columns of a row; of few negatives, the first come again."""
        values = [row.query, row.positive]
        for number in range(self.negatives):
            values.append(row.negatives[number % len(row.negatives)])
        return (*values, str(row.language))


@dataclass
class _Row:
    """A question with its positive text and all its negatives; no language if it is not kept."""

    query: str
    positive: str
    negatives: list[str]
    language: str | None


@dataclass
class _Texts:
    """Makes the positive text and the negative ones of an example."""

    are_sentences: bool
    context: bool
    titles: bool
    language: str

    def positive_and_negatives(self, example: Example) -> tuple[str, list[str]]:
        """Passages, or sentences of the passage: with an answer, and without."""
        own_text = clean_text(example.text)
        negatives = []
        for negative in example.negatives:
            if clean_text(negative.text) != own_text:
                negatives.append(self._with_title(negative))
        if self.are_sentences:
            found = self._sentences_of(example)
            if found is not None:
                positive, others = found
                return positive, negatives + others
        return self._with_title(Passage(example.title, example.text)), negatives

    def _sentences_of(self, example: Example) -> tuple[str, list[str]] | None:
        """The sentence that answers, and those without any answer; None if none answers."""
        sentences = split_sentences(example.text, example.passage_language or self.language)
        answering = _answering_sentence(sentences, example)
        if answering is None:
            return None
        others = [one for one in sentences if not _has_answer(one, example.answers)]
        in_context = [self._in_context(sentence, example) for sentence in others]
        return self._in_context(answering, example), in_context

    def _in_context(self, sentence: str, example: Example) -> str:
        text = f"{sentence} {example.text}" if self.context else sentence
        return self._with_title(Passage(example.title, text))

    def _with_title(self, passage: Passage) -> str:
        return clean_text(f"{passage.title} {passage.text}" if self.titles else passage.text)


def _has_answer(sentence: str, answers: Iterable[str]) -> bool:
    return any(answer and answer in sentence for answer in answers)


def _answering_sentence(sentences: Sequence[str], example: Example) -> str | None:
    """The sentence at the position of the first answer, or the first with an answer; else None.

    None, too, where what stands at the position is not the answer.
    """
    if example.answer_start is not None and example.answers:
        sentence = _sentence_at(sentences, example.text, example.answer_start)
        if sentence is not None:
            return sentence if example.answers[0] in sentence else None
    for answer in filter(None, example.answers):
        for sentence in sentences:
            if answer in sentence:
                return sentence
    return None


def _sentence_at(sentences: Sequence[str], text: str, start: int) -> str | None:
    """The sentence in which a character of the text stands; None behind all sentences."""
    # Splitting changes white space: characters are counted without it.
    position = len("".join(text[:start].split()))
    for sentence in sentences:
        length = len("".join(sentence.split()))
        if position < length:
            return sentence
        position -= length
    return None
