"""The kinds of stores, in one list, which commands, pages and tests read."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from st_xlret.files import PathLike
from st_xlret.stores.address import parse_address
from st_xlret.stores.base import Store
from st_xlret.stores.fields import Fields


@dataclass(frozen=True)
class StoreKind:
    """A kind of store.

    Attributes:
        name: The scheme of its addresses, or the suffix of its files.
        module: The module of `st_xlret.stores` that has its class, loaded on first use.
        class_name: The class, which is called with an address and `Fields`.
        example: How its vectors are named, for pages.
        what: What that is, for pages.
        languages: What has the languages, for pages.
        extra: The extra of this package that has its client.
        has_fields: Whether rows have fields; of others, `languages_file` has the languages.
        is_continued: Whether a stopped `write` goes on; else it is whole or not there.
    """

    name: str
    module: str
    class_name: str
    example: str
    what: str
    languages: str
    extra: str | None = None
    has_fields: bool = True
    is_continued: bool = False


STORES = (
    StoreKind(
        name="qdrant",
        module="qdrant",
        class_name="QdrantStore",
        example="qdrant:PATH_OR_URL?collection=C&vector=V",
        what="a folder of the local mode, or a server; its key is in `QDRANT_API_KEY`",
        languages="the payload",
        extra="qdrant",
        is_continued=True,
    ),
    StoreKind(
        name="postgresql",
        module="postgres",
        class_name="PostgresStore",
        example="postgresql://USER@HOST/DATABASE?table=T&column=V",
        what="a column `vector` or `halfvec` of pgvector; the password is in `PGPASSWORD`",
        languages="a column, or JSON",
        extra="pgvector",
        is_continued=True,
    ),
    StoreKind(
        name="lance",
        module="lance",
        class_name="LanceStore",
        example="lance:PATH?table=T&column=V",
        what="a table of LanceDB",
        languages="a column",
        extra="lance",
    ),
    StoreKind(
        name="chroma",
        module="chroma",
        class_name="ChromaStore",
        example="chroma:PATH_OR_URL?collection=C",
        what="a collection of Chroma",
        languages="the metadata",
        extra="chroma",
        is_continued=True,
    ),
    StoreKind(
        name=".parquet",
        module="parquet",
        class_name="ParquetStore",
        example="vectors.parquet",
        what="a file, or a folder of files, with a column of lists",
        languages="a column",
    ),
    StoreKind(
        name=".npy",
        module="numpy_files",
        class_name="NumpyStore",
        example="vectors.npy",
        what="an array (rows, dimension)",
        languages="`--languages_file`, a code a line",
        has_fields=False,
    ),
    StoreKind(
        name=".faiss",
        module="faiss_files",
        class_name="FaissStore",
        example="vectors.faiss",
        what="a flat or IVF index",
        languages="`--languages_file`",
        has_fields=False,
    ),
)


def open_store(
    address: PathLike,
    *,
    vector_field: str | None = None,
    language_field: str | None = None,
    text_field: str | None = None,
    group_field: str | None = None,
    languages_file: PathLike | None = None,
) -> Store:
    """Open stored vectors, wherever they are. Nothing but their description is read.

    Args:
        address: A file, a folder of Parquet files, or what names vectors in a database, as the
            guide of stored vectors has it for each kind.
        vector_field: Column of the vectors in a table whose address names none. Default: `vector`.
        language_field: Field of the languages, such as `metadata.language`. Default: the first
            usual one of a row.
        text_field: Field of the texts. Rows without a language then get the one that the extra
            `langid` finds in their text. Default: `text` or `page_content`, for the texts alone.
        group_field: Field of what versions of one text have in common.
        languages_file: For `.npy` and `.faiss`: a file with a code a line, in the order of the
            vectors.
    """
    address = os.fspath(address)
    fields = Fields(
        vector=vector_field,
        language=language_field,
        text=text_field,
        group=group_field,
        languages_file=None if languages_file is None else os.fspath(languages_file),
    )
    kind = find_kind(address)
    problem = _problem_with_address(kind, fields)
    if problem or kind is None:
        shown = parse_address(address, optional=None).shown
        raise ValueError(f"{shown} {problem}")
    return store_class(kind)(address, fields)


def find_kind(address: str) -> StoreKind | None:
    """The kind of store that an address names; None if it names none."""
    kinds = {kind.name: kind for kind in STORES}
    scheme = address.partition(":")[0]
    if scheme in kinds:
        return kinds[scheme]
    path = Path(address).expanduser()
    is_elsewhere = "://" in address or ("@" in address and not path.exists())
    if is_elsewhere:
        return None
    if address.strip() and path.is_dir():
        return kinds[".parquet"]
    return kinds.get(path.suffix)


def store_class(kind: StoreKind) -> Callable[[str, Fields], Store]:
    """The class of a kind of store."""
    module = import_module(f"st_xlret.stores.{kind.module}")
    found: Callable[[str, Fields], Store] = getattr(module, kind.class_name)
    return found


def _problem_with_address(kind: StoreKind | None, fields: Fields) -> str | None:
    """What is wrong with the address and the fields that were named, in words, or None."""
    if kind is None:
        known = ", ".join(each.name for each in STORES)
        return f"names no stored vectors; known are {known}"
    if kind.has_fields:
        file = fields.languages_file
        if file is None:
            return None
        files = " and ".join(each.name for each in STORES if not each.has_fields)
        return f"has a field of languages: --languages_file {file} is for {files} files"
    for field in (fields.vector, fields.language, fields.text, fields.group):
        if field:
            return f"has no fields, and {field!r} is one: languages are in --languages_file"
    return None


def forms_in_words() -> str:
    """How vectors of each kind are named, in short, for the help of `--vectors`."""
    forms = []
    for kind in STORES:
        is_file = kind.name.startswith(".")
        forms.append(f"F{kind.name}" if is_file else f"{kind.name}:...")
    return ", ".join(forms)
