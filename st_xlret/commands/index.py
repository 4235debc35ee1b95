r"""Index documents of many languages, to search them with `st-xlret search`.

    st-xlret index documents/ --model runs/calibrated --output runs/index.parquet

Documents are read as the other commands read them, and also text files that are not named after
their language: the language of each text is identified. The index is a Parquet file with the
columns text, language, vector, document and source; its metadata name the model. Interrupted? The
same command continues where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from st_xlret.commands.sources import TextArguments
from st_xlret.commands.work import TEXTS_AT_ONCE, WorkFolder
from st_xlret.files import atomic_file
from st_xlret.languages import UNKNOWN, language_identifier_or_none
from st_xlret.options import check_options, name_leading_words, option, parse
from st_xlret.ranges import check_range

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyarrow.parquet import ParquetWriter

    from st_xlret.data.documents import Unit
    from st_xlret.data.reading import BadLines
    from st_xlret.stores.parquet import VectorsMetadata


@dataclass
class Arguments(TextArguments):
    """What to index, by which model."""

    output: str = option(None, "File of the index, .parquet.")
    overwrite: bool = option(False, "Replace an index that is there.")
    column: str | None = option(None, "Column of tables (its number from 1, or its name).")
    language: str | None = option(
        None, "Language of documents that do not name theirs. By default it is identified."
    )


class _Text(NamedTuple):
    """A text of a document, with the id and the file of that."""

    text: str
    language: str
    document: str
    file: str


def main(arguments: Sequence[str], *, prog: str = "st-xlret index") -> None:
    """Run the command `index`.

    Texts and vectors go to the disk as they are embedded: memory stays constant.
    """
    words = name_leading_words(arguments, "documents")
    (options,) = parse([Arguments], words, description=__doc__, prog=prog)
    check_options(options, "documents", "model", "output")
    check_range(1, batch_size=options.batch_size)
    target = Path(options.output)
    is_kept = target.exists() and not options.overwrite
    if target.suffix != ".parquet" or is_kept:
        raise FileExistsError(
            f"--output {target}: name a new file, FILE.parquet, or replace an index (--overwrite)"
        )
    from tqdm.auto import tqdm

    from st_xlret.data.reading import BadLines

    bad_lines = BadLines(options.skip_bad_lines)
    work = WorkFolder(target)
    with (
        atomic_file(target, ours="index", inputs=options.documents) as part,
        tqdm(desc="Indexing", unit=" texts") as bar,
    ):
        batches = _batches_of_texts(options, bad_lines)
        first = next(batches, None)  # before the encoder is loaded
        if first is None:
            raise ValueError(f"{', '.join(options.documents)}: there is no text")
        with closing(_Index(part, options, work)) as index:
            for batch in chain([first], batches):
                index.add(batch)
                bar.update(len(batch))
    work.remove()
    bad_lines.warn()
    print(f"{index.count} texts in {', '.join(sorted(index.languages))}: {target}")


def _batches_of_texts(options: Arguments, bad_lines: BadLines) -> Iterator[list[_Text]]:
    """The texts to embed, so many at once as a stopped run may lose.

    A batch is the key of its vectors in the work folder: the next run has to cut the same ones.
    """
    texts = _texts_of_documents(options, bad_lines)
    while True:
        batch = list(islice(texts, TEXTS_AT_ONCE))
        if not batch:
            return
        yield batch


def _texts_of_documents(options: Arguments, bad_lines: BadLines) -> Iterator[_Text]:
    """The texts to embed, in their order; one without a label is in `UNKNOWN`."""
    from st_xlret.data import read_documents

    documents = read_documents(
        options.documents,
        language=options.language or UNKNOWN,
        unit=cast("Unit | None", options.unit),  # one of its choices
        column=options.column,
        bad_lines=bad_lines,
    )
    for document in documents:
        for text in document.sentences:
            if text:
                yield _Text(text, document.language, document.id, document.file)


class _Index:
    """The file of an index while it is written.

    Attributes:
        count: How many texts it has.
        languages: In which languages they are.
    """

    def __init__(self, file: Path, options: Arguments, work: WorkFolder) -> None:
        from st_xlret.encoding import task_languages, warn_of_other_prompts

        self.count = 0
        self.languages: set[str] = set()
        self._file = file
        self._options = options
        self._model = options.load_model()
        warn_of_other_prompts(self._model, ["document"])
        self._work = work
        self._identifier = language_identifier_or_none(set(task_languages(self._model).values()))
        self._metadata = self._describe_model()
        self._writer: ParquetWriter | None = None

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()

    def add(self, batch: Sequence[_Text]) -> None:
        """Embed some texts and write them as a row group; the file is opened with the first ones.

        Those that a stopped run has embedded are read back. The columns have names that stores know
        (`USUAL_FIELDS`), and in every batch the same types.
        """
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        from st_xlret.stores.parquet import METADATA

        rows = [(self._language_of(each), each.text) for each in batch]
        vectors = self._embed(rows)
        columns = {
            "text": [each.text for each in batch],
            "language": pa.array([code for code, _ in rows], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.ravel()), vectors.shape[1]
            ),
            "document": [each.document for each in batch],
            "source": [each.file for each in batch],
        }
        table = pa.table(columns, metadata={METADATA: json.dumps(self._metadata)})
        if self._writer is None:
            self._writer = ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)
        self.languages.update(code or "unknown" for code, _ in rows)
        self.count += len(rows)

    def _language_of(self, text: _Text) -> str | None:
        """The language of a text: its own, else what is identified; None without an identifier."""
        if text.language != UNKNOWN:
            return text.language
        return None if self._identifier is None else self._identifier.identify(text.text)

    def _embed(self, rows: Sequence[tuple[str | None, str]]) -> NDArray[np.float16]:
        """Vectors of languages and texts in float16, (n, d), kept in the work folder."""
        from st_xlret.encoding import encode, known_languages

        def embed_shard(shard: slice) -> Any:
            languages = [code for code, _ in rows[shard]]
            texts = [text for _, text in rows[shard]]
            return encode(
                self._model,
                texts,
                known_languages(self._model, languages),
                role="document",
                normalize_embeddings=self._metadata["metric"] == "cosine",
                batch_size=self._options.batch_size,
            )

        return self._work.keep_vectors([self._metadata, rows], rows, embed_shard)[:]

    def _describe_model(self) -> VectorsMetadata:
        """What a search has to know of the encoder, for the metadata of the index.

        It is also a part of the key of kept vectors: what differs is embedded again.
        """
        from st_xlret.encoding import PROMPT_NAMES, fingerprint, role_prompt
        from st_xlret.stores.descriptions import metric_of

        name = self._options.model or ""
        folder = os.path.expanduser(name)
        return {
            "model": os.path.abspath(folder) if os.path.isdir(folder) else name,
            "fingerprint": fingerprint(self._model),
            "metric": metric_of(self._model.similarity_fn_name, name) or "cosine",
            "prompts": {role: role_prompt(self._model, role) for role in PROMPT_NAMES},
        }
