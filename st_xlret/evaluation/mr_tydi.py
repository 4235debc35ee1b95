"""Mr.TyDi: retrieval of Wikipedia passages in the language of the question, in 11 languages."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import Self

from st_xlret.data.beir import read_qrels
from st_xlret.data.reading import (
    PathLike,
    cache_key,
    cached_table,
    find_file,
    read_jsonl,
    read_lines,
)
from st_xlret.evaluation.base import chosen_names, name_file_in_errors
from st_xlret.evaluation.retrieval import (
    TEXT_COLUMNS,
    RetrievalData,
    RetrievalEvaluator,
    texts_table,
)

HUB_QUERIES, HUB_CORPUS = "castorini/mr-tydi", "castorini/mr-tydi-corpus"
LANGUAGES = {
    **{
        "ar": "arabic",
        "bn": "bengali",
        "en": "english",
        "fi": "finnish",
        "id": "indonesian",
        "ja": "japanese",
    },
    **{"ko": "korean", "ru": "russian", "sw": "swahili", "te": "telugu", "th": "thai"},
}
"""Code to the name in the folders of the release."""


class MrTyDiEvaluator(RetrievalEvaluator):
    """MRR@100 (primary) and Recall@100 on Mr.TyDi v1.1, per language and averaged over the languages.

    The benchmark is by Zhang et al. (2021), [arXiv:2108.08787](https://arxiv.org/abs/2108.08787), and reported by CCP,
    MSM and the paper of the language contrastive loss. Each of the 11 languages has its own Wikipedia as the pool, from
    137 000 passages in Swahili to 33 million in English, for which `keep_vectors` is needed. A passage is encoded as
    title and text. The folder is that of the official release or of the Hub, whose `castorini/mr-tydi-corpus` and
    `castorini/mr-tydi` may be merged into one folder or be side by side in it.

    Options of reading: `split`, and `cache_dir` (folder for the passages as memory-mapped columns; default: the data
    cache).
    """

    benchmark = "mrtydi"
    metrics = published_metrics = ("mrr_at_100", "recall_at_100")
    layout = "folders such as mrtydi-v1.1-swahili, each with collection/docs.jsonl.gz, topic.test.tsv, qrels.test.txt"
    splits = ("test", "dev", "train")
    languages_in_all = 11
    is_on_hub = True
    task = "retrieval of passages that answer a question, in its language (Mr.TyDi v1.1)"
    direction = "question to passages in the same language"

    @classmethod
    def from_files(
        cls, folder: Any, languages: Sequence[str] | None, *, split: str = "test", **options: Any
    ) -> Self:
        """The evaluator of a pool per language: all files are found now, and each is read when its pool is scored."""
        if folder is None:
            from huggingface_hub import snapshot_download

            names = chosen_names(languages, LANGUAGES, "Mr.TyDi")
            wanted: Any = {
                "repo_type": "dataset",
                "allow_patterns": [f"{_folder_name(name)}/*" for name in names],
            }
            roots = [
                Path(snapshot_download(repository, **wanted))
                for repository in (HUB_CORPUS, HUB_QUERIES)
            ]
        elif folder.name in map(_folder_name, LANGUAGES):
            roots, names = (
                [folder.parent],
                [code for code in LANGUAGES if _folder_name(code) == folder.name],
            )
        else:
            roots = [folder, folder / Path(HUB_QUERIES).name, folder / Path(HUB_CORPUS).name]
            there = [
                code
                for code in LANGUAGES
                if any((root / _folder_name(code)).is_dir() for root in roots)
            ]
            names = chosen_names(languages, there, f"{folder} (Mr.TyDi)")
        files = {
            name: _find_pool_files([root / _folder_name(name) for root in roots], split)
            for name in names
        }
        cache_dir = options.pop("cache_dir", None)
        pools = {
            code: partial(_load_pool, code, *of_code, cache_dir) for code, of_code in files.items()
        }
        average = (
            f"mean over the languages evaluated; the papers' is over all {cls.languages_in_all}"
        )
        return cls(
            pools, split=split, notes={"passage": "title and text", "average": average}, **options
        )


def _folder_name(language: str) -> str:
    return f"mrtydi-v1.1-{LANGUAGES[language]}"


def _find_pool_files(folders: Sequence[Path], split: str) -> tuple[Path, Path, Path]:
    """Passages, questions and judgements, which the Hub has in one file with the questions."""

    def first_file(*names: str) -> Path:
        files = (
            folder / f"{name}{ending}"
            for folder in folders
            for name in names
            for ending in ("", ".gz")
        )
        return next((file for file in files if file.is_file()), None) or find_file(
            folders[0], *names
        )

    questions = first_file(
        f"topic.{split}.tsv", f"ir-format-data/topics.{split}.txt", f"{split}.jsonl"
    )
    is_joined = questions.name.startswith(f"{split}.jsonl")
    qrels = (
        questions
        if is_joined
        else first_file(f"qrels.{split}.txt", f"ir-format-data/qrels.{split}.txt")
    )
    return first_file("collection/docs.jsonl", "corpus.jsonl"), questions, qrels


def _load_pool(
    language: str, passages: Path, questions: Path, qrels: Path, cache: PathLike | None
) -> RetrievalData:
    """The pool of a language: questions are `id <tab> question` lines, or the Hub's records with positive passages."""
    key = cache_key(["mr_tydi", language], [passages])
    corpus = cached_table(
        f"passages-{key}", TEXT_COLUMNS, _read_passages(passages, language), cache_dir=cache
    )
    rows: list[tuple[str, str, str, str]] = []
    if questions != qrels:
        for number, line in read_lines(questions):
            with name_file_in_errors(questions, number):
                name, question = line.split("\t")
            rows.append((name.strip(), "", question.strip(), language))
        return RetrievalData(corpus, texts_table(rows), read_qrels(qrels), str(qrels))
    judgements: dict[str, dict[str, int]] = {}
    for number, record in read_jsonl(questions):
        with name_file_in_errors(questions, number):
            judgements[record["query_id"]] = {
                str(passage["docid"]): 1 for passage in record["positive_passages"]
            }
            rows.append((record["query_id"], "", record["query"].strip(), language))
    return RetrievalData(corpus, texts_table(rows), judgements, str(qrels))


def _read_passages(file: Path, language: str) -> Iterator[tuple[str, str, str, str]]:
    r"""Rows of `{"id", "contents": "title\n\ntext"}` or `{"docid", "title", "text"}`."""
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            if "contents" in record:
                title, separator, text = record["contents"].partition("\n\n")
                row = record["id"], title if separator else "", text if separator else title
            else:
                row = record["docid"], record.get("title", ""), record["text"]
            _ = row[0] + row[1] + row[2]  # a TypeError unless all are strings
        yield *row, language
