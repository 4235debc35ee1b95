"""Mr.TyDi: retrieval of Wikipedia passages in the language of the question, in 11 languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from typing_extensions import Self

from st_xlret.data.beir import Qrels, read_qrels
from st_xlret.data.kept import cache_key, cached_table
from st_xlret.data.reading import parse_entries, read_jsonl, read_lines
from st_xlret.data.sources import find_file
from st_xlret.evaluation.base import chosen_names, name_file_in_errors
from st_xlret.evaluation.pools import TEXT_COLUMNS, RetrievalData, TextRow, text_row, texts_table
from st_xlret.evaluation.retrieval import RETRIEVAL_OPTIONS, RetrievalEvaluator
from st_xlret.files import PathLike
from st_xlret.folders import PACKED

_HUB_QUERIES = "castorini/mr-tydi"
_HUB_CORPUS = "castorini/mr-tydi-corpus"
_LANGUAGES = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ja": "japanese",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
    "th": "thai",
}
"""Code to the name in the folders of the release."""


class MrTyDiEvaluator(RetrievalEvaluator):
    """MRR@100 (primary) and Recall@100 on Mr.TyDi v1.1, per language and averaged over them.

    The benchmark is by Zhang et al. (2021), [arXiv:2108.08787](https://arxiv.org/abs/2108.08787),
    and reported by CCP, MSM and the paper of the language contrastive loss. Each of the 11
    languages has its own Wikipedia as the pool, from 137 000 passages in Swahili to 33 million in
    English, for which `keep_vectors` is needed. A passage is encoded as title and text. The folder
    is that of the official release or of the Hub, whose `castorini/mr-tydi-corpus` and
    `castorini/mr-tydi` may be merged into one folder or be side by side in it.

    Options of reading: `split`, and `cache_dir` (folder for the passages as memory-mapped columns;
    default: the data cache).
    """

    benchmark = "mrtydi"
    title = "MrTyDi"
    question_languages = tuple(_LANGUAGES)
    reference = "https://arxiv.org/abs/2108.08787"
    license = "apache-2.0"
    metrics = ("mrr_at_100", "recall_at_100")
    published_metrics = metrics
    layout = (
        "folders such as mrtydi-v1.1-swahili, each with collection/docs.jsonl.gz, topic.test.tsv, "
        "qrels.test.txt"
    )
    splits = ("test", "dev", "train")
    options = RETRIEVAL_OPTIONS
    languages_in_all = 11
    is_on_hub = True
    task = "retrieval of passages that answer a question, in its language (Mr.TyDi v1.1)"
    direction = "question to passages in the same language"

    @classmethod
    def from_files(
        cls,
        folder: Any,
        languages: Sequence[str] | None,
        *,
        split: str = "test",
        cache_dir: PathLike | None = None,
        **options: Any,
    ) -> Self:
        """The evaluator of a pool per language.

        All files are found now, and each is read when its pool is scored.
        """
        if folder is None:
            names = chosen_names(languages, _LANGUAGES, "Mr.TyDi")
            roots = _download_folders(names)
        else:
            there = [code for code in _LANGUAGES if _folder_name(code) == folder.name]
            roots = [folder.parent]
            if not there:  # it is no folder of one language
                roots = [folder, folder / Path(_HUB_QUERIES).name, folder / Path(_HUB_CORPUS).name]
                there = [code for code in _LANGUAGES if _has_folder_in_any(roots, code)]
            names = chosen_names(languages, there, f"{folder} (Mr.TyDi)")
        pools = {}
        for code in names:
            folders = [root / _folder_name(code) for root in roots]
            pools[code] = partial(
                _load_pool, code, _PoolFiles.of_folders(folders, split), cache_dir
            )
        whole = f"the papers' is over all {cls.languages_in_all}"
        notes = {
            "passage": "title and text",
            "average": f"mean over the languages evaluated; {whole}",
        }
        return cls(pools, split=split, notes=notes, **options)


def _folder_name(language: str) -> str:
    """The folder of a language in the release, and in both data sets of the Hub."""
    return f"mrtydi-v1.1-{_LANGUAGES[language]}"


def _has_folder_in_any(roots: Sequence[Path], language: str) -> bool:
    """Whether one of the folders has the folder of a language."""
    return any((root / _folder_name(language)).is_dir() for root in roots)


def _download_folders(languages: Sequence[str]) -> list[Path]:
    """The folders of the corpus and of the queries in the cache of the Hub, in this order."""
    from huggingface_hub import snapshot_download

    patterns = [f"{_folder_name(code)}/*" for code in languages]
    roots = []
    for repository in (_HUB_CORPUS, _HUB_QUERIES):
        root = snapshot_download(repository, repo_type="dataset", allow_patterns=patterns)
        roots.append(Path(root))
    return roots


@dataclass(frozen=True)
class _PoolFiles:
    """The files of a language; the Hub may have the judgements in the file of the questions."""

    passages: Path
    questions: Path
    qrels: Path

    @classmethod
    def of_folders(cls, folders: Sequence[Path], split: str) -> _PoolFiles:
        """Find them in the first of some folders that has each."""
        joined = f"{split}.jsonl"
        topics = (f"topic.{split}.tsv", f"ir-format-data/topics.{split}.txt")
        questions = _first_file(folders, *topics, joined)
        if questions.name.startswith(joined):
            qrels = questions
        else:
            qrels = _first_file(folders, f"qrels.{split}.txt", f"ir-format-data/qrels.{split}.txt")
        passages = _first_file(folders, "collection/docs.jsonl", "corpus.jsonl")
        return cls(passages, questions, qrels)


def _first_file(folders: Sequence[Path], *names: str) -> Path:
    """The first of these files that is in one of the folders, plain or compressed."""
    for folder in folders:
        for name in names:
            for ending in ("", *PACKED):
                file = folder / f"{name}{ending}"
                if file.is_file():
                    return file
    return find_file(folders[0], *names)  # which says what is missing


def _load_pool(language: str, files: _PoolFiles, cache: PathLike | None) -> RetrievalData:
    """The pool of a language."""
    key = cache_key(["mr_tydi", language], [files.passages])
    parse_passage = partial(_passage_row, language=language)
    passages = parse_entries(read_jsonl(files.passages), parse_passage, files.passages)
    corpus = cached_table(f"passages-{key}", TEXT_COLUMNS, passages, cache_dir=cache)
    if files.questions == files.qrels:
        queries, judgements = _read_judged_questions(files.questions, language)
    else:
        parse_question = partial(_question_row, language=language)
        rows = parse_entries(read_lines(files.questions), parse_question, files.questions)
        queries = texts_table(rows)
        judgements = read_qrels(files.qrels)
    return RetrievalData(corpus, queries, judgements, str(files.qrels))


def _question_row(line: str, language: str) -> TextRow:
    """The row of `id <tab> question`."""
    name, question = line.split("\t")
    return TextRow(name.strip(), "", question.strip(), language)


def _read_judged_questions(file: Path, language: str) -> tuple[Dataset, Qrels]:
    """The Hub's records of questions with the passages that are right."""
    rows = []
    judgements = {}
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            name = record["query_id"]
            right = [str(passage["docid"]) for passage in record["positive_passages"]]
            judgements[name] = dict.fromkeys(right, 1)
            rows.append(text_row(name, "", record["query"].strip(), language))
    return texts_table(rows), judgements


def _passage_row(record: Mapping[str, Any], language: str) -> TextRow:
    r"""The row of `{"id", "contents": "title\n\ntext"}` or `{"docid", "title", "text"}`."""
    if "contents" not in record:
        return text_row(record["docid"], record.get("title", ""), record["text"], language)
    title, separator, text = record["contents"].partition("\n\n")
    if not separator:
        text = title
        title = ""
    return text_row(record["id"], title, text, language)
