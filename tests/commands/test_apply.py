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
from tests.stores import stores
from tests.stores.stores import VECTORS

CLOUDS = {code: np.random.default_rng(i).normal(size=(60, 4)) + i for i, code in enumerate(["en", "de"])}


def command_of(calibration: VectorCalibration, table: pa.Table, folder: Path, **about: str) -> list[str]:
    """The command that maps the vectors of a table; `about` is what their file says of them."""
    calibration.save(folder / "map")
    pq.write_table(table.replace_schema_metadata({"st_xlret": json.dumps(about)}), folder / "vectors.parquet")
    paths = {"--vectors": folder / "vectors.parquet", "--into": folder / "mapped.parquet"}
    return ["apply", str(folder / "map"), *(str(word) for option in paths.items() for word in option)]


def test_what_is_written_is_the_map_of_what_is_stored(tmp_path: Path, capsys) -> None:
    calibration, table = VectorCalibration.fit(CLOUDS, steps=["shift"]), stores.table()
    vectors = [*VECTORS[:5], None, [0, 0, 0, 0], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1], VECTORS[9]]
    command = command_of(
        calibration, table.set_column(0, "vector", pa.array(vectors, pa.list_(pa.float32()))), tmp_path
    )
    main(command)
    printed, into = capsys.readouterr().out, command[-1]
    reasons = ("4 rows without a vector", "1 row in fr", "1 row without a language", f"4 rows written to {into}")
    assert all(reason in printed for reason in reasons)
    written = pq.read_table(into)
    mapped = written["vector"].to_pylist()
    assert [i for i, vector in enumerate(mapped) if vector is not None] == [0, 2, 4, 9]
    assert written.drop(["vector"]).equals(table.drop(["vector"]))
    expected = calibration.transform(VECTORS[[0, 2, 4, 9]], "document", ["en", "en", "de", "de"])
    np.testing.assert_allclose([mapped[i] for i in (0, 2, 4, 9)], expected, atol=1e-6)
    with pytest.raises(SystemExit, match=into):
        main(command)


@pytest.mark.parametrize(
    ("options", "about", "message"),
    [
        ({}, {"metric": "euclidean"}, "euclidean.*cosine"),
        ({"model": "one"}, {"model": "other"}, "other.*one"),
        ({"queries_only": True}, {}, "queries alone"),
    ],
)
def test_a_map_of_other_vectors_is_refused(options: Any, about: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=message):
        main(command_of(VectorCalibration.fit(CLOUDS, **options), stores.table(), tmp_path, **about))
    assert not (tmp_path / "mapped.parquet").exists()
