"""Small collections in files and in real engines, each of which gets the same ten rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

VECTORS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float16).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
LANGUAGES = ["en", "fr", "en", None, "de", "en", "fr", "en", "en", "de"]
TEXTS = [f"text {i}" for i in range(10)]


def table(kind: Any = None) -> pa.Table:
    vectors = pa.array(VECTORS.tolist(), pa.list_(pa.float32(), 4)).cast(
        kind or pa.list_(pa.float32(), 4)
    )
    return pa.table({"vector": vectors, "language": LANGUAGES, "text": TEXTS})


def parquet(folder: Path) -> str:
    pq.write_table(table(), folder / "docs.parquet")
    return str(folder / "docs.parquet")


def parquet_folder(folder: Path) -> str:
    (folder / "docs" / "more").mkdir(parents=True)
    pq.write_table(table(pa.list_(pa.float16()))[:6], folder / "docs" / "a.parquet")
    pq.write_table(table(pa.list_(pa.float16()))[6:], folder / "docs" / "more" / "b.parquet")
    return str(folder / "docs")


def npy(folder: Path) -> str:
    np.save(folder / "docs.npy", VECTORS.astype(np.float64))
    return str(folder / "docs.npy")


def qdrant(folder: Path, *, name: str = "") -> str:
    client, models = open_qdrant(folder)
    parameters: Any = models.VectorParams(size=4, distance=models.Distance.COSINE)
    client.create_collection("docs", vectors_config={name: parameters} if name else parameters)
    vectors: Any = {name: VECTORS.tolist()} if name else VECTORS.tolist()
    about = [
        {"text": TEXTS[i], "language": LANGUAGES[i], "metadata": {"language": LANGUAGES[i]}}
        for i in range(10)
    ]
    client.upsert("docs", models.Batch(ids=list(range(10)), vectors=vectors, payloads=about))
    client.close()
    return f"qdrant:{folder / 'qdrant'}?collection=docs"


def named_qdrant(folder: Path) -> str:
    return qdrant(folder, name="dense") + "&vector=dense"


def open_qdrant(folder: Path) -> tuple[Any, Any]:
    client = pytest.importorskip("qdrant_client")
    return client.QdrantClient(path=str(folder / "qdrant")), client.models


def chroma(folder: Path) -> str:
    client = pytest.importorskip("chromadb").PersistentClient(str(folder / "chroma"))
    collection = client.create_collection(
        "docs", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    about = [{"language": language} if language else None for language in LANGUAGES]
    collection.add(
        ids=[f"{i}" for i in range(10)], embeddings=VECTORS, documents=TEXTS, metadatas=about
    )
    return f"chroma:{folder / 'chroma'}?collection=docs"


def lance(folder: Path) -> str:
    database = pytest.importorskip("lancedb").connect(str(folder / "lance"))
    database.create_table("docs", table()[:4]).add(table()[4:])
    return f"lance:{folder / 'lance'}?table=docs"


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


def postgres(server: str, sql: Callable[..., Any], kind: str, key: str) -> str:
    sql("DROP TABLE IF EXISTS docs CASCADE")
    sql(
        f"CREATE TABLE docs (key {key} PRIMARY KEY, about jsonb, lang text, text text, dense {kind})"
    )
    for i, vector in enumerate(VECTORS.tolist()):
        name, about = UUID(int=i) if key == "uuid" else 7 * i, f'{{"lang": "{LANGUAGES[i]}"}}'
        sql(
            "INSERT INTO docs VALUES (%s, %s, %s, %s, %s)",
            (name, about, LANGUAGES[i], TEXTS[i], str(vector)),
        )
    if "(" in kind:
        sql(f"CREATE INDEX ON docs USING hnsw (dense {kind.partition('(')[0]}_cosine_ops)")
    return server.replace("?", "?table=docs&column=dense&", 1)


def beside(address: str, name: str) -> tuple[str, str]:
    """What `apply` is given to write beside the vectors of an address, and the address of what it writes."""
    if ":" not in address:
        file = str(Path(address).with_name(name + (Path(address).suffix or ".parquet")))
        return file, file
    before = next(
        part
        for part in ("vector=dense", "column=dense", "table=docs", "collection=docs")
        if part in address
    )
    return name, address.replace(before, f"{before.partition('=')[0]}={name}")


BUILDERS = [
    "parquet",
    "parquet_folder",
    "npy",
    "faiss_flat",
    "faiss_ivf",
    "qdrant",
    "named_qdrant",
    "chroma",
    "lance",
]
POSTGRES = {
    "postgresql": ("vector(4)", "bigint"),
    "halfvec": ("halfvec(4)", "uuid"),
    "untyped": ("vector", "char(3)"),
}
