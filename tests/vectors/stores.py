"""Small collections in real engines, each of which gets the same ten rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

VECTORS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float16).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
LANGUAGES = ["en", "fr", "en", None, "de", "en", "fr", "en", "en", "de"]
TEXTS = [f"text {i}" for i in range(10)]


def qdrant(folder: Path, *, name: str = "") -> str:
    client, models = open_qdrant(folder)
    parameters: Any = models.VectorParams(size=4, distance=models.Distance.COSINE)
    client.create_collection("docs", vectors_config={name: parameters} if name else parameters)
    for i, (vector, language) in enumerate(zip(VECTORS.tolist(), LANGUAGES, strict=True)):
        payload = {"text": TEXTS[i], "metadata": {"language": language}} | ({"language": language} if language else {})
        client.upsert("docs", [models.PointStruct(id=i, vector={name: vector} if name else vector, payload=payload)])
    client.close()
    return f"qdrant:{folder / 'qdrant'}?collection=docs"


def named_qdrant(folder: Path) -> str:
    return qdrant(folder, name="dense") + "&vector=dense"


def open_qdrant(folder: Path) -> tuple[Any, Any]:
    client = pytest.importorskip("qdrant_client")
    return client.QdrantClient(path=str(folder / "qdrant")), client.models


def chroma(folder: Path) -> str:
    client = pytest.importorskip("chromadb").PersistentClient(str(folder / "chroma"))
    collection = client.create_collection("docs", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None)
    about = [{"language": language} if language else None for language in LANGUAGES]
    names = [f"{i}" for i in range(10)]
    (folder / "chroma").mkdir(exist_ok=True)
    collection.add(ids=names, embeddings=VECTORS, documents=TEXTS, metadatas=about)
    return f"chroma:{folder / 'chroma'}?collection=docs"


def lance(folder: Path) -> str:
    database = pytest.importorskip("lancedb").connect(str(folder / "lance"))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 4)
    table = database.create_table("docs", pa.table({"vector": vectors, "language": LANGUAGES, "text": TEXTS}))
    table.add(pa.table({"vector": vectors[:0], "language": pa.array([], "string"), "text": pa.array([], "string")}))
    return f"lance:{folder / 'lance'}?table=docs"


def add_a_row(store: str, folder: Path) -> None:
    """One more row, (1, 0, 0, 0), to what the builder of that name has made."""
    vector = [1.0, 0.0, 0.0, 0.0]
    if store == "lance":
        table = pytest.importorskip("lancedb").connect(str(folder / "lance")).open_table("docs")
        table.add([{"vector": vector, "language": "en", "text": "text 10"}])
    elif store == "chroma":
        client = pytest.importorskip("chromadb").PersistentClient(str(folder / "chroma"))
        client.get_collection("docs", embedding_function=None).add(ids=["9a"], embeddings=[vector], documents=["text"])
    else:
        client, models = open_qdrant(folder)
        given: Any = {"dense": vector} if store == "named_qdrant" else vector
        client.upsert("docs", [models.PointStruct(id=10, vector=given)])
        client.close()


def faiss_flat(folder: Path, ivf: bool = False) -> str:
    import faiss

    index: Any = faiss.IndexFlatIP(4)
    if ivf:
        index = faiss.IndexIVFFlat(index, 4, 2, faiss.METRIC_INNER_PRODUCT)
        index.train(VECTORS)
    index.add(VECTORS)
    faiss.write_index(index, str(folder / "docs.faiss"))
    return str(folder / "docs.faiss")


def faiss_ivf(folder: Path) -> str:
    return faiss_flat(folder, ivf=True)


def postgres(server: str, kind: str, key: str = "bigint") -> str:
    with connected(server) as connection:
        connection.execute("DROP TABLE IF EXISTS docs")
        connection.execute(
            f"CREATE TABLE docs (key {key} PRIMARY KEY, about jsonb, lang text, text text, dense {kind})"
        )
        for i, vector in enumerate(VECTORS.tolist()):
            row = (
                UUID(int=i) if key == "uuid" else i,
                f'{{"lang": "{LANGUAGES[i]}"}}',
                LANGUAGES[i],
                TEXTS[i],
                str(vector),
            )
            connection.execute("INSERT INTO docs VALUES (%s, %s, %s, %s, %s)", row)
        ops = f"{kind.partition('(')[0]}_cosine_ops"
        if "(" in kind:
            connection.execute(f"CREATE INDEX ON docs USING hnsw (dense {ops})")
    return f"{server.replace('?', '?table=docs&column=dense&', 1)}"


@contextmanager
def connected(server: str) -> Iterator[Any]:
    with pytest.importorskip("psycopg").connect(server, autocommit=True) as connection:
        yield connection


BUILDERS: dict[str, Callable[[Path], str]] = {
    builder.__name__: builder for builder in (qdrant, named_qdrant, chroma, lance, faiss_flat, faiss_ivf)
}
POSTGRES = {
    "vector": ("vector(4)", "bigint"),
    "halfvec": ("halfvec(4)", "uuid"),
    "vector without size": ("vector", "text"),
}
