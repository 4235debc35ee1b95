"""A walk as the guide takes it: report, calibrate, apply; the same queries before, after, and back.

The vectors are generated, or those of an encoder and the 5 500 sentences of the demo, with their figures printed:

    XLRET_ENCODER=intfloat/multilingual-e5-small python -m pytest tests/vectors/test_walk.py -k encoder -s -o timeout=0
"""

from __future__ import annotations

import csv
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration, encode
from st_xlret.commands import main
from tests.vectors import stores

CODES = ["ar", "bn", "en", "es", "fr", "hi", "id", "pt", "ru", "sw", "zh"]
DIMENSION, FOUND = 64, len(CODES)
Search = Callable[[np.ndarray, str], list[list[int]]]
"""The rows nearest to each query, by the vectors `dense` or `shared`."""


@pytest.fixture(scope="module", params=["generated", "encoder"])
def vectors(request: pytest.FixtureRequest, repository: Path) -> np.ndarray:
    """Vectors of sentences of TICO-19: all versions of a sentence in the order of `CODES`, then those of the next."""
    with open(repository / "training_scripts/demo/tico19/sentences.tsv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    if request.param == "encoder":
        if "XLRET_ENCODER" not in os.environ:
            pytest.skip("needs an encoder: set XLRET_ENCODER to a Sentence Transformers model")
        model = SentenceTransformer(os.environ["XLRET_ENCODER"])
        texts = [row[code] for row in rows for code in CODES]
        return encode(model, texts, role="document", normalize_embeddings=True)
    # What an encoder with a language bias makes of them: meaning, words, and language.
    pairs = [(row["en"], row[code], code) for row in rows[:60] for code in CODES]
    found = np.array([hashed(meaning) + 0.5 * hashed(text) + hashed(code) for meaning, text, code in pairs])
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def language_of(row: int) -> str:
    return CODES[row % len(CODES)]


def hashed(text: str) -> np.ndarray:
    """A unit vector of the words of a text."""
    words = sum(np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIMENSION) for word in text.split())
    return words / np.linalg.norm(words)


def in_qdrant(folder: Path, vectors: np.ndarray) -> tuple[str, Search]:
    client, models = stores.open_qdrant(folder)
    parameters = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("docs", vectors_config={"dense": parameters})
    points = [
        models.PointStruct(id=i, vector={"dense": vector}, payload={"lang": language_of(i)})
        for i, vector in enumerate(vectors.tolist())
    ]
    client.upsert("docs", points)
    client.close()

    def search(queries: np.ndarray, name: str) -> list[list[int]]:
        client, _ = stores.open_qdrant(folder)
        found = [client.query_points("docs", query=query, using=name, limit=FOUND) for query in queries.tolist()]
        client.close()
        return [[point.id for point in each.points] for each in found]

    return f"qdrant:{folder / 'qdrant'}?collection=docs&vector=dense", search


def in_lancedb(folder: Path, vectors: np.ndarray) -> tuple[str, Search]:
    database = pytest.importorskip("lancedb").connect(str(folder / "lance"))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    rows = range(len(vectors))
    database.create_table("dense", pa.table({"id": rows, "vector": column, "lang": list(map(language_of, rows))}))

    def search(queries: np.ndarray, name: str) -> list[list[int]]:
        table = database.open_table(name)
        return [table.search(q).distance_type("cosine").limit(FOUND).to_arrow()["id"].to_pylist() for q in queries]

    return f"lance:{folder / 'lance'}?table=dense", search


def in_postgresql(server: str, vectors: np.ndarray) -> tuple[str, Search]:
    with stores.connected(server) as connection:
        connection.execute("DROP TABLE IF EXISTS walk")
        connection.execute(f"CREATE TABLE walk (id int PRIMARY KEY, lang text, dense vector({vectors.shape[1]}))")
        rows = [(i, language_of(i), str(vector)) for i, vector in enumerate(vectors.tolist())]
        connection.cursor().executemany("INSERT INTO walk VALUES (%s, %s, %s)", rows)

    def search(queries: np.ndarray, name: str) -> list[list[int]]:
        nearest = f"SELECT id FROM walk ORDER BY {name} <=> %s::vector LIMIT {FOUND}"
        with stores.connected(server) as connection:
            return [[i for (i,) in connection.execute(nearest, [str(query)])] for query in queries.tolist()]

    return server.replace("?", "?table=walk&column=dense&", 1), search


def shares(asked: range, found: list[list[int]]) -> tuple[float, float]:
    """How many results are in the query's language, and how many versions of its sentence are found."""
    pairs = [(query, row) for query, rows in zip(asked, found, strict=True) for row in rows]
    own = [language_of(query) == language_of(row) for query, row in pairs]
    return float(np.mean(own)), float(np.mean([query // FOUND == row // FOUND for query, row in pairs]))


@pytest.mark.parametrize("store", [in_qdrant, in_lancedb, in_postgresql])
def test_report_calibrate_apply_and_back(
    store: Callable[..., tuple[str, Search]],
    vectors: np.ndarray,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = request.getfixturevalue("postgresql_server") if store is in_postgresql else tmp_path
    address, search = store(place, vectors)
    asked = range(0, len(vectors), 13)
    queries = vectors[asked]
    before = search(queries, "dense")

    main(["report", "--vectors", address, "--output", str(tmp_path / "bias.json")])
    assert json.loads((tmp_path / "bias.json").read_text())["same_language_share"] > 0.5
    main(["calibrate", "--vectors", address, "--output", str(tmp_path / "map")])
    main(["apply", str(tmp_path / "map"), "--vectors", address, "--into", "shared"])
    assert f"{len(vectors)} rows written to " in capsys.readouterr().out

    after = search(VectorCalibration.load(tmp_path / "map").transform(queries), "shared")
    (own_before, versions_before), (own_after, versions_after) = shares(asked, before), shares(asked, after)
    with capsys.disabled():
        print(
            f" {len(vectors)} vectors: own language {own_before:.1%} -> {own_after:.1%}, versions found "
            f"{versions_before:.1%} -> {versions_after:.1%}"
        )
    assert own_before > 0.4 and own_after < 0.15
    assert versions_before < 0.7 and versions_after > 0.9
    assert search(queries, "dense") == before
