"""Mr.TyDi: retrieval of Wikipedia passages in the language of the question, in 11 languages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_xlret.data.beir import BEIRFiles, read_qrels
from st_xlret.data.lines import DataError, read_jsonl, read_lines
from st_xlret.data.question_formats import MR_TYDI_LANGUAGES
from st_xlret.evaluation.passages import Passage, load_passages
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.retrieval_data import Columns, RetrievalData, TextCollection, listing

HUB_QUERIES, HUB_CORPUS = "castorini/mr-tydi", "castorini/mr-tydi-corpus"

_CORPUS_FILES = ("collection/docs.jsonl.gz", "collection/docs.jsonl", "corpus.jsonl.gz", "corpus.jsonl")

Find = Callable[[str, str], "Path | None"]


class MrTyDiEvaluator(RetrievalEvaluator):
    """MRR@100 (primary) and Recall@100 on Mr.TyDi v1.1, per language and averaged over the languages.

    The benchmark is by Zhang et al. (2021), [arXiv:2108.08787](https://arxiv.org/abs/2108.08787), and reported by CCP,
    MSM and the paper of the language contrastive loss. Each of the 11 languages has its own Wikipedia as the pool, from
    137 000 passages in Swahili to 33 million in English. Every question with a judgement counts. A passage is encoded
    as title and text. The large languages need a cache of the embeddings: `embed_corpus=EmbeddingCache(folder)`; the
    passages are memory-mapped, one language at a time. The arguments are those of `RetrievalEvaluator`; each pool is a
    language.

    The folder holds `mrtydi-v1.1-<language>` of the official release, with `collection/docs.jsonl.gz`,
    `topic.<split>.tsv` and `qrels.<split>.txt` in each, or of the Hub, whose `castorini/mr-tydi-corpus` and
    `castorini/mr-tydi` may be merged into one folder or be side by side in it. Languages are codes (`sw`) or names
    (`swahili`).

    Options of reading: `split` (`"test"`, `"dev"` or `"train"`), and `cache_dir` (folder for the passages as
    memory-mapped columns; default: the data cache).
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
    def read(
        cls,
        folder: Path | None,
        languages: list[str] | None,
        *,
        split: str = "test",
        cache_dir: str | os.PathLike[str] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """A function per language that loads its pool."""
        files = find_on_hub(languages, split) if folder is None else find_in_directory(folder, languages, split)
        pools = {code: partial(load_mr_tydi, of_code, code, cache_dir=cache_dir) for code, of_code in files.items()}
        return {"pools": pools, "split": split}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        average = f"mean over the languages evaluated; the papers' is over all {len(MR_TYDI_LANGUAGES)}"
        return {**super().protocol(model), "passage": "title and text", "average": average}


def find_in_directory(root: Path, languages: Sequence[str] | None, split: str) -> dict[str, BEIRFiles]:
    """Language to its files, see `MrTyDiEvaluator`."""
    if root.name in map(_folder, MR_TYDI_LANGUAGES):  # the folder of one language
        languages = [root.name.rpartition("-")[2]] if languages is None else languages
        root = root.parent
    places = [root, root / Path(HUB_QUERIES).name, root / Path(HUB_CORPUS).name]
    if languages is None:
        languages = [code for code in MR_TYDI_LANGUAGES if any((place / _folder(code)).is_dir() for place in places)]
        if not languages:
            raise FileNotFoundError(
                f"expected folders such as {root / _folder('sw')}; the folder holds {listing(root)}."
            )

    def find(_: str, name: str) -> Path | None:
        return next((place / name for place in places if (place / name).is_file()), None)

    return _find_all(languages, split, find, str(root))


def find_on_hub(languages: Sequence[str] | None, split: str) -> dict[str, BEIRFiles]:
    """Language to its files in the cache of the Hub; missing files are downloaded."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    def find(repository: str, name: str) -> Path | None:
        try:
            return Path(hf_hub_download(repository, name, repo_type="dataset"))
        except (LocalEntryNotFoundError, EntryNotFoundError):
            return None  # another of the layouts may be there, or in the cache

    return _find_all(list(MR_TYDI_LANGUAGES) if languages is None else languages, split, find, "the Hugging Face Hub")


def load_mr_tydi(files: BEIRFiles, language: str, *, cache_dir: str | os.PathLike[str] | None = None) -> RetrievalData:
    """Load one language: passages (memory-mapped), questions and judgements, which are checked."""
    corpus = load_passages(files.corpus, read_passages, language, cache_dir=cache_dir)
    if files.qrels == files.queries:
        queries, qrels = read_questions(files.queries, language)
    else:
        queries, qrels = read_topics(files.queries, language), read_qrels(files.qrels)
    return RetrievalData(corpus, queries, qrels, str(files.qrels))


def read_passages(file: Path) -> Iterator[Passage]:
    r"""Id, title and text of `{"id", "contents": "title\n\ntext"}` or `{"docid", "title", "text"}`."""
    for number, record in read_jsonl(file):
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
    r"""Questions, one `id <tab> question` a line, plain or gzip: the topics of Mr.TyDi and of MIRACL."""
    columns = Columns(os.fspath(path))
    for number, line in read_lines(path):
        identifier, _, question = (part.strip() for part in line.partition("\t"))
        if "\t" not in line or not identifier or not question:
            raise DataError(f"expected 'id <tab> question', got {line[:80]!r}", file=columns.source, line=number)
        columns.add(identifier, question, language, number)
    return columns.collection()


def read_questions(path: str | os.PathLike[str], language: str) -> tuple[TextCollection, dict[str, dict[str, int]]]:
    """Questions and judgements of the Hub's `{"query_id", "query", "positive_passages": [{"docid"}]}`."""
    columns = Columns(os.fspath(path))
    qrels: dict[str, dict[str, int]] = {}
    for number, record in read_jsonl(path):
        identifier, question = record.get("query_id"), record.get("query")
        passages = record.get("positive_passages")
        known = isinstance(passages, list) and all(isinstance(each, dict) and "docid" in each for each in passages)
        if not (isinstance(identifier, str) and isinstance(question, str) and question.strip() and known):
            reason = 'expected {"query_id", "query", "positive_passages": [{"docid", ...}]}'
            raise DataError(f"{reason}, got the fields {sorted(record)}", file=columns.source, line=number)
        columns.add(identifier, question.strip(), language, number)
        qrels[identifier] = {str(passage["docid"]): 1 for passage in passages or []}
    return columns.collection(), qrels


def _folder(language: str) -> str:
    return f"mrtydi-v1.1-{MR_TYDI_LANGUAGES[language]}"


def _find_all(languages: Sequence[str], split: str, find: Find, where: str) -> dict[str, BEIRFiles]:
    code_of = {name: code for code, full in MR_TYDI_LANGUAGES.items() for name in (code, full)}
    unknown = [language for language in languages if language not in code_of]
    if unknown or not languages:
        raise ValueError(f"Mr.TyDi has no {unknown}; it has {list(MR_TYDI_LANGUAGES)}.")
    codes = dict.fromkeys(map(code_of.__getitem__, languages))
    return {code: _find_language(code, split, find, where) for code in codes}


def _find_language(code: str, split: str, find: Find, where: str) -> BEIRFiles:
    folder, language = _folder(code), MR_TYDI_LANGUAGES[code]
    corpus = next(filter(None, (find(HUB_CORPUS, f"{folder}/{name}") for name in _CORPUS_FILES)), None)
    if corpus is None:
        raise FileNotFoundError(
            f"{where}: the passages of {language} are missing, expected {folder}/{_CORPUS_FILES[0]} (the official "
            f"release) or {folder}/{_CORPUS_FILES[2]} (the Hub's {HUB_CORPUS})."
        )
    release = f"topic.{split}.tsv", f"qrels.{split}.txt"
    of_the_hub = f"ir-format-data/topics.{split}.txt", f"ir-format-data/qrels.{split}.txt"
    for questions, qrels in (release, of_the_hub, (f"{split}.jsonl",) * 2):
        for ending in ("", ".gz"):
            found = [find(HUB_QUERIES, f"{folder}/{name}{ending}") for name in (questions, qrels)]
            if found[0] is not None and found[1] is not None:
                return BEIRFiles(corpus, found[0], found[1])
            if found != [None, None]:
                missing = questions if found[0] is None else qrels
                raise FileNotFoundError(
                    f"{where}: {folder}/{missing}{ending} is missing: questions and judgements belong together."
                )
    raise FileNotFoundError(
        f"{where}: the {split} questions of {language} are missing, expected {folder}/{release[0]} and "
        f"{folder}/{release[1]} (the official release), {of_the_hub[0]} and {of_the_hub[1]}, or {split}.jsonl.gz (the "
        f"Hub's {HUB_QUERIES})."
    )
