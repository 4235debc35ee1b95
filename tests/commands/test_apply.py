"""`st-xlret apply`: stored vectors are mapped into something new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret import VectorCalibration
from st_xlret.commands import main
from tests.stores.stores import LANGUAGES, VECTORS

CLOUDS = {code: np.random.default_rng(i).normal(size=(60, 4)) + i for i, code in enumerate(["en", "de"])}


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    return ["apply", str(tmp_path / "map"), "--into", str(tmp_path / "mapped.parquet"), "--vectors"]


def parquet(path: Path, vectors: Any = VECTORS, **about: str) -> str:
    column = pa.array([None if vector is None else np.asarray(vector, np.float16) for vector in vectors])
    table = pa.table({"vector": column, "language": LANGUAGES, "row": range(10)})
    pq.write_table(table.replace_schema_metadata({"st_xlret": json.dumps(about)}), path)
    return str(path)


def test_what_is_written_is_the_map_of_what_is_stored(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    calibration = VectorCalibration.fit(CLOUDS, steps=["shift"])
    calibration.save(tmp_path / "map")
    vectors = [*VECTORS[:5], None, [0, 0, 0, 0], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1], VECTORS[9]]
    source, into = parquet(tmp_path / "vectors.parquet", vectors), command[3]
    main([*command, source])
    printed = capsys.readouterr().out
    reasons = ("4 rows without a vector", "1 row in fr", "1 row without a language", f"4 rows written to {into}")
    assert all(reason in printed for reason in reasons)
    table = pq.read_table(into)
    written = table["vector"].to_pylist()
    assert [i for i, vector in enumerate(written) if vector is not None] == [0, 2, 4, 9]
    assert table["row"].to_pylist() == list(range(10)) and table["language"].to_pylist() == LANGUAGES
    expected = calibration.transform(VECTORS[[0, 2, 4, 9]], "document", ["en", "en", "de", "de"])
    np.testing.assert_allclose([written[i] for i in (0, 2, 4, 9)], expected, atol=2e-3)
    with pytest.raises(SystemExit, match=into):
        main([*command, source])
    with pytest.raises(SystemExit, match="--vectors"):
        main(command[:-1])


@pytest.mark.parametrize(
    ("how", "about", "named"),
    [
        ({}, {"metric": "euclidean"}, "euclidean.*cosine"),
        ({"model": "one"}, {"model": "other"}, "other.*one"),
        ({"queries_only": True}, {}, "queries alone"),
        ({"dimension": 3}, {}, "dimensions 4.*3"),
    ],
)
def test_a_map_of_other_vectors_is_refused(
    how: dict[str, Any], about: dict[str, str], named: str, tmp_path: Path, command: list[str]
) -> None:
    clouds = {code: rows[:, : how.get("dimension", 4)] for code, rows in CLOUDS.items()}
    VectorCalibration.fit(clouds, **{name: how[name] for name in how.keys() - {"dimension"}}).save(tmp_path / "map")
    with pytest.raises(SystemExit, match=named):
        main([*command, parquet(tmp_path / "a.parquet", **about)])
    assert not Path(command[3]).exists()
