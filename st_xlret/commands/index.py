r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index

Documents are JSON lines {"language", "sentences" or "text"}, text files (a line is a document), tables with --column,
or Markdown files. The index is a folder of NumPy arrays and JSON; the model is named in it, not copied. Interrupted?
The same command continues where it stopped.
"""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from st_xlret.files import atomic_directory, atomic_file
from st_xlret.options import LIMITS_HELP, name_leading_words, option, parse

UNKNOWN = "und"  # undetermined, in ISO 639
FORMATS = "only .jsonl, .txt, .md, .tsv and .csv files are indexed (or .gz)"
INDEX_FILE, TEXTS_FILE, VECTORS_FILE = "index.json", "texts.jsonl", "vectors.npy"
_SHARD = 4_096  # texts that an interrupted run has to encode again at most


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
    language: str | None = option(
        None,
        "Language of documents that do not name theirs. For a model with a map per language it is identified, if the "
        "extra langid is installed.",
    )
    skip_bad_lines: bool = option(False, "Skip bad lines of .jsonl files instead of stopping at the first one.")
    limits: list[str] = option([], LIMITS_HELP)
    overwrite: bool = option(False, "Replace an index that is there.")
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.", minimum=1)
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
    """Build an index. Texts and embeddings go through the disk, so that a large corpus takes little memory.

    Returns:
        Its folder.
    """
    import numpy as np
    from tqdm.auto import tqdm

    from st_xlret.calibration.encoding import known_languages
    from st_xlret.commands.identification import identifier_for
    from st_xlret.data.reading.jsonl import DataError
    from st_xlret.evaluation.cache import EmbeddingCache
    from st_xlret.hub.loading import load_model

    target = Path(options.output)
    if target.exists() and not (options.overwrite and is_index(target)):
        raise FileExistsError(f"--output {target} exists: use --overwrite to replace an index, or give another folder")
    read = read_entries(options)
    first = next(read, None)
    if first is None:
        raise DataError(f"{', '.join(options.documents)}: there is no text; {FORMATS}")
    model = load_model(options.model, options.device)
    work = target.with_name(f".{target.name}.embeddings")
    found = set()
    identify = identifier_for(model)
    with atomic_file(work / TEXTS_FILE) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for language, text in tqdm(chain([first], read), desc="Reading", unit=" texts"):
            if language == UNKNOWN and identify is not None:
                language = identify(text)
            found.add(language)
            file.write(json.dumps({"language": language, "text": text}, ensure_ascii=False) + "\n")
    languages = sorted(found)
    entries = Entries(work / TEXTS_FILE)
    known_languages(model, languages)  # one warning of all that the model does not know
    vectors = EmbeddingCache(work, shard_size=_SHARD).encode(
        model, entries, normalize_embeddings=True, batch_size=options.batch_size
    )
    if target.exists():
        shutil.rmtree(target)
    with atomic_directory(target) as folder:
        stored = np.lib.format.open_memmap(
            folder / VECTORS_FILE, mode="w+", dtype=np.float16, shape=(len(vectors), vectors.shape[1])
        )
        for first_row, chunk in vectors.chunks():
            stored[first_row : first_row + len(chunk)] = chunk
        stored.flush()
        shutil.copyfile(work / TEXTS_FILE, folder / TEXTS_FILE)
        about = {"model": options.model, "texts": len(entries), "languages": languages, "format": 1}
        (folder / INDEX_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(work, ignore_errors=True)
    print(f"{len(entries)} texts in {', '.join(languages)}: {target}")
    return target


class Entries:
    """The texts of an index with their languages, read from the file when they are asked for.

    Args:
        file: JSON lines {"language", "text"}.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.starts = array("q")
        with open(file, "rb") as lines:
            place = 0
            for line in lines:
                self.starts.append(place)
                place += len(line)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One text with its language."""
        with open(self.file, "rb") as lines:
            lines.seek(self.starts[row])
            entry: dict[str, Any] = json.loads(lines.readline())
            return entry

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """(number, text, language) of every text, as `EmbeddingCache` takes them."""
        with open(self.file, encoding="utf-8") as lines:
            for row, line in enumerate(lines):
                entry = json.loads(line)
                yield str(row), entry["text"], entry["language"]


def is_index(folder: Path) -> bool:
    """Whether a folder is an index."""
    return (folder / INDEX_FILE).is_file()


def read_entries(options: Arguments) -> Iterator[tuple[str, str]]:
    """(language, text) of everything to index; documents without a language have "und" (undetermined)."""
    from st_xlret.commands.texts import read_texts
    from st_xlret.data.reading.jsonl import DataError
    from st_xlret.data.reading.sources import existing_path

    language = options.language or UNKNOWN
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
    from st_xlret.data.documents.loading import LoadReport
    from st_xlret.data.documents.reading import find_documents, read_documents
    from st_xlret.data.reading.jsonl import BadLines, Limits

    bad_lines = BadLines(options.skip_bad_lines, Limits.parse(options.limits))
    for document in read_documents(find_documents([str(file)]), None, LoadReport(), bad_lines, show_progress=False):
        if options.unit == "document":
            yield document.language, " ".join(document.sentences)
        else:
            yield from ((document.language, sentence) for sentence in document.sentences)


def _text_of(file: Path) -> str:
    from st_xlret.data.reading.jsonl import read_lines

    lines: list[str] = []
    for number, line in read_lines(file):
        lines += [""] * (number - len(lines) - 1) + [line]
    return "\n".join(lines)
