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


def command_of(calibration: VectorCalibration, folder: Path, vectors: Any = VECTORS, **about: str) -> list[str]:
    """The command that maps these vectors; `about` is what their file says of them."""
    calibration.save(folder / "map")
    column = pa.array([None if vector is None else np.asarray(vector, np.float16) for vector in vectors])
    table = pa.table({"vector": column, "language": LANGUAGES, "row": range(10)})
    pq.write_table(table.replace_schema_metadata({"st_xlret": json.dumps(about)}), folder / "vectors.parquet")
    into = ["--into", str(folder / "mapped.parquet")]
    return ["apply", str(folder / "map"), *into, "--vectors", str(folder / "vectors.parquet")]


def test_what_is_written_is_the_map_of_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calibration = VectorCalibration.fit(CLOUDS, steps=["shift"])
    vectors = [*VECTORS[:5], None, [0, 0, 0, 0], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1], VECTORS[9]]
    command = command_of(calibration, tmp_path, vectors)
    into = command[3]
    main(command)
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
        main(command)


@pytest.mark.parametrize(
    ("dimensions", "options", "about", "message"),
    [
        (4, {}, {"metric": "euclidean"}, "euclidean.*cosine"),
        (4, {"model": "one"}, {"model": "other"}, "other.*one"),
        (4, {"queries_only": True}, {}, "queries alone"),
        (3, {}, {}, "dimensions 4.*3"),
    ],
)
def test_a_map_of_other_vectors_is_refused(
    dimensions: int, options: dict[str, Any], about: dict[str, str], message: str, tmp_path: Path
) -> None:
    clouds = {code: rows[:, :dimensions] for code, rows in CLOUDS.items()}
    with pytest.raises(SystemExit, match=message):
        main(command_of(VectorCalibration.fit(clouds, **options), tmp_path, **about))
    assert not (tmp_path / "mapped.parquet").exists()
