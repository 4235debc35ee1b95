"""The guide's examples for Ray Data and Spark, where these are installed."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret import VectorCalibration

pytestmark = pytest.mark.slow  # half a minute each
ROWS = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
CALIBRATION = VectorCalibration.fit(ROWS, ["en", "fr"] * 60)


@pytest.fixture
def example(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the example of the guide's last section that has some words, beside vectors."""
    (tmp_path / "vectors").mkdir()
    pq.write_table(
        pa.table({"id": range(120), "vector": list(ROWS)}), tmp_path / "vectors" / "0.parquet"
    )
    monkeypatch.chdir(tmp_path)
    section = (
        (repository / "docs/guides/vectors-code.md")
        .read_text(encoding="utf-8")
        .partition("## From a laptop")[2]
    )
    first, *others = re.findall(r"```py(?:thon)?\n(.*?)```", section, re.DOTALL)
    names = {"__name__": "__main__", "calibration": CALIBRATION, "np": np}
    exec(first.partition("\n\n\nrows =")[0], names)

    def run(words: str, **more: Any) -> None:
        (code,) = (code for code in others if words in code)
        exec(code.replace('"e5"', f'"{tmp_path}/encoder"'), names | more)

    return run


def is_mapped(folder: Path) -> bool:
    written = pq.read_table(folder).to_pandas().sort_values("id")
    return np.allclose(
        np.stack(written["shared"]), CALIBRATION.transform(ROWS, "document"), atol=1e-6
    )


def test_ray_data_maps(example: Any, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    with ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False):
        example("map_batches(map_batch")
    assert is_mapped(tmp_path / "shared")


def test_spark_maps(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .getOrCreate() as spark
    ):
        example("mapInPandas", spark=spark)
    assert is_mapped(tmp_path / "shared")
