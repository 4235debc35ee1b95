"""Reading XOR-Retrieve: questions with answers in JSONL, passages in DPR's TSV."""

from __future__ import annotations

import csv
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from st_xlret.data.reading.jsonl import DataError, read_jsonl, read_lines
from st_xlret.evaluation.readers.answered_questions import AnsweredQuestions
from st_xlret.evaluation.readers.passage_table import Passage, load_passages
from st_xlret.evaluation.retrieval.data import TextCollection

YES_NO = ("yes", "no")
_SPLITS = ("train", "dev", "test")
_LONGEST_FIELD = 2**27


@dataclass(frozen=True)
class XorFiles:
    """The files of questions and passages."""

    questions: Path
    passages: Path


@dataclass(frozen=True)
class XorRetrieveData(AnsweredQuestions):
    """English passages, questions in other languages, and the annotated answers of each, which may be yes or no.

    Raises:
        ValueError: As `AnsweredQuestions`, or if no question has an answer that can be searched for.

    Example:
        >>> passages = TextCollection(["1"], ["Tokyo is the capital."], "en")
        >>> questions = TextCollection(["a", "b"], ["pääkaupunki?", "onko?"], "fi")
        >>> XorRetrieveData(passages, questions, [["Tokyo"], ["yes"]]).judged.ids
        ['a']
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._judged_rows:
            raise ValueError(f"{self.queries.source}: no question has an answer other than yes and no.")

    @cached_property
    def _judged_rows(self) -> list[int]:
        return [row for row, answers in enumerate(self.answers) if span_answers(answers)]

    @property
    def judged(self) -> TextCollection:
        """The questions that count, which are those with an answer that can be searched for."""
        return self.queries.take(self._judged_rows)

    @property
    def judged_answers(self) -> list[list[str]]:
        """The answers that are searched for, of each of the `judged` questions."""
        return [span_answers(self.answers[row]) for row in self._judged_rows]


def find_in_directory(
    path: str | os.PathLike[str], split: str, passages: str | os.PathLike[str] | None = None
) -> XorFiles:
    """The files of one split, see `XORRetrieveEvaluator.from_directory`."""
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory: expected one with {_question_pattern(split)}.")
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    questions = folder / _choose(names, [_question_pattern(split)], f"{split} questions", str(folder))
    if passages is not None:
        if not Path(passages).is_file():
            raise FileNotFoundError(f"{passages}: there is no such file of passages.")
        return XorFiles(questions, Path(passages))
    return XorFiles(questions, folder / _choose(names, ["psgs_w100.tsv", "*w100*.tsv"], "passages", str(folder)))


def find_on_hub(repository: str, split: str) -> XorFiles:
    """The files of one split in a dataset repository of the Hub."""
    from huggingface_hub import snapshot_download

    patterns = [_question_pattern(split), "*w100*.tsv"]
    wanted = [f"*{pattern}{suffix}" for pattern in patterns for suffix in ("", ".gz")]
    folder = Path(snapshot_download(repository, repo_type="dataset", allow_patterns=wanted))
    return find_in_directory(folder, split)


def load_xor_retrieve(
    files: XorFiles,
    languages: Sequence[str] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress_bar: bool = False,
) -> XorRetrieveData:
    """Load passages (memory-mapped), questions and answers, which are checked.

    Raises:
        ValueError: If a line is malformed (the message names file and line), an id occurs twice, or a language is not
            there.
    """
    questions, answers = read_questions(files.questions)
    if languages is not None:
        chosen = [languages] if isinstance(languages, str) else list(languages)
        unknown = [language for language in chosen if language not in questions.language_set()]
        if unknown or not chosen:
            raise ValueError(f"{files.questions} has no {unknown}; it has {sorted(questions.language_set())}.")
        rows = [row for row in range(len(questions)) if questions.language_of(row) in chosen]
        questions, answers = questions.take(rows), [answers[row] for row in rows]
    corpus = load_passages(
        files.passages, read_passages, "en", cache_dir=cache_dir, show_progress_bar=show_progress_bar
    )
    return XorRetrieveData(corpus, questions, answers)


def read_questions(path: str | os.PathLike[str]) -> tuple[TextCollection, list[list[str]]]:
    """Read questions and their answers: `{"id", "question", "lang", "answers": [...]}` per line.

    Raises:
        DataError: If a line lacks a field, a question is empty, or an id occurs twice.
    """
    name = os.fspath(path)
    line_of: dict[str, int] = {}
    texts, languages, answers = [], [], []
    for number, record in read_jsonl(path):
        identifier, question, language = (record.get(field) for field in ("id", "question", "lang"))
        if not isinstance(identifier, str | int) or not isinstance(question, str) or not isinstance(language, str):
            reason = 'expected {"id", "question", "lang", "answers"}'
            raise DataError(f"{reason}, got the fields {sorted(record)}", file=name, line=number)
        found = record.get("answers")
        if not isinstance(found, list) or not all(isinstance(answer, str) for answer in found):
            reason = (
                f"question {identifier!r} has no list of answers: the released test file holds questions only, "
                "evaluate on dev"
            )
            raise DataError(reason, file=name, line=number)
        if not question.strip():
            raise DataError(f"question {identifier!r} is empty", file=name, line=number)
        if str(identifier) in line_of:
            before = line_of[str(identifier)]
            raise DataError(f"id {identifier!r} occurs in line {before} too", file=name, line=number)
        line_of[str(identifier)] = number
        texts.append(question)
        languages.append(language)
        answers.append(found)
    return TextCollection(list(line_of), texts, languages, source=name), answers


def read_passages(file: Path, on_bytes_read: Callable[[int], None]) -> Iterator[Passage]:
    """Id, title and text of DPR's TSV: id, text, title, quoted as the csv module does, with a header.

    Raises:
        DataError: If a line has other columns.
    """
    last_line = 0

    def lines() -> Iterator[str]:
        nonlocal last_line
        for number, line in read_lines(file, on_bytes_read=on_bytes_read):
            last_line = number
            yield line + "\n"

    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    is_first = True
    try:
        for fields in csv.reader(lines(), delimiter="\t"):
            if len(fields) != 3:
                reason = f"expected three columns, id, text and title, got {len(fields)}: {fields[:1]}"
                raise DataError(reason, file=str(file), line=last_line)
            identifier, text, title = fields
            if not (is_first and identifier == "id"):
                yield identifier, title, text
            is_first = False
    except csv.Error as error:
        raise DataError(f"no tab-separated passage: {error}", file=str(file), line=last_line) from error


def span_answers(answers: Iterable[str]) -> list[str]:
    """The answers that can be searched for in a text, which are all but "yes", "no" and blank ones.

    Example:
        >>> span_answers(["yes", "12 May 1990", ""])
        ['12 May 1990']
    """
    return [answer for answer in answers if answer not in YES_NO and answer.strip()]


def _question_pattern(split: str) -> str:
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {_SPLITS}, got {split!r}.")
    return f"xor_{split}_retrieve_eng_span*.jsonl"


def _choose(names: Sequence[str], patterns: Sequence[str], what: str, where: str) -> str:
    """The only file that matches the first pattern that any file matches, plain or gzipped."""
    for pattern in patterns:
        found = [name for name in names if fnmatch.fnmatch(name.removesuffix(".gz"), pattern)]
        if len(found) > 1:
            raise FileNotFoundError(f"{where}: {found} could all be the {what}: leave one of them there.")
        if found:
            return found[0]
    raise FileNotFoundError(f"{where}: the {what} are missing, expected {patterns[0]}; the folder holds {names[:12]}.")
