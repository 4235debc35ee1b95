"""A walk as the guide takes it: report, calibrate, apply; the same queries before and after."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration, encode
from st_xlret.commands import main

ENCODER = os.environ.get("XLRET_ENCODER", "")
CODES = ["ar", "bn", "en", "es", "fr", "hi", "id", "pt", "ru", "sw", "zh"]
COUNT = len(CODES)
ASKED = np.arange(0, 60 * COUNT, 13)


@pytest.fixture
def vectors() -> np.ndarray:
    """Vectors of all versions of sixty sentences in turn: of its meaning, its words and, as a bias, its language."""
    random = np.random.default_rng(0)
    meanings, words, languages = (random.normal(size=(*size, 64)) for size in ((60, 1), (60, COUNT), (1, COUNT)))
    of_texts = (meanings + words / 2 + languages).reshape(-1, 64)
    return (of_texts / np.linalg.norm(of_texts, axis=1, keepdims=True)).astype(np.float32)


def shares(answers: Any) -> tuple[float, float]:
    """How many results are in the query's language, and how many versions of its sentence are found."""
    answers, asked = np.asarray(answers), ASKED[:, None]
    return (answers % COUNT == asked % COUNT).mean(), (answers // COUNT == asked // COUNT).mean()


@pytest.mark.parametrize("encoder", ["", ENCODER] if os.path.isdir(ENCODER) else [""])
def test_report_calibrate_apply(
    encoder: str, vectors: np.ndarray, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if encoder:
        with open(repository / "training_scripts/demo/tico19/sentences.tsv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:60]
        texts = [row[code] for row in rows for code in CODES]
        vectors = np.asarray(encode(SentenceTransformer(encoder, device="cpu"), texts, role="document"))
    monkeypatch.chdir(tmp_path)
    np.save("docs.npy", vectors)
    Path("codes.txt").write_text("\n".join(CODES * 60))
    stored = ["--vectors", "docs.npy", "--languages_file", "codes.txt"]
    main(["report", *stored, "--output", "bias.json"])
    assert json.loads(Path("bias.json").read_text())["same_language_share"] > 0.4
    main(["calibrate", *stored, "--output", "map"])
    main(["apply", "map", *stored, "--into", "shared.npy"])
    queries = VectorCalibration.load("map").transform(vectors[ASKED])
    same_before, versions_before = shares(np.argsort(-vectors[ASKED] @ vectors.T)[:, :COUNT])
    same_after, versions_after = shares(np.argsort(-queries @ np.load("shared.npy").T)[:, :COUNT])
    assert same_after < min(0.15, same_before / 2) and versions_after > max(0.9, versions_before + 0.1)


@pytest.mark.parametrize(("kind", "versions"), [("int8", 0.95), ("binary", 0.7)])
def test_queries_alone_serve_quantised_vectors_in_qdrants_own_engine(
    kind: str, versions: float, vectors: np.ndarray, tmp_path: Path
) -> None:
    edge = pytest.importorskip("qdrant_edge")
    int8, binary = edge.ScalarQuantizationConfig(edge.ScalarType.Int8), edge.BinaryQuantizationConfig()
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(64, edge.Distance.Cosine),
        quantization_config=int8 if kind == "int8" else binary,
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),
    )
    shard = edge.EdgeShard.create(str(tmp_path), config)
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(i, row) for i, row in enumerate(vectors.tolist())]))
    assert shard.optimize()
    params = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=False))

    def versions_of(queries: np.ndarray) -> float:
        requests = [edge.QueryRequest(COUNT, query=edge.Query.Nearest(row), params=params) for row in queries.tolist()]
        return shares([[point.id for point in shard.query(request)] for request in requests])[1]

    calibration = VectorCalibration.fit(vectors, CODES * 60, queries_only=True)
    assert versions_of(vectors[ASKED]) < 0.4 and versions_of(calibration.transform(vectors[ASKED], "query")) > versions
