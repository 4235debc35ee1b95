"""A walk as the guide takes it: report, calibrate, apply; the same queries before and after."""

import csv
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration, encode
from st_xlret.commands import main

ENCODER = os.environ.get("XLRET_ENCODER", "")
CODES = ["ar", "bn", "en", "es", "fr", "hi", "id", "pt", "ru", "sw", "zh"]
COUNT = len(CODES)


def vectors_of(encoder: str, repository: Path) -> np.ndarray:
    """Sixty sentences, each in all languages."""
    if encoder:
        with open(
            repository / "training_scripts/demo/tico19/sentences.tsv", encoding="utf-8"
        ) as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:60]
        texts = [row[code] for row in rows for code in CODES]
        return np.asarray(
            encode(SentenceTransformer(encoder, device="cpu"), texts, role="document")
        )
    random = np.random.default_rng(0)
    meanings = random.normal(size=(60, 1, 64))
    words = random.normal(size=(60, COUNT, 64))
    languages = random.normal(size=(1, COUNT, 64))  # their bias
    vectors = (meanings + words / 2 + languages).reshape(-1, 64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("encoder", ["", ENCODER] if os.path.isdir(ENCODER) else [""])
def test_report_calibrate_apply(
    encoder: str, repository: Path, tmp_path: Path, monkeypatch
) -> None:
    vectors = vectors_of(encoder, repository)
    asked = np.arange(0, 60 * COUNT, 13)
    monkeypatch.chdir(tmp_path)
    np.save("docs.npy", vectors)
    Path("codes.txt").write_text("\n".join(CODES * 60))
    stored = ["--vectors", "docs.npy", "--languages_file", "codes.txt"]
    main(["report", *stored, "--output", "bias.json"])
    assert json.loads(Path("bias.json").read_text())["same_language_share"] > 0.4
    main(["calibrate", *stored, "--output", "map"])
    main(["apply", "map", *stored, "--into", "shared.npy"])
    queries = VectorCalibration.load("map").transform(vectors[asked])
    before = shares(vectors[asked] @ vectors.T, asked)
    after = shares(queries @ np.load("shared.npy").T, asked)
    assert after.same_language < min(0.15, before.same_language / 2)
    assert after.same_sentence > max(0.9, before.same_sentence + 0.1)


class Shares(NamedTuple):
    """Of the nearest vectors of each query, as many as there are languages."""

    same_language: float
    same_sentence: float


def shares(scores: np.ndarray, asked: np.ndarray) -> Shares:
    answers = np.argsort(-scores, axis=1)[:, :COUNT]
    queries = asked[:, None]
    same_language = (answers % COUNT == queries % COUNT).mean()
    same_sentence = (answers // COUNT == queries // COUNT).mean()
    return Shares(same_language, same_sentence)


@pytest.mark.parametrize(
    ("codes", "least"), [("ScalarQuantizationConfig", 0.95), ("BinaryQuantizationConfig", 0.7)]
)
def test_qdrants_own_engine_serves_mapped_queries_by_codes(
    codes: str, least: float, repository: Path, tmp_path: Path
) -> None:
    edge = pytest.importorskip("qdrant_edge")
    vectors = vectors_of("", repository)
    asked = np.arange(0, 60 * COUNT, 13)
    types = [edge.ScalarType.Int8] if codes == "ScalarQuantizationConfig" else []
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(64, edge.Distance.Cosine),
        quantization_config=getattr(edge, codes)(*types),
        optimizers=edge.EdgeOptimizersConfig(indexing_threshold=1),
    )
    shard = edge.EdgeShard.create(str(tmp_path), config)
    points = [edge.Point(i, row) for i, row in enumerate(vectors.tolist())]
    shard.update(edge.UpdateOperation.upsert_points(points))
    assert shard.optimize()
    calibration = VectorCalibration.fit(vectors, CODES * 60, queries_only=True)
    by_codes = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=False))
    answers = []
    for query in calibration.transform(vectors[asked]).tolist():
        request = edge.QueryRequest(COUNT, query=edge.Query.Nearest(query), params=by_codes)
        answers.append([point.id for point in shard.query(request)])
    is_same_sentence = np.array(answers) // COUNT == asked[:, None] // COUNT
    assert is_same_sentence.mean() > least
