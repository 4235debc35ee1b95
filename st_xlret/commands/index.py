r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index

Documents are JSON lines {"language", "sentences" or "text"}, text files (a line is a document), tables with --column,
or Markdown files. The index is a folder of NumPy arrays and JSON; the model is named in it, not copied. Interrupted?
The same command continues where it stopped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from st_xlret.calibration.encoding import known_languages
from st_xlret.commands.texts import read_texts
from st_xlret.data.documents.loading import LoadReport
from st_xlret.data.documents.reading import find_documents, read_documents
from st_xlret.data.reading.jsonl import BadLines, DataError, read_lines
from st_xlret.data.reading.sources import existing_path
from st_xlret.evaluation.cache import EmbeddingCache
from st_xlret.files import atomic_directory
from st_xlret.hub.loading import load_model
from st_xlret.options import name_leading_words, option, parse

FORMATS = "only .jsonl, .txt, .md, .tsv and .csv files are indexed (or .gz)"
INDEX_FILE, TEXTS_FILE, VECTORS_FILE = "index.json", "texts.jsonl", "vectors.npy"


@dataclass
class Arguments:
    """What to index, by which model."""

    documents: list[str] = option([], "Files, or folders of them.")
    model: str = option(None, "The encoder: a folder or a name on the Hub.")
    output: str = option(None, "Folder of the index.")
    unit: str = option(
        "sentence", "What is found: each sentence of a document, or the document.", ["sentence", "document"]
    )
    column: str | None = option(None, "Column of tables (its number from 1, or its name).")
    language: str | None = option(None, "Language of documents that do not name theirs.")
    skip_bad_lines: bool = option(False, "Skip bad lines of .jsonl files instead of stopping at the first one.")
    overwrite: bool = option(False, "Replace an index that is there.")
    batch_size: int = option(64, "Texts in a forward pass.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        for name in ("documents", "model", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret index DOCUMENTS --model MODEL --output FOLDER")


def main(arguments: Sequence[str], *, prog: str = "st-xlret index") -> None:
    """Run the command `index`."""
    given = name_leading_words(arguments, "documents")
    (options,) = parse([Arguments], given, description=__doc__, prog=prog)
    index(options)


def index(options: Arguments) -> Path:
    """Build an index.

    Returns:
        Its folder.
    """
    target = Path(options.output)
    if target.exists() and not (options.overwrite and is_index(target)):
        raise FileExistsError(f"--output {target} exists: use --overwrite to replace an index, or give another folder")
    entries = list(read_entries(options))
    if not entries:
        raise DataError(f"{', '.join(options.documents)}: there is no text; {FORMATS}")
    model = load_model(options.model, options.device)
    cache = target.with_name(f".{target.name}.embeddings")
    known_languages(model, [language for language, _ in entries])  # one warning of all that the model does not know
    texts = [(str(row), text, language) for row, (language, text) in enumerate(entries)]
    vectors = EmbeddingCache(cache).encode(model, texts, normalize_embeddings=True, batch_size=options.batch_size)
    if target.exists():
        _remove(target)
    with atomic_directory(target) as folder:
        np.save(folder / VECTORS_FILE, vectors[:], allow_pickle=False)
        with open(folder / TEXTS_FILE, "w", encoding="utf-8") as file:
            for language, text in entries:
                file.write(json.dumps({"language": language, "text": text}, ensure_ascii=False) + "\n")
        languages = sorted({language for language, _ in entries})
        about = {"model": options.model, "texts": len(entries), "languages": languages, "format": 1}
        (folder / INDEX_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    _remove(cache)
    print(f"{len(entries)} texts in {', '.join(languages)}: {target}")
    return target


def is_index(folder: Path) -> bool:
    """Whether a folder is an index."""
    return (folder / INDEX_FILE).is_file()


def read_entries(options: Arguments) -> Iterator[tuple[str, str]]:
    """(language, text) of everything to index; documents without a language have "und" (undetermined)."""
    language = options.language or "und"
    for source in options.documents:
        path = existing_path(source)
        found = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in found:
            kind = file.name.removesuffix(".gz").rpartition(".")[2].lower()
            if kind == "jsonl":
                yield from _of_documents(file, options)
            elif kind == "md":
                text = _text_of(file)
                yield from ((language, part.strip()) for part in text.split("\n\n") if part.strip())
            elif kind in ("txt", "tsv", "csv"):
                yield from ((language, text) for text in read_texts(str(file), options.column))
            elif file == path:
                raise DataError(FORMATS, file=str(file))


def _of_documents(file: Path, options: Arguments) -> Iterator[tuple[str, str]]:
    bad_lines = BadLines(skip=options.skip_bad_lines)
    for document in read_documents(find_documents([str(file)]), None, LoadReport(), bad_lines, show_progress=False):
        if options.unit == "document":
            yield document.language, " ".join(document.sentences)
        else:
            yield from ((document.language, sentence) for sentence in document.sentences)


def _text_of(file: Path) -> str:
    lines: list[str] = []
    for number, line in read_lines(file):
        lines += [""] * (number - len(lines) - 1) + [line]
    return "\n".join(lines)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
