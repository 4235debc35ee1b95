"""Reading Mr.TyDi, in the layouts of the official release and of the Hugging Face Hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from st_xlret.data.reading.jsonl import DataError, read_jsonl, read_lines
from st_xlret.data.retrieval.beir import read_qrels
from st_xlret.data.retrieval.json_lines import MR_TYDI_LANGUAGES
from st_xlret.evaluation.readers.passage_table import Passage, load_passages
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection

HUB_QUERIES, HUB_CORPUS = "castorini/mr-tydi", "castorini/mr-tydi-corpus"

_CORPUS_FILES = ("collection/docs.jsonl.gz", "collection/docs.jsonl", "corpus.jsonl.gz", "corpus.jsonl")
_SPLITS = ("train", "dev", "test")

Find = Callable[[str, str], "Path | None"]


@dataclass(frozen=True)
class MrTyDiFiles:
    """The files of one language.

    Attributes:
        corpus: The passages.
        queries: The questions.
        qrels: The judgements; the same file as the questions if those name their passages.
    """

    corpus: Path
    queries: Path
    qrels: Path


def find_in_directory(
    path: str | os.PathLike[str], languages: Sequence[str] | None, split: str
) -> dict[str, MrTyDiFiles]:
    """Language to its files, see `MrTyDiEvaluator.from_directory`."""
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no directory: expected one with folders such as {_folder('sw')}.")
    if root.name in map(_folder, MR_TYDI_LANGUAGES):  # the folder of one language
        root = root.parent
        languages = [Path(path).name.rpartition("-")[2]] if languages is None else languages
    places = [root, root / Path(HUB_QUERIES).name, root / Path(HUB_CORPUS).name]
    if languages is None:
        languages = [code for code in MR_TYDI_LANGUAGES if any((place / _folder(code)).is_dir() for place in places)]
        if not languages:
            there = sorted(entry.name for entry in root.iterdir())[:12]
            raise FileNotFoundError(f"expected folders such as {root / _folder('sw')}; the folder holds {there}.")

    def find(_: str, name: str) -> Path | None:
        return next((place / name for place in places if (place / name).is_file()), None)

    return _find_all(languages, split, find, str(root))


def find_on_hub(languages: Sequence[str] | None, split: str) -> dict[str, MrTyDiFiles]:
    """Language to its files in the cache of the Hub; missing files are downloaded."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def find(repository: str, name: str) -> Path | None:
        try:
            return Path(hf_hub_download(repository, name, repo_type="dataset"))
        except (LocalEntryNotFoundError, EntryNotFoundError):
            return None  # another of the layouts may be there, or in the cache

    return _find_all(list(MR_TYDI_LANGUAGES) if languages is None else languages, split, find, "the Hugging Face Hub")


def load_mr_tydi(
    files: MrTyDiFiles,
    language: str,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress_bar: bool = False,
) -> RetrievalData:
    """Load one language: passages (memory-mapped), questions and judgements, which are checked.

    Raises:
        ValueError: If a line is malformed (the message names file and line), an id occurs twice, or a judgement names
            an unknown question or passage.
    """
    corpus = load_passages(
        files.corpus, read_passages, language, cache_dir=cache_dir, show_progress_bar=show_progress_bar
    )
    if files.qrels == files.queries:
        queries, qrels = read_questions(files.queries, language)
    else:
        queries, qrels = read_topics(files.queries, language), read_qrels(files.qrels)
    return RetrievalData(corpus, queries, qrels, str(files.qrels))


def read_passages(file: Path, on_bytes_read: Callable[[int], None]) -> Iterator[Passage]:
    r"""Id, title and text of `{"id", "contents": "title\n\ntext"}` or `{"docid", "title", "text"}`.

    Raises:
        DataError: If a line has neither form.
    """
    for number, record in read_jsonl(file, on_bytes_read=on_bytes_read):
        if "contents" in record:
            contents = record["contents"]
            identifier, title, text = record.get("id"), "", contents
            if isinstance(contents, str) and "\n\n" in contents:
                title, _, text = contents.partition("\n\n")
        else:
            identifier, title, text = record.get("docid"), record.get("title", ""), record.get("text")
        if not (isinstance(identifier, str) and isinstance(title, str) and isinstance(text, str)):
            reason = 'expected {"id", "contents"} or {"docid", "title", "text"}, all strings'
            raise DataError(f"{reason}, got the fields {sorted(record)}", file=str(file), line=number)
        yield identifier, title, text


def read_topics(path: str | os.PathLike[str], language: str) -> TextCollection:
    r"""Questions, one `id <tab> question` a line, plain or gzip: the topics of Mr.TyDi and of MIRACL.

    Raises:
        DataError: If a line has another form, a question is empty, or an id stood before.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "topic.test.tsv")
        >>> _ = file.write_text("7\tDodoma ni nini?\n", encoding="utf-8")
        >>> read_topics(file, "sw").texts
        ['Dodoma ni nini?']
    """
    name = os.fspath(path)
    questions: dict[str, str] = {}
    for number, line in read_lines(path):
        identifier, _, question = (part.strip() for part in line.partition("\t"))
        if "\t" not in line or not identifier:
            raise DataError(f"expected 'id <tab> question', got {line[:80]!r}", file=name, line=number)
        _add_question(questions, identifier, question, name, number)
    return TextCollection(list(questions), list(questions.values()), language, source=name)


def read_questions(path: str | os.PathLike[str], language: str) -> tuple[TextCollection, dict[str, dict[str, int]]]:
    """Questions and judgements of the Hub's `{"query_id", "query", "positive_passages": [{"docid"}]}`.

    Raises:
        DataError: If a line has another form, a question is empty, or an id stood before.
    """
    name = os.fspath(path)
    questions: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for number, record in read_jsonl(path):
        identifier, question = record.get("query_id"), record.get("query")
        passages = record.get("positive_passages")
        known = isinstance(passages, list) and all(isinstance(each, dict) and "docid" in each for each in passages)
        if not (isinstance(identifier, str) and isinstance(question, str) and known):
            reason = 'expected {"query_id", "query", "positive_passages": [{"docid", ...}]}'
            raise DataError(f"{reason}, got the fields {sorted(record)}", file=name, line=number)
        _add_question(questions, identifier, question.strip(), name, number)
        qrels[identifier] = {str(passage["docid"]): 1 for passage in passages or []}
    return TextCollection(list(questions), list(questions.values()), language, source=name), qrels


def _add_question(questions: dict[str, str], identifier: str, question: str, file: str, line: int) -> None:
    if not question:
        raise DataError(f"question {identifier!r} is empty", file=file, line=line)
    if identifier in questions:
        raise DataError(f"question id {identifier!r} occurs in an earlier line too", file=file, line=line)
    questions[identifier] = question


def _folder(language: str) -> str:
    return f"mrtydi-v1.1-{MR_TYDI_LANGUAGES[language]}"


def _question_files(split: str) -> list[tuple[str, str]]:
    """The files of questions and judgements in each of the layouts."""
    layouts = [(f"topic.{split}.tsv", f"qrels.{split}.txt")]
    layouts.append((f"ir-format-data/topics.{split}.txt", f"ir-format-data/qrels.{split}.txt"))
    zipped = [(f"{questions}.gz", f"{qrels}.gz") for questions, qrels in layouts]
    return [*layouts, *zipped, (f"{split}.jsonl.gz",) * 2, (f"{split}.jsonl",) * 2]


def _find_all(languages: Sequence[str], split: str, find: Find, where: str) -> dict[str, MrTyDiFiles]:
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {_SPLITS}, got {split!r}.")
    return {code: _find_language(code, split, find, where) for code in _codes(languages)}


def _codes(languages: Sequence[str]) -> list[str]:
    code_of = {name: code for code, full in MR_TYDI_LANGUAGES.items() for name in (code, full)}
    chosen = [languages] if isinstance(languages, str) else list(languages)
    unknown = [language for language in chosen if language not in code_of]
    if unknown or not chosen:
        raise ValueError(f"Mr.TyDi has no {unknown}; it has {list(MR_TYDI_LANGUAGES)}.")
    return list(dict.fromkeys(code_of[language] for language in chosen))


def _find_language(code: str, split: str, find: Find, where: str) -> MrTyDiFiles:
    folder = _folder(code)
    corpus = next(filter(None, (find(HUB_CORPUS, f"{folder}/{name}") for name in _CORPUS_FILES)), None)
    if corpus is None:
        raise FileNotFoundError(
            f"{where}: the passages of {MR_TYDI_LANGUAGES[code]} are missing, expected {folder}/{_CORPUS_FILES[0]} "
            f"(the official release) or {folder}/{_CORPUS_FILES[2]} (the Hub's {HUB_CORPUS})."
        )
    for questions, qrels in _question_files(split):
        found = find(HUB_QUERIES, f"{folder}/{questions}"), find(HUB_QUERIES, f"{folder}/{qrels}")
        if found[0] is not None and found[1] is not None:
            return MrTyDiFiles(corpus, found[0], found[1])
        if found[0] is not None or found[1] is not None:
            missing = questions if found[0] is None else qrels
            raise FileNotFoundError(
                f"{where}: {folder}/{missing} is missing: questions and judgements belong together."
            )
    raise FileNotFoundError(
        f"{where}: the {split} questions of {MR_TYDI_LANGUAGES[code]} are missing, expected {folder}/topic.{split}.tsv "
        f"and {folder}/qrels.{split}.txt (the official release), or {folder}/ir-format-data/topics.{split}.txt and "
        f"qrels.{split}.txt, or {folder}/{split}.jsonl.gz (the Hub's {HUB_QUERIES})."
    )
