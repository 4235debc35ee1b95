"""Small collections in files and in real engines, each of which gets the same ten rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret.stores.registry import STORES, StoreKind

VECTORS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float16).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
LANGUAGES = ["en", "fr", "en", None, "de", "en", "fr", "en", "en", "de"]
TEXTS = [f"text {i}" for i in range(10)]
NEW = np.float32([0.5, -0.5, 0.5, 0.5])
CHANGED = np.stack([NEW, np.zeros(4, np.float32)])
GetFixture = Callable[[str], Any]


def table(kind: Any = None) -> pa.Table:
    usual = pa.list_(pa.float32(), 4)
    vectors = pa.array(VECTORS.tolist(), usual).cast(kind or usual)
    return pa.table({"vector": vectors, "language": LANGUAGES, "text": TEXTS})


def parquet(folder: Path) -> str:
    pq.write_table(table(), folder / "docs.parquet")
    return str(folder / "docs.parquet")


def parquet_folder(folder: Path) -> str:
    rows = table(pa.list_(pa.float16()))
    (folder / "docs" / "more").mkdir(parents=True)
    pq.write_table(rows[:6], folder / "docs" / "a.parquet")
    pq.write_table(rows[6:], folder / "docs" / "more" / "b.parquet")
    return str(folder / "docs")


def npy(folder: Path) -> str:
    np.save(folder / "docs.npy", VECTORS.astype(np.float64))
    return str(folder / "docs.npy")


def qdrant(folder: Path, *, name: str = "") -> str:
    client, models = open_qdrant(folder)
    parameters = models.VectorParams(size=4, distance=models.Distance.COSINE)
    vectors = VECTORS.tolist()
    if name:
        client.create_collection("docs", vectors_config={name: parameters})
        vectors = {name: vectors}
    else:
        client.create_collection("docs", vectors_config=parameters)
    payloads = []
    for text, code in zip(TEXTS, LANGUAGES, strict=True):
        payloads.append({"text": text, "language": code, "metadata": {"language": code}})
    client.upsert("docs", models.Batch(ids=list(range(10)), vectors=vectors, payloads=payloads))
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
    ids = [str(i) for i in range(10)]
    about = [{"language": code} if code else None for code in LANGUAGES]
    collection.add(ids=ids, embeddings=VECTORS, documents=TEXTS, metadatas=about)
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
    columns = f"key {key} PRIMARY KEY, about jsonb, lang text, text text, dense {kind}"
    sql("DROP TABLE IF EXISTS docs CASCADE")
    sql(f"CREATE TABLE docs ({columns})")
    for i, vector in enumerate(VECTORS.tolist()):
        name = UUID(int=i) if key == "uuid" else 7 * i
        about = f'{{"lang": "{LANGUAGES[i]}"}}'
        row = (name, about, LANGUAGES[i], TEXTS[i], str(vector))
        sql("INSERT INTO docs VALUES (%s, %s, %s, %s, %s)", row)
    if "(" in kind:
        sql(f"CREATE INDEX ON docs USING hnsw (dense {kind.partition('(')[0]}_cosine_ops)")
    return server.replace("?", "?table=docs&column=dense&", 1)


@dataclass(frozen=True)
class Maker:
    """Makes a store of the ten rows.

    Attributes:
        kind: Its kind, in `STORES`.
        make: From what gives fixtures by name to the address.
        metric: That it says.
        part: The part of its address that names the vectors; None for files.
        change: Gives the first row of what was made the vector `NEW`, and the second one zeros,
            which cannot be mapped; needed for kinds that are continued.
    """

    kind: str
    make: Callable[[GetFixture], str]
    metric: str | None = None
    part: str | None = None
    change: Callable[[GetFixture], None] | None = None


def change_qdrant(fixture: GetFixture, name: str = "") -> None:
    client, models = open_qdrant(fixture("tmp_path"))
    for row, vector in enumerate(CHANGED):
        values: Any = {name: vector.tolist()} if name else vector.tolist()
        client.update_vectors("docs", [models.PointVectors(id=row, vector=values)])
    client.close()


def change_named_qdrant(fixture: GetFixture) -> None:
    change_qdrant(fixture, "dense")


def change_chroma(fixture: GetFixture) -> None:
    client = pytest.importorskip("chromadb").PersistentClient(str(fixture("tmp_path") / "chroma"))
    client.get_collection("docs").update(ids=["0", "1"], embeddings=CHANGED)


def change_postgres(fixture: GetFixture) -> None:
    for text, vector in zip(TEXTS, CHANGED, strict=False):
        row = (str(vector.tolist()), text)
        fixture("sql")("UPDATE docs SET dense = %s WHERE text = %s", row)


def in_folder(make: Callable[[Path], str]) -> Callable[[GetFixture], str]:
    return lambda fixture: make(fixture("tmp_path"))


def in_postgres(kind: str, key: str) -> Callable[[GetFixture], str]:
    return lambda fixture: postgres(fixture("postgresql_server"), fixture("sql"), kind, key)


MAKERS = {
    "parquet": Maker(".parquet", in_folder(parquet)),
    "parquet_folder": Maker(".parquet", in_folder(parquet_folder)),
    "npy": Maker(".npy", in_folder(npy)),
    "faiss_flat": Maker(".faiss", in_folder(faiss_flat), metric="dot"),
    "faiss_ivf": Maker(".faiss", in_folder(faiss_ivf), metric="dot"),
    "qdrant": Maker(
        "qdrant", in_folder(qdrant), metric="cosine", part="collection", change=change_qdrant
    ),
    "named_qdrant": Maker(
        "qdrant",
        in_folder(named_qdrant),
        metric="cosine",
        part="vector",
        change=change_named_qdrant,
    ),
    "chroma": Maker(
        "chroma", in_folder(chroma), metric="cosine", part="collection", change=change_chroma
    ),
    "lance": Maker("lance", in_folder(lance), part="table"),
    "postgresql": Maker(
        "postgresql",
        in_postgres("vector(4)", "bigint"),
        metric="cosine",
        part="column",
        change=change_postgres,
    ),
    "halfvec": Maker(
        "postgresql",
        in_postgres("halfvec(4)", "uuid"),
        metric="cosine",
        part="column",
        change=change_postgres,
    ),
    "untyped": Maker(
        "postgresql", in_postgres("vector", "char(3)"), part="column", change=change_postgres
    ),
}


@dataclass(frozen=True)
class Made:
    """A store that a maker has made."""

    maker: Maker
    address: str

    @property
    def kind(self) -> StoreKind:
        (kind,) = [kind for kind in STORES if kind.name == self.maker.kind]
        return kind

    @property
    def own_name(self) -> str:
        """The name of its vectors, as `apply` would be given it."""
        if self.maker.part is None:
            return self.address
        return re.findall(rf"{self.maker.part}=(\w+)", self.address)[0]

    def beside(self, name: str) -> tuple[str, str]:
        """What `apply` is given to write beside the vectors, and the address of what it writes."""
        if self.maker.part is None:
            path = Path(self.address)
            file = str(path.with_name(name + (path.suffix or ".parquet")))
            return file, file
        part = f"{self.maker.part}="
        return name, self.address.replace(part + self.own_name, part + name)
