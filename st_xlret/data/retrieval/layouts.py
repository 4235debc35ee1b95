"""Which layout a source of questions and passages has, and its reader."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl
from st_xlret.data.reading.sources import Sources, existing_path, first_record, require_content
from st_xlret.data.reading.text import clean_text
from st_xlret.data.retrieval.beir import find_beir, is_beir, read_beir
from st_xlret.data.retrieval.examples import Example
from st_xlret.data.retrieval.json_files import first_character, read_dpr, read_squad
from st_xlret.data.retrieval.json_lines import language_of_record, read_mr_tydi, read_rows
from st_xlret.data.retrieval.mentions import read_mewsli_x_pairs
from st_xlret.data.retrieval.ms_marco import read_ms_marco

BEIR, DPR, SQUAD, MS_MARCO = "beir", "dpr", "squad", "ms_marco"
MR_TYDI, MEWSLI_X, ROWS = "mr_tydi", "mewsli_x", "rows"

_XOR_QUESTIONS = "xor_*.jsonl*"


class RetrievalSource(NamedTuple):
    """A file or folder of one layout.

    Attributes:
        path: The file or folder.
        layout: One of the constants of this module.
        language: The language that the user named as PATH=LANGUAGE, if any.
        split: Which judgements to use of a BEIR folder.
    """

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
        if self.layout not in (DPR, SQUAD):
            return []
        return sorted(path for path in self.path.parent.glob(_XOR_QUESTIONS) if path.is_file())

    @property
    def has_negatives(self) -> bool:
        """Whether the examples have hard negatives."""
        if self.layout == ROWS:
            return not {"negative", "negatives"}.isdisjoint(first_record(self.path) or {})
        return self.layout in (DPR, MS_MARCO, MR_TYDI)

    def read(
        self, bad_lines: BadLines, *, sentences: bool, titles: bool, language: str, show_progress: bool
    ) -> Iterator[Example]:
        """Stream the examples, see [`load_retrieval`][st_xlret.load_retrieval]."""
        named = self.language or language
        texts: dict[str, Any] = {"sentences": sentences, "titles": titles, "language": named}
        if self.layout == BEIR:
            yield from read_beir(self.path, self.split, **texts, bad_lines=bad_lines, show_progress=show_progress)
            return
        readers: dict[str, Callable[..., Iterator[Example]]] = {
            MS_MARCO: read_ms_marco,
            MR_TYDI: partial(read_mr_tydi, titles=titles, language=self.language),
            MEWSLI_X: read_mewsli_x_pairs,
            ROWS: partial(read_rows, language=self.language),
        }
        if self.layout in (DPR, SQUAD):
            languages = question_languages(self.xor_questions)
            reader = read_dpr if self.layout == DPR else read_squad
            # XOR-TyDi's passages are English, whatever the language of the questions.
            texts["language"] = "en" if languages else named
            readers[self.layout] = partial(reader, **texts, question_languages=languages)
        opened = Sources([str(self.path)]).opened(
            readers[self.layout], bad_lines, show_progress=show_progress, description=f"Reading {self.path.name}"
        )
        for _, examples in opened:
            for example in examples:
                yield example._replace(language=example.language or named)


def find_retrieval(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], split: str = "train"
) -> list[RetrievalSource]:
    """The sources of retrieval data that a `sources` argument names.

    Args:
        sources: As for [`load_retrieval`][st_xlret.load_retrieval].
        split: Which judgements to use of a BEIR folder, and which files of a folder of Mr.TyDi.

    Raises:
        DataError: If there is no source, or one does not exist or has an unknown layout.
    """
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    found = [source for path in paths for source in _sources_in(path, split)]
    if not found:
        raise DataError("no sources given; pass files or folders of questions with passages")
    return found


def layout_of(path: str | os.PathLike[str]) -> str:
    """Tell the layout of a file, or of a folder in BEIR's layout.

    Raises:
        DataError: If it has none of the layouts that are read.
    """
    name = Path(path).name.removesuffix(".gz").removesuffix(".xz")
    if is_beir(path):
        return BEIR
    require_content(existing_path(path))
    if name.endswith(".tsv") and Path(path).is_file():
        return MS_MARCO
    if name.endswith(".json") and Path(path).is_file():
        first = first_character(path)
        if first in ("[", "{"):
            return DPR if first == "[" else SQUAD
    if name.endswith(".jsonl") and Path(path).is_file():
        record = first_record(path) or {}
        layouts = {"positive_passages": MR_TYDI, "contextual_mention": MEWSLI_X, "positive": ROWS}
        if layout := next((layout for field, layout in layouts.items() if field in record), None):
            return layout
        if fnmatch.fnmatch(Path(path).name, _XOR_QUESTIONS):
            raise DataError(
                f"{os.fspath(path)!r} has questions and answers without passages: give XOR-TyDi's training data in "
                "DPR's layout (dpr_train_data.json) or its gold paragraphs in SQuAD's, with this file beside them"
            )
    raise DataError(
        f"{os.fspath(path)!r} is in none of the layouts of retrieval data: a folder with corpus.jsonl (BEIR) or with "
        "train.jsonl.gz (Mr.TyDi), a .json file with a list (DPR) or an object (SQuAD), a .tsv file of triplets (MS "
        "MARCO), or a .jsonl file with 'positive_passages' (Mr.TyDi), 'contextual_mention' (Mewsli-X) or 'query' and "
        "'positive'"
    )


def question_languages(files: Sequence[Path]) -> Mapping[str, str]:
    """Question -> its language, from XOR-TyDi's files `{"question", "lang", "answers"}`."""
    languages: dict[str, str] = {}
    for file in files:
        for number, record in read_jsonl(file):
            try:
                code = language_of_record(record, None)
                question = clean_text(record.get("question"))
            except ValueError as error:
                raise DataError(str(error), file=str(file), line=number) from None
            if code is not None:
                languages[question] = code
    return languages


def _sources_in(path: str | os.PathLike[str], split: str) -> list[RetrievalSource]:
    language = None
    if not os.path.exists(os.path.expanduser(path)) and "=" in os.fspath(path):
        path, _, code = os.fspath(path).rpartition("=")
        language = check_language(code, where=f"{path}={code}")
    found = existing_path(path)
    if found.is_dir() and not is_beir(found):
        names = (f"{split}.jsonl", f"{split}.jsonl.gz")
        if files := sorted(file for name in names for file in found.rglob(name) if layout_of(file) == MR_TYDI):
            return [RetrievalSource(file, MR_TYDI, language, split) for file in files]
    return [RetrievalSource(found, layout_of(path), language, split)]
