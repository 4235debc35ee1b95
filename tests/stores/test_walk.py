"""A walk as the guide takes it: report, calibrate, apply; the same queries before and after."""

import csv
import json
import os
from pathlib import Path

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
    random = np.random.default_rng(
        0
    )  # of the meaning of a sentence, of its words and, as a bias, of its language
    meanings, words, languages = (
        random.normal(size=(*size, 64)) for size in ((60, 1), (60, COUNT), (1, COUNT))
    )
    vectors = (meanings + words / 2 + languages).reshape(-1, 64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("encoder", ["", ENCODER] if os.path.isdir(ENCODER) else [""])
def test_report_calibrate_apply(
    encoder: str, repository: Path, tmp_path: Path, monkeypatch
) -> None:
    vectors, asked = vectors_of(encoder, repository), np.arange(0, 60 * COUNT, 13)
    monkeypatch.chdir(tmp_path)
    np.save("docs.npy", vectors)
    Path("codes.txt").write_text("\n".join(CODES * 60))
    stored = ["--vectors", "docs.npy", "--languages_file", "codes.txt"]
    main(["report", *stored, "--output", "bias.json"])
    assert json.loads(Path("bias.json").read_text())["same_language_share"] > 0.4
    main(["calibrate", *stored, "--output", "map"])
    main(["apply", "map", *stored, "--into", "shared.npy"])
    queries = VectorCalibration.load("map").transform(vectors[asked])
    same_language, same_sentence = [], []
    for scores in (vectors[asked] @ vectors.T, queries @ np.load("shared.npy").T):
        answers = np.argsort(-scores, axis=1)[:, :COUNT]
        same_language.append((answers % COUNT == asked[:, None] % COUNT).mean())
        same_sentence.append((answers // COUNT == asked[:, None] // COUNT).mean())
    assert same_language[1] < min(0.15, same_language[0] / 2)
    assert same_sentence[1] > max(0.9, same_sentence[0] + 0.1)


@pytest.mark.parametrize(
    ("codes", "least"), [("ScalarQuantizationConfig", 0.95), ("BinaryQuantizationConfig", 0.7)]
)
def test_qdrants_own_engine_serves_mapped_queries_by_codes(
    codes: str, least: float, repository, tmp_path
) -> None:
    edge, vectors, asked = (
        pytest.importorskip("qdrant_edge"),
        vectors_of("", repository),
        np.arange(0, 60 * COUNT, 13),
    )
    kind = getattr(edge, codes)(*[edge.ScalarType.Int8] * codes.startswith("Scalar"))
    options = {
        "quantization_config": kind,
        "optimizers": edge.EdgeOptimizersConfig(indexing_threshold=1),
    }
    config = edge.EdgeConfig(vectors=edge.EdgeVectorParams(64, edge.Distance.Cosine), **options)
    shard = edge.EdgeShard.create(str(tmp_path), config)
    shard.update(
        edge.UpdateOperation.upsert_points(
            [edge.Point(i, row) for i, row in enumerate(vectors.tolist())]
        )
    )
    assert shard.optimize()
    by_codes = edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=False))
    queries = VectorCalibration.fit(vectors, CODES * 60, queries_only=True).transform(
        vectors[asked]
    )
    requests = [
        edge.QueryRequest(COUNT, query=edge.Query.Nearest(q), params=by_codes)
        for q in queries.tolist()
    ]
    answers = np.array([[point.id for point in shard.query(request)] for request in requests])
    assert (answers // COUNT == asked[:, None] // COUNT).mean() > least
