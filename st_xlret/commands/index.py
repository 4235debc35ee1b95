r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index.parquet

Documents are JSON lines {"language", "sentences" or "text"}, Parquet files and tables with these columns, folders in
BEIR's layout, text files (a line is a paragraph, a blank line ends a document) or Markdown files (a block is a
document), as in the other commands. Unlike these, index reads all text files of a folder, also those that are not named
after their language, and identifies the language of each text by itself instead of that of its document. The index is a
Parquet file with the columns text, language and vector, which other programs read as well; its metadata name the model.
Interrupted? The same command continues where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.commands import working_folder
from st_xlret.files import atomic_file, check_output_file
from st_xlret.options import name_leading_words, option, parse

if TYPE_CHECKING:
    from st_xlret.data.lines import BadLines

_AT_A_TIME = 4_096  # texts that an interrupted run has to encode again at most


@dataclass
class Arguments:
    """What to index, by which model."""

    documents: list[str] = option([], "Files, or folders of them.")
    model: str = option(None, "The encoder: a folder or a name on the Hub.")
    output: str = option(None, "File of the index, .parquet.")
    unit: str | None = option(
        None,
        "What is found: sentences, texts as they stand (a line, an element of a list), or documents. By default "
        "documents of a folder in BEIR's layout, and sentences of other sources.",
        ["sentence", "text", "document"],
    )
    column: str | None = option(None, "Column of tables (its number from 1, or its name).")
    language: str | None = option(
        None,
        "Language of documents that do not name theirs. Without it, it is identified, if the "
        "extra langid is installed.",
    )
    skip_bad_lines: bool = option(False, "Skip and count bad lines instead of stopping at the first one.")
    limits: list[str] = option([], "Longest line and sentence, as line_bytes=67108864 sentence_characters=10000.")
    overwrite: bool = option(False, "Replace an index that is there.")
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        for name in ("documents", "model", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret index DOCUMENTS --model MODEL --output FILE.parquet")
        if not self.output.endswith(".parquet"):
            raise ValueError(f"--output {self.output}: the index is one file; name it FILE.parquet")


def main(arguments: Sequence[str], *, prog: str = "st-xlret index") -> None:
    """Run the command `index`. Texts and vectors go to the disk as they are embedded: memory stays constant."""
    (options,) = parse([Arguments], name_leading_words(arguments, "documents"), description=__doc__, prog=prog)
    target = check_output_file(options.output)
    _check_free(target, options.overwrite)
    with working_folder(target.with_name(f".{target.name}.embeddings")) as work:
        _index(options, target, work)


def _index(options: Arguments, target: Path, work: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter
    from tqdm.auto import tqdm

    from st_xlret.data.lines import BadLines, DataError, Limits
    from st_xlret.encoding import encode, languages_of
    from st_xlret.evaluation.embedding_cache import EmbeddingCache, fingerprint
    from st_xlret.hub.loading import load_model
    from st_xlret.languages import LanguageIdentifier
    from st_xlret.prompts import role_prompt
    from st_xlret.stores.parquet import METADATA

    bad_lines = BadLines(options.skip_bad_lines, Limits.parse(options.limits))
    entries = read_entries(options, bad_lines)
    rows = list(islice(entries, _AT_A_TIME))
    if not rows:
        raise DataError(f"{', '.join(options.documents)}: there is no text")
    model = load_model(options.model, options.device)
    identify = identifier_for(model)
    if not languages_of(model):
        with suppress(ImportError):
            identify = LanguageIdentifier().identify
    is_local = os.path.isdir(os.path.expanduser(options.model))
    about = {
        "model": os.path.abspath(os.path.expanduser(options.model)) if is_local else options.model,
        "fingerprint": fingerprint(model),
        "metric": "cosine",
        "prompts": {"query": role_prompt(model, "query"), "document": role_prompt(model, "document")},
    }
    cache, languages = EmbeddingCache(work, shard_size=_AT_A_TIME, show_progress_bar=False), set[str]()

    def embed(texts: Sequence[str], codes: Sequence[str]) -> Any:
        how: Any = {"normalize_embeddings": True, "batch_size": options.batch_size}
        return encode(model, texts, codes, role="document", **how)

    writer, count = None, 0
    with atomic_file(target) as temporary, tqdm(desc="Indexing", unit=" texts") as bar:
        try:
            while rows:
                codes = [code or (identify(text) if identify else "") for code, text in rows]
                texts = [text for _, text in rows]
                halves = cache.embed(zip(texts, codes, strict=True), embed, identity=about)[:]
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(halves.ravel()), halves.shape[1])
                columns = {"text": texts, "language": pa.array([code or None for code in codes], pa.string())}
                table = pa.table({**columns, "vector": vectors}, metadata={METADATA: json.dumps(about)})
                writer = writer or ParquetWriter(temporary, table.schema)
                writer.write_table(table)
                languages |= {code or "unknown" for code in codes}
                bar.update(len(rows))
                count, rows = count + len(rows), list(islice(entries, _AT_A_TIME))
        finally:
            if writer is not None:
                writer.close()
        _check_free(target, options.overwrite)  # hours may have passed
    print("\n".join([*bad_lines.losses(), f"{count} texts in {', '.join(sorted(languages))}: {target}"]))


def _check_free(target: Path, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists: use --overwrite to replace it, or name another file")


def identifier_for(model: Any) -> Callable[[str], str] | None:
    """A function from a text to its language, among those that a model has maps of its own for.

    Args:
        model: Any Sentence Transformer.

    Returns:
        The function. None if the model needs no language, has one that the identifier does not know, or the extra
            `langid` is not installed: texts are then taken to be in the default language of the model, with a warning.
    """
    from st_xlret.encoding import languages_of
    from st_xlret.languages import LanguageIdentifier

    languages = list(dict.fromkeys(languages_of(model).values()))
    if not languages:
        return None
    try:
        identifier = LanguageIdentifier(languages)
    except (ImportError, ValueError):
        return None
    return None if identifier.unknown else identifier.identify


def read_entries(options: Arguments, bad_lines: BadLines) -> Iterator[tuple[str, str]]:
    """(language, text) of everything to index; the language is empty where nobody names it."""
    from st_xlret.data.documents import read_documents
    from st_xlret.languages import UNKNOWN

    how: Any = {"language": options.language or UNKNOWN, "unit": options.unit, "column": options.column}
    for document in read_documents(options.documents, bad_lines=bad_lines, show_progress_bar=False, **how):
        language = "" if document.language == UNKNOWN else document.language
        yield from ((language, text) for text in document.sentences if text)
