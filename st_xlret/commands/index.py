r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index.parquet

Documents are read as the other commands read them, and also text files that are not named after their language: the
language of each text is identified. The index is a Parquet file with the columns text, language, vector, document and
source; its metadata name the model. Interrupted? The same command continues where it stopped.
"""

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from st_xlret.commands import check_options
from st_xlret.commands.calibrate import EncoderArguments
from st_xlret.files import atomic_file
from st_xlret.options import name_leading_words, option, parse

_AT_A_TIME = 4_096  # texts that an interrupted run has to encode again at most


@dataclass
class Arguments(EncoderArguments):
    """What to index, by which model."""

    output: str = option(None, "File of the index, .parquet.")
    overwrite: bool = option(False, "Replace an index that is there.")
    column: str | None = option(None, "Column of tables (its number from 1, or its name).")
    language: str | None = option(
        None, "Language of documents that do not name theirs. By default it is identified."
    )


def main(arguments: Sequence[str], *, prog: str = "st-xlret index") -> None:
    """Run the command `index`. Texts and vectors go to the disk as they are embedded: memory stays constant."""
    (options,) = parse(
        [Arguments], name_leading_words(arguments, "documents"), description=__doc__, prog=prog
    )
    check_options(options, "documents", "model", "output")
    target = Path(options.output)
    if target.suffix != ".parquet" or target.exists() and not options.overwrite:
        raise FileExistsError(
            f"--output {target}: name a new file, FILE.parquet, or replace an index (--overwrite)"
        )
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter
    from tqdm.auto import tqdm

    from st_xlret import encoding
    from st_xlret.data import read_documents
    from st_xlret.data.reading import BadLines, cache_key
    from st_xlret.hub.export import load_model
    from st_xlret.languages import UNKNOWN, language_identifier_or_none
    from st_xlret.stores.parquet import METADATA

    count, codes, bad_lines = 0, set[str](), BadLines(options.skip_bad_lines)
    work = target.with_name(f".{target.name}.embeddings")
    with (
        atomic_file(target, ours="index", inputs=options.documents) as part,
        tqdm(desc="Indexing", unit=" texts") as bar,
        ExitStack() as opened,
    ):
        reading: Any = {
            "language": options.language or UNKNOWN,
            "unit": options.unit,
            "column": options.column,
        }
        documents = read_documents(options.documents, bad_lines=bad_lines, **reading)
        texts = ((document, text) for document in documents for text in document.sentences if text)
        batch = list(islice(texts, _AT_A_TIME))
        if not batch:
            raise ValueError(f"{', '.join(options.documents)}: there is no text")
        model, path = load_model(options.model, options.device), os.path.expanduser(options.model)
        identifier = language_identifier_or_none(set(encoding.task_languages(model).values()))
        identify = identifier.identify if identifier else lambda text: ""
        is_cosine = model.similarity_fn_name != "dot"
        metadata = {
            "model": os.path.abspath(path) if os.path.isdir(path) else options.model,
            "fingerprint": encoding.fingerprint(model),
            "metric": "cosine" if is_cosine else "dot",
            "prompts": {role: encoding.role_prompt(model, role) for role in encoding.PROMPT_NAMES},
        }

        def embed_shard(rows: Sequence[tuple[str, str]], shard: slice) -> Any:
            languages, texts = zip(*rows[shard], strict=True)
            settings: Any = {
                "normalize_embeddings": is_cosine,
                "batch_size": options.batch_size,
                "role": "document",
            }
            return encoding.encode(
                model, texts, encoding.known_languages(model, languages), **settings
            )

        writer: ParquetWriter | None = None
        while batch:
            rows = [
                (identify(text) if each.language == UNKNOWN else each.language, text)
                for each, text in batch
            ]
            kept = encoding.KeptVectors(work / cache_key([metadata, rows]), shard_size=_AT_A_TIME)
            halves = kept.write(rows, partial(embed_shard, rows))[:]
            columns = {
                "text": [text for _, text in rows],
                "language": pa.array([code or None for code, _ in rows], pa.string()),
                "vector": pa.FixedSizeListArray.from_arrays(
                    pa.array(halves.ravel()), halves.shape[1]
                ),
                "document": [document.name for document, _ in batch],
                "source": [document.file for document, _ in batch],
            }
            table = pa.table(columns, metadata={METADATA: json.dumps(metadata)})
            writer = writer or opened.enter_context(ParquetWriter(part, table.schema))
            writer.write_table(table)
            codes |= {code or "unknown" for code, _ in rows}
            bar.update(len(rows))
            count, batch = count + len(rows), list(islice(texts, _AT_A_TIME))
    shutil.rmtree(work, ignore_errors=True)
    bad_lines.warn()
    print(f"{count} texts in {', '.join(sorted(codes))}: {target}")
