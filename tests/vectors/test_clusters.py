"""The guide's examples for Ray Data and Spark, where these are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tests.commands.bias_files as bias_files
from st_xlret import VectorCalibration

VECTORS = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
CALIBRATION = VectorCalibration(np.eye(4, dtype=np.float32)[None, ::-1].copy(), np.full((1, 4), 0.1, np.float32))


@pytest.fixture
def guide(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the example of the guide's last section that has certain words, in a folder with vectors."""
    (tmp_path / "vectors").mkdir()
    for part in range(2):
        rows = slice(50 * part, 50 * part + 50)
        table = pa.table({"id": range(rows.start, rows.stop), "vector": list(VECTORS[rows])})
        pq.write_table(table, tmp_path / "vectors" / f"{part}.parquet")
    monkeypatch.chdir(tmp_path)
    section = (repository / "docs/guides/vectors.md").read_text(encoding="utf-8").partition("## From a laptop")[2]
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", section, re.DOTALL)
    namespace = {"__name__": "__main__", "calibration": CALIBRATION, "np": np, "stored": {"en": VECTORS}}

    def run(words: str, **names: Any) -> None:
        for code in blocks:
            if "def map_batch" in code:
                exec(code, namespace)
            elif words in code:
                exec(code.replace("intfloat/multilingual-e5-small", str(tmp_path / "encoder")), namespace | names)

    return run


def check(folder: Path) -> None:
    written = pq.read_table(folder).to_pandas().sort_values("id")
    assert written["id"].tolist() == list(range(100))
    np.testing.assert_allclose(np.stack(written["shared"]), CALIBRATION.transform(VECTORS, "document"), atol=1e-6)


@pytest.fixture
def ray_here(guide: Any) -> Iterator[None]:
    """Ray in the folder of the guide, into which its workers are started."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("ray_here")
def test_ray_data(guide: Any, tmp_path: Path) -> None:
    guide("map_batches(map_batch")
    check(tmp_path / "shared")


@pytest.mark.usefixtures("ray_here")
def test_ray_data_embeds(guide: Any, tmp_path: Path) -> None:
    model = bias_files.encoder()
    model.save(str(tmp_path / "encoder"))
    texts = bias_files.sentences("fr")
    (tmp_path / "texts").mkdir()
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), tmp_path / "texts" / "0.parquet")
    guide("class Embed")
    written = pq.read_table(tmp_path / "embedded").to_pandas().sort_values("id")
    expected = model.encode_document(written["text"].tolist(), normalize_embeddings=True)
    np.testing.assert_allclose(np.stack(written["vector"]), expected, atol=1e-5)
    program = (
        f"from st_xlret.vectors import open_vectors; print(open_vectors({str(tmp_path / 'embedded')!r}).dimension)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)  # without Ray's own types
    assert done.stdout == "8\n", done.stderr


def test_spark(guide: Any, tmp_path: Path) -> None:
    sql = pytest.importorskip("pyspark.sql")
    spark = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        guide("mapInPandas", spark=spark)
    finally:
        spark.stop()
    check(tmp_path / "shared")
