r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index.parquet

Documents are read as the other commands read them. Unlike these, index reads all text files of a folder, also those
that are not named after their language, and identifies the language of each text by itself instead of that of its
document. The index is a Parquet file with the columns text, language, vector, document and source, which other programs
read as well; its metadata name the model. Interrupted? The same command continues where it stopped.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.commands import check_needed
from st_xlret.commands.calibrate import Documents
from st_xlret.files import atomic_file
from st_xlret.options import name_leading_words, option, parse

if TYPE_CHECKING:
    from st_xlret.data.reading import BadLines

_AT_A_TIME = 4_096  # texts that an interrupted run has to encode again at most


@dataclass
class Arguments(Documents):
    """What to index, by which model."""

    output: str = option(None, "File of the index, .parquet.")
    overwrite: bool = option(False, "Replace an index that is there.")
    column: str | None = option(None, "Column of tables (its number from 1, or its name).")
    language: str | None = option(None, "Language of documents that do not name theirs. By default it is identified.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret index") -> None:
    """Run the command `index`. Texts and vectors go to the disk as they are embedded: memory stays constant."""
    (options,) = parse([Arguments], name_leading_words(arguments, "documents"), description=__doc__, prog=prog)
    check_needed(options, "documents", "model", "output")
    target = Path(options.output)
    if target.suffix != ".parquet" or target.exists() and not options.overwrite:
        raise FileExistsError(f"--output {target}: name a new file, FILE.parquet, or replace an index (--overwrite)")
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter
    from tqdm.auto import tqdm

    from st_xlret.data.reading import BadLines, key_of
    from st_xlret.encoding import KeptVectors, encode, known_languages, languages_of
    from st_xlret.hub.export import load_model
    from st_xlret.stores.files import METADATA

    count, codes, bad_lines = 0, set[str](), BadLines(options.skip_bad_lines)
    work = target.with_name(f".{target.name}.embeddings")
    ours = f"PAR1(?s:.*){METADATA.decode()}"  # the name of the metadata stands at the end of the file
    with atomic_file(target, ours=ours, inputs=options.documents) as part, tqdm(desc="Indexing", unit=" texts") as bar:
        texts = _texts(options, bad_lines)
        batch = list(islice(texts, _AT_A_TIME))
        if not batch:
            raise ValueError(f"{', '.join(options.documents)}: there is no text")
        model = load_model(options.model, options.device)
        identify = identifier(set(languages_of(model).values()))
        about = _about(model, options.model)

        def embed(rows: Sequence[tuple[str, str]], shard: slice) -> Any:
            codes, texts = zip(*rows[shard], strict=True)
            how: Any = {"normalize_embeddings": True, "batch_size": options.batch_size}
            return encode(model, texts, known_languages(model, codes), role="document", **how)

        with ExitStack() as opened:
            writer: ParquetWriter | None = None
            while batch:
                rows = [(code or identify(text), text) for code, text, *_ in batch]
                kept = KeptVectors(work / key_of([about, rows]), shard_size=_AT_A_TIME)
                halves = kept.write(rows, partial(embed, rows))[:]
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(halves.ravel()), halves.shape[1])
                languages = pa.array([code or None for code, _ in rows], pa.string())
                _, _, documents, sources = zip(*batch, strict=True)
                columns = {"text": [text for _, text in rows], "language": languages, "vector": vectors}
                columns |= {"document": documents, "source": sources}
                table = pa.table(columns, metadata={METADATA: json.dumps(about)})
                writer = writer or opened.enter_context(ParquetWriter(part, table.schema))
                writer.write_table(table)
                codes |= {code or "unknown" for code, _ in rows}
                bar.update(len(rows))
                count, batch = count + len(rows), list(islice(texts, _AT_A_TIME))
    shutil.rmtree(work, ignore_errors=True)
    bad_lines.warn()
    print(f"{count} texts in {', '.join(sorted(codes))}: {target}")


def identifier(languages: Collection[str] = ()) -> Callable[[str], str]:
    """A function from a text to its language, among those of a model's maps; without any, among all that there are.

    It gives "" where the extra `langid` is not installed, or does not know one of the languages.
    """
    from st_xlret.languages import LanguageIdentifier

    with suppress(ImportError, ValueError):
        known = LanguageIdentifier(sorted(languages) or None)
        if not (languages and known.unknown):
            return known.identify
    return lambda text: ""


def _about(model: Any, name: str) -> dict[str, Any]:
    """What an index says of its vectors, for `search`."""
    from st_xlret.encoding import PROMPT_NAMES, fingerprint, role_prompt

    path = os.path.expanduser(name)
    return {
        "model": os.path.abspath(path) if os.path.isdir(path) else name,
        "fingerprint": fingerprint(model),
        "metric": "cosine",
        "prompts": {role: role_prompt(model, role) for role in PROMPT_NAMES},
    }


def _texts(options: Arguments, bad_lines: BadLines) -> Iterator[tuple[str, str, str, str]]:
    """(language, text, document, file) of everything to index; the language is empty where nobody names it."""
    from st_xlret.data import read_documents
    from st_xlret.languages import UNKNOWN

    how: Any = {"language": options.language or UNKNOWN, "unit": options.unit, "column": options.column}
    for document in read_documents(options.documents, bad_lines=bad_lines, **how):
        language = "" if document.language == UNKNOWN else document.language
        yield from ((language, text, document.name, document.file) for text in document.sentences if text)
