"""Which store an address names."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from st_xlret.vectors.address import parse_address
from st_xlret.vectors.base import Fields, VectorSource

_SCHEMES = {
    "qdrant": ("qdrant", "QdrantVectors"),
    "postgresql": ("postgresql", "PostgresVectors"),
    "lance": ("lance", "LanceVectors"),
    "chroma": ("chroma", "ChromaVectors"),
}
_SUFFIXES = {
    ".npy": ("numpy_file", "NumpyVectors"),
    ".parquet": ("parquet", "ParquetVectors"),
    ".faiss": ("faiss_file", "FaissVectors"),
}


def open_vectors(
    source: str | os.PathLike[str],
    *,
    vector_field: str | None = None,
    language_field: str | None = None,
    text_field: str | None = None,
    document_field: str | None = None,
    languages_file: str | os.PathLike[str] | None = None,
) -> VectorSource:
    r"""Open stored vectors, wherever they are.

    | source | what it is | extra |
    | --- | --- | --- |
    | `vectors.npy` | an array (rows, dimension); languages in a file | |
    | `vectors.parquet` | a file, or a folder of files, with a column of vectors | |
    | `vectors.faiss` | a flat or IVF index; languages in a file | |
    | `qdrant:PATH_OR_URL?collection=C&vector=V` | a folder of its local mode, or a server; the key is `QDRANT_API_KEY` | `qdrant` |
    | `postgresql://USER@HOST/DATABASE?table=T&column=V` | a column `vector` or `halfvec` of pgvector | `pgvector` |
    | `lance:PATH?table=T&column=V` | a table of LanceDB | `lance` |
    | `chroma:PATH_OR_URL?collection=C` | a collection of Chroma | `chroma` |

    Args:
        source: A path or an address.
        vector_field: Column of the vectors in Parquet and LanceDB. Default: `vector`.
        language_field: Field of the languages, in a payload also `metadata.language`. Default: `language` or `lang`.
        text_field: Field of the texts. Rows without a language then get the one that the extra `langid` finds in their
            text. Default: `text`, for the texts alone.
        document_field: Field of the document that a row is from, by which chunks of one document are known.
        languages_file: For `.npy` and `.faiss`: a file with a code a line, in the order of the vectors.

    Returns:
        The source. Nothing but its description has been read.

    Raises:
        ValueError: If nothing known is named, or the store does not have what is named.
        ImportError: If the client of the store is not installed; the message names the extra.
        OSError: If the store does not answer, or the file is not there.

    Example:
        >>> import numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/vectors.npy", np.ones((3, 2), np.float16))
        ...     _ = Path(f"{folder}/codes.txt").write_text("en\nen\nfr\n")
        ...     source = open_vectors(f"{folder}/vectors.npy", languages_file=f"{folder}/codes.txt")
        ...     len(source), source.dimension, {code: len(found) for code, found in source.sample(100).items()}
        (3, 2, {'en': 2, 'fr': 1})
    """  # noqa: E501
    address = os.fspath(source)
    scheme, colon, rest = address.partition(":")
    path = Path(address)
    if colon and scheme in _SCHEMES:
        module, name = _SCHEMES[scheme]
    elif path.is_dir() and any(path.rglob("*.parquet")):
        module, name = _SUFFIXES[".parquet"]
    elif path.suffix in _SUFFIXES and ("@" not in address or path.exists()) and "://" not in address:
        module, name = _SUFFIXES[path.suffix]
    else:
        known = ", ".join([*_SUFFIXES, *(f"{known}:..." for known in _SCHEMES)])
        raise ValueError(f"{parse_address(address, optional=None).shown} names no stored vectors; known are {known}")
    file = None if languages_file is None else os.fspath(languages_file)
    if file is not None and module not in ("numpy_file", "faiss_file"):
        raise ValueError(
            f"--languages_file {file} is for .npy and .faiss files; elsewhere languages are in a field of the store"
        )
    if document_field is not None and module in ("numpy_file", "faiss_file"):
        raise ValueError(f"{address} has no fields, so no --document_field {document_field}: keep chunks in Parquet")
    fields = Fields(vector_field, language_field, text_field, document_field, file)
    opened: VectorSource = getattr(import_module(f"st_xlret.vectors.{module}"), name)(address, fields)
    return opened
