r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index

Documents are JSON lines {"language", "sentences" or "text"}, Parquet files and tables with these columns, folders in
BEIR's layout, text files (a line is a document) or Markdown files (a block is a document). The index is a folder of
NumPy arrays and JSON; the model is named in it, not copied. Interrupted? The same command continues where it stopped.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.commands import working_folder
from st_xlret.files import atomic_directory
from st_xlret.options import LIMITS_HELP, name_leading_words, option, parse

if TYPE_CHECKING:
    from st_xlret.data.lines import BadLines

UNKNOWN = "und"  # undetermined, in ISO 639
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
    column: str | None = option(None, "Column of tables (its number from 1, or its name).", expert=True)
    language: str | None = option(
        None,
        "Language of documents that do not name theirs. For a model with a map per language it is identified, if the "
        "extra langid is installed.",
    )
    skip_bad_lines: bool = option(False, "Skip and count bad lines instead of stopping at the first one.", expert=True)
    limits: list[str] = option([], LIMITS_HELP, expert=True)
    overwrite: bool = option(False, "Replace an index that is there.")
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.", minimum=1, expert=True)
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.", expert=True)

    def __post_init__(self) -> None:
        for name in ("documents", "model", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret index DOCUMENTS --model MODEL --output FOLDER")


def main(arguments: Sequence[str], *, prog: str = "st-xlret index") -> None:
    """Run the command `index`. Texts and embeddings go through the disk: a large corpus takes little memory."""
    (options,) = parse([Arguments], name_leading_words(arguments, "documents"), description=__doc__, prog=prog)
    from st_xlret.commands.search_index import check_replaceable

    target = Path(options.output).absolute()
    check_replaceable(target, options.overwrite)
    with working_folder(target.with_name(f".{target.name}.embeddings")) as work:
        _index(options, target, work)


def _index(options: Arguments, target: Path, work: Path) -> None:
    import numpy as np
    from tqdm.auto import tqdm

    from st_xlret.commands.search_index import (
        FORMAT,
        INDEX_FILE,
        TEXTS_FILE,
        VECTORS_FILE,
        Entries,
        check_replaceable,
        identifier_for,
    )
    from st_xlret.data.lines import BadLines, DataError, Limits
    from st_xlret.encoding import known_languages
    from st_xlret.evaluation.embedding_cache import EmbeddingCache, fingerprint
    from st_xlret.hub.loading import load_model

    bad_lines = BadLines(options.skip_bad_lines, Limits.parse(options.limits))
    read = read_entries(options, bad_lines)
    first = next(read, None)
    if first is None:
        raise DataError(f"{', '.join(options.documents)}: there is no text")
    model = load_model(options.model, options.device)
    found = set()
    identify = identifier_for(model)
    with open(work / TEXTS_FILE, "w", encoding="utf-8") as file:
        for language, text in tqdm(chain([first], read), desc="Reading", unit=" texts"):
            if language == UNKNOWN and identify is not None:
                language = identify(text)
            found.add(language)
            file.write(json.dumps({"language": language, "text": text}, ensure_ascii=False) + "\n")
    print("\n".join(bad_lines.losses()), end="\n" if bad_lines.losses() else "")
    entries, languages = Entries(work / TEXTS_FILE), sorted(found)
    known_languages(model, languages)  # one warning of all that the model does not know
    vectors = EmbeddingCache(work, shard_size=_SHARD).encode(
        model, entries, normalize_embeddings=True, batch_size=options.batch_size
    )
    is_local = os.path.isdir(os.path.expanduser(options.model))
    about = {
        "format": FORMAT,
        "model": os.path.abspath(os.path.expanduser(options.model)) if is_local else options.model,
        "fingerprint": fingerprint(model),
        "texts": len(entries),
        "languages": languages,
    }
    with atomic_directory(target, overwrite=options.overwrite, marker=INDEX_FILE) as folder:
        with open(folder / VECTORS_FILE, "wb") as stored:  # written, not mapped: a full disk is an error then
            header = {"descr": "<f2", "fortran_order": False, "shape": vectors.shape}
            np.lib.format.write_array_header_1_0(stored, header)
            for chunk in vectors:
                stored.write(np.ascontiguousarray(chunk, dtype="<f2").tobytes())
        shutil.copyfile(work / TEXTS_FILE, folder / TEXTS_FILE)
        (folder / INDEX_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        check_replaceable(target, options.overwrite)  # hours may have passed
    print(f"{len(entries)} texts in {', '.join(languages)}: {target}")


def read_entries(options: Arguments, bad_lines: BadLines) -> Iterator[tuple[str, str]]:
    """(language, text) of everything to index; documents without a language have "und" (undetermined)."""
    from st_xlret.data.documents import read_documents

    how: Any = {"language": options.language or UNKNOWN, "unit": options.unit, "column": options.column}
    for document in read_documents(options.documents, bad_lines=bad_lines, show_progress_bar=False, **how):
        yield from ((document.language, text) for text in document.sentences if text)
