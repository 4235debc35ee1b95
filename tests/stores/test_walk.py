"""A walk as the guide takes it: report, calibrate, apply; the same queries before, after, and back."""

from __future__ import annotations

import csv
import json
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration, encode
from st_xlret.commands import main
from tests.stores import stores

ENCODER = os.environ.get("XLRET_ENCODER", "")
ENCODER = ENCODER if os.path.isdir(ENCODER) else ""
CODES = ["ar", "bn", "en", "es", "fr", "hi", "id", "pt", "ru", "sw", "zh"]
COUNT = len(CODES)


def hashed(text: str) -> np.ndarray:
    """A unit vector of the words of a text."""
    words = np.sum([np.random.default_rng(zlib.crc32(word.encode())).normal(size=64) for word in text.split()], axis=0)
    return np.asarray(words / np.linalg.norm(words))


def vectors_of(sentences: Path, encoder: str) -> np.ndarray:
    """Vectors of all versions of a sentence in turn: by an encoder, or of meaning, words and language, with a bias."""
    with open(sentences, encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:60]
    if encoder:
        texts = [row[code] for row in rows for code in CODES]
        return np.asarray(encode(SentenceTransformer(encoder, device="cpu"), texts, role="document"))
    vectors = np.array([hashed(row["en"]) + 0.5 * hashed(row[code]) + hashed(code) for row in rows for code in CODES])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def search(folder: Path, queries: np.ndarray, name: str) -> list[list[int]]:
    client, _ = stores.open_qdrant(folder)
    answers = [client.query_points("docs", query=query, using=name, limit=COUNT) for query in queries.tolist()]
    client.close()
    return [[point.id for point in answer.points] for answer in answers]


def shares(asked: range, answers: list[list[int]]) -> tuple[float, float]:
    """How many results are in the query's language, and how many versions of its sentence are found."""
    pairs = [(query, row) for query, rows in zip(asked, answers, strict=True) for row in rows]
    same_language = [query % COUNT == row % COUNT for query, row in pairs]
    return float(np.mean(same_language)), float(np.mean([query // COUNT == row // COUNT for query, row in pairs]))


@pytest.mark.parametrize(
    "encoder", ["", pytest.param(ENCODER, marks=pytest.mark.skipif(not ENCODER, reason="XLRET_ENCODER names none"))]
)
def test_report_calibrate_apply_and_back(
    encoder: str, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = vectors_of(repository / "training_scripts/demo/tico19/sentences.tsv", encoder)
    client, models = stores.open_qdrant(tmp_path)
    parameters = models.VectorParams(size=vectors.shape[1], distance=models.Distance.COSINE)
    client.create_collection("docs", vectors_config={"dense": parameters})
    languages = [{"lang": CODES[i % COUNT]} for i in range(len(vectors))]
    client.upload_collection("docs", {"dense": vectors}, languages, ids=range(len(vectors)))
    client.close()
    address = f"qdrant:{tmp_path / 'qdrant'}?collection=docs&vector=dense"
    asked = range(0, len(vectors), 13)
    before = search(tmp_path, vectors[asked], "dense")

    main(["report", "--vectors", address, "--output", str(tmp_path / "bias.json")])
    assert json.loads((tmp_path / "bias.json").read_text())["same_language_share"] > 0.4
    main(["calibrate", "--vectors", address, "--output", str(tmp_path / "map")])
    main(["apply", str(tmp_path / "map"), "--vectors", address, "--into", "shared"])
    assert f"{len(vectors)} rows written" in capsys.readouterr().out

    calibration = VectorCalibration.load(tmp_path / "map")
    after = search(tmp_path, calibration.transform(vectors[asked]), "shared")
    (own_before, versions_before), (own_after, versions_after) = shares(asked, before), shares(asked, after)
    assert own_after < min(0.15, own_before / 2) and versions_after > max(0.9, versions_before + 0.1)
    assert search(tmp_path, vectors[asked], "dense") == before


@pytest.mark.parametrize(("kind", "versions"), [("int8", 0.95), ("binary", 0.7)])
def test_queries_alone_serve_quantised_vectors_in_qdrants_own_engine(
    kind: str, versions: float, repository: Path, tmp_path: Path
) -> None:
    edge = pytest.importorskip("qdrant_edge")
    int8, binary = edge.ScalarQuantizationConfig(edge.ScalarType.Int8), edge.BinaryQuantizationConfig()
    vectors = vectors_of(repository / "training_scripts/demo/tico19/sentences.tsv", "")
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(vectors.shape[1], edge.Distance.Cosine),
        quantization_config=int8 if kind == "int8" else binary,
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),
    )
    shard = edge.EdgeShard.create(str(tmp_path), config)
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(i, row) for i, row in enumerate(vectors.tolist())]))
    assert shard.optimize()
    asked, calibration = range(0, len(vectors), 13), VectorCalibration.fit(vectors, CODES * 60, queries_only=True)
    params = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=False))

    def found(queries: np.ndarray) -> float:
        requests = [edge.QueryRequest(COUNT, query=edge.Query.Nearest(row), params=params) for row in queries.tolist()]
        return shares(asked, [[point.id for point in shard.query(request)] for request in requests])[1]

    assert found(vectors[asked]) < 0.4 and found(calibration.transform(vectors[asked], role="query")) > versions
