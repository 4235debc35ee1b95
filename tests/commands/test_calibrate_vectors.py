"""`st-xlret calibrate --vectors`, `report` and `apply`: maps of vectors that are stored."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import st_xlret
from st_xlret import VectorCalibration
from st_xlret.calibration import rotation
from st_xlret.commands.apply import main as apply
from st_xlret.commands.calibrate import main
from st_xlret.commands.report import main as report
from tests.commands import bias_files
from tests.commands.bias_files import sentences
from tests.stores import stores


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    """Stored vectors of three languages, each in a region of its own, and three of a fourth."""
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(60, 16))
    clouds = []
    for number in range(4):
        noise = 0.3 * generator.normal(size=(60, 16))
        clouds.append(topics + 2 * np.eye(16)[number] + noise)
    codes = ["de"] * 60 + ["en"] * 60 + ["fr"] * 60 + ["sw"] * 3
    rows = np.concatenate(clouds)[: len(codes)].astype(np.float32)
    table = pa.table({"vector": rows.tolist(), "language": codes})
    pq.write_table(table, tmp_path / "vectors.parquet")
    return str(tmp_path / "vectors.parquet")


def printed_program(printed: str) -> str:
    """The lines for the service that searches."""
    _, _, after = printed.partition("In the service")
    lines = [line.strip() for line in after.splitlines() if line.startswith("    ")]
    return "\n".join(lines)


@pytest.mark.parametrize("queries_only", [True, False])
def test_stored_vectors_get_a_map_and_the_lines_that_use_it(
    vectors: str, tmp_path: Path, capsys: Any, queries_only: bool
) -> None:
    output = tmp_path / "map"
    command = ["--vectors", vectors, "--output", str(output)]
    if queries_only:
        command.append("--queries_only")
    main(command)

    printed = capsys.readouterr().out
    calibration = VectorCalibration.load(output)
    assert calibration.queries_only == queries_only
    assert (f"st-xlret apply {output}" in printed) == (not queries_only)
    assert "(used)" in printed
    assert printed.count("Verdict: calibrate by lsar at strength") == 1
    assert "1 languages, sw 3" in printed
    written = json.loads((output / "language_bias.json").read_text())
    scores = {row["strength"]: row["score"] for row in written["strengths"]}
    assert list(scores) == [tenth / 10 for tenth in range(11)]
    assert scores[calibration.strength] == max(scores.values())

    names: dict[str, Any] = {"st_xlret": st_xlret, "query": np.ones(16)}
    exec(printed_program(printed), names)
    np.testing.assert_allclose(names["query"], calibration.transform(np.ones(16)))
    report(["--vectors", vectors, "--output", str(tmp_path / "bias.json")])
    assert json.loads((tmp_path / "bias.json").read_text()) == written["before"]


def write_chunks(file: Path, document_of: Any) -> list[str]:
    """Twenty chunks of each of ten documents a language, which have nothing else in common."""
    generator = np.random.default_rng(0)
    documents = generator.normal(size=(30, 1, 16))
    rows = documents + 0.3 * generator.normal(size=(30, 20, 16))
    columns: dict[str, Any] = {"vector": rows.reshape(600, 16).astype(np.float32).tolist()}
    columns["language"] = np.repeat(["de", "en", "fr"], 200).tolist()
    columns["document"] = [document_of(row) for row in range(600)]
    pq.write_table(pa.table(columns), file)
    return ["--vectors", str(file)]


@pytest.mark.parametrize(
    ("document_of", "is_known"),
    [
        pytest.param(lambda row: row // 20, True, id="document"),
        pytest.param(lambda row: row // 20 if row >= 20 else None, True, id="missing in one"),
        pytest.param(lambda row: None, False, id="none"),
        pytest.param(lambda row: "contract", False, id="of a language one"),
    ],
)
def test_chunks_of_one_document_are_no_neighbours(
    document_of: Any, is_known: bool, tmp_path: Path, capsys: Any
) -> None:
    source = write_chunks(tmp_path / "chunks.parquet", document_of)
    report([*source, "--output", str(tmp_path / "bias.json")])
    main([*source, "--queries_only", "--output", str(tmp_path / "map")])
    reported = json.loads((tmp_path / "bias.json").read_text())
    assert json.loads((tmp_path / "map" / "language_bias.json").read_text())["before"] == reported
    assert (reported["same_language_share"] < 0.5) == is_known
    unknown = capsys.readouterr().out.count("without a field 'document'")
    assert unknown == (0 if is_known else 2)


def test_only_a_map_is_replaced_and_only_if_asked(vectors: str, tmp_path: Path) -> None:
    output = tmp_path / "map"
    command = ["--vectors", vectors, "--output", str(output)]
    main(command)
    with pytest.raises(FileExistsError, match="--overwrite"):
        main(command)
    main([*command, "--overwrite", "--strength", "0"])
    assert VectorCalibration.load(output).strength == 0
    (output / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="notes.txt"):
        main([*command, "--overwrite"])


def test_stored_queries_without_labels_get_maps_of_their_own(vectors: str, tmp_path: Path) -> None:
    table = pq.read_table(vectors)
    asked = np.stack(table["vector"].to_numpy()) + np.eye(16)[15]
    moved = table.set_column(0, "vector", [asked.astype(np.float32).tolist()])
    pq.write_table(moved, tmp_path / "queries.parquet")
    command = ["--vectors", vectors, "--queries", str(tmp_path / "queries.parquet")]
    main([*command, "--output", str(tmp_path / "map")])

    calibration = VectorCalibration.load(tmp_path / "map")
    as_query = calibration.transform(np.ones(16), "query")
    as_document = calibration.transform(np.ones(16), "document")
    assert not np.allclose(as_query, as_document)


def write_qrels(file: Path) -> Path:
    """The answers to a row are its translations."""
    lines = ["query-id\tcorpus-id\tscore"]
    for row in range(60):
        for side in (1, 2):
            lines.append(f"{row}\t{row + 60 * side}\t1")
    file.write_text("\n".join(lines))
    return file


def test_judged_queries_choose_the_strength_and_are_reported(
    vectors: str, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "map"
    qrels = write_qrels(tmp_path / "qrels.tsv")
    command = ["--vectors", vectors, "--queries", vectors, "--output", str(output)]
    main([*command, "--qrels", str(qrels)])

    judged = json.loads((output / "language_bias.json").read_text())["judged"]
    best = max(judged, key=lambda row: row["first_half"]["overall"])["strength"]
    assert best > 0
    assert VectorCalibration.load(output).strength == best
    printed = capsys.readouterr().out
    assert f"| {best:g} (used) " in printed
    assert f"Verdict: strength {best:g}, by 30 of your questions. The 30 others" in printed
    assert "95 % interval" in printed
    assert judged[0]["second_half"]["questions"] == 30

    main([*command, "--qrels", str(qrels), "--strength", "0", "--overwrite"])
    assert f"strength 0 was asked for, and {best:g} is best" in capsys.readouterr().out
    assert VectorCalibration.load(output).strength == 0


def test_a_rotation_is_judged_at_one_strength_beside_none(
    vectors: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Mock(return_value=(torch.eye(16, dtype=torch.float64), "identity"))
    monkeypatch.setattr(rotation, "unsupervised_rotation", search)
    command = ["--vectors", vectors, "--queries", vectors, "--output", str(tmp_path / "map")]
    command += ["--steps", "shift", "rotate"]
    main([*command, "--qrels", str(write_qrels(tmp_path / "qrels.tsv"))])
    judged = json.loads((tmp_path / "map" / "language_bias.json").read_text())["judged"]
    assert [row["strength"] for row in judged] == [0, 1]
    assert search.call_count == 2, "of German and of French, once each"


def test_queries_have_one_address(vectors: str, tmp_path: Path) -> None:
    command = ["--vectors", vectors, "--queries", vectors, vectors]
    with pytest.raises(FileNotFoundError, match=f"{vectors} {vectors}"):
        main([*command, "--output", str(tmp_path / "map")])


# Apply


CLOUDS = {
    "en": np.random.default_rng(0).normal(size=(60, 4)),
    "de": np.random.default_rng(1).normal(size=(60, 4)) + 1,
}
NARROW_CLOUDS = {code: rows[:, :3] for code, rows in CLOUDS.items()}


def command_of(calibration: VectorCalibration, folder: Path, **about: str) -> list[str]:
    """The command that maps the vectors of a table; `about` is what their file says of them."""
    calibration.save(folder / "map")
    table = stores.table().replace_schema_metadata({"st_xlret": json.dumps(about)})
    pq.write_table(table, folder / "vectors.parquet")
    words = [str(folder / "map")]
    words += ["--vectors", str(folder / "vectors.parquet")]
    words += ["--into", str(folder / "mapped.parquet")]
    return words


def test_what_is_written_and_what_is_left_out_is_said(tmp_path: Path, capsys: Any) -> None:
    command = command_of(VectorCalibration.fit(CLOUDS, steps=["shift"]), tmp_path)
    apply(command)

    printed = capsys.readouterr().out
    into = str(tmp_path / "mapped.parquet")
    assert "2 rows in fr" in printed
    assert "1 row without a language" in printed
    assert f"7 rows written to {into}" in printed
    with pytest.raises(FileExistsError, match=into):
        apply(command)


@pytest.mark.parametrize(
    ("documents", "options", "about", "message"),
    [
        (CLOUDS, {}, {"metric": "euclidean"}, "euclidean.*cosine"),
        (CLOUDS, {"model": "one"}, {"model": "other"}, "other.*one"),
        (CLOUDS, {"queries_only": True}, {}, "queries alone"),
        (NARROW_CLOUDS, {}, {}, "dimensions 4.*3"),
    ],
)
def test_a_map_of_other_vectors_is_refused(
    documents: Any, options: Any, about: dict[str, str], message: str, tmp_path: Path
) -> None:
    calibration = VectorCalibration.fit(documents, **options)
    with pytest.raises(ValueError, match=message):
        apply(command_of(calibration, tmp_path, **about))
    assert not (tmp_path / "mapped.parquet").exists()


def test_stored_vectors_in_one_language_need_their_encoder(tmp_path: Path) -> None:
    model = bias_files.encoder()
    model.save(str(tmp_path / "encoder"))
    vectors = model.encode_document(sentences("en"))
    stored = tmp_path / "stored.parquet"
    columns = {"vector": list(vectors), "language": ["en"] * len(vectors)}
    pq.write_table(pa.table(columns), stored)
    words = ["--vectors", str(stored), "--queries_only", "--output", str(tmp_path / "map")]

    with pytest.raises(ValueError, match="--model"):
        main(words)
    main([*words, "--model", str(tmp_path / "encoder"), "--precision", "fp32"])

    fitted = VectorCalibration.load(tmp_path / "map")
    assert fitted.queries_only
    queries = model.encode_query(sentences("fr"))
    expected = bias_files.map_of_english(model, normalize=True)
    np.testing.assert_allclose(fitted.transform(queries), expected.transform(queries), atol=1e-5)


def test_few_vectors_in_one_language_are_refused_before_the_panel_joins(tmp_path: Path) -> None:
    few = {"vector": np.ones((12, 8)).tolist(), "language": ["en"] * 12}
    pq.write_table(pa.table(few), tmp_path / "stored.parquet")
    words = ["--vectors", str(tmp_path / "stored.parquet"), "--output", str(tmp_path / "map")]
    with pytest.raises(ValueError, match="no language has 20 vectors"):
        main([*words, "--queries_only", "--model", "encoder"])


def test_an_encoder_of_vectors_in_several_languages_is_refused(
    vectors: str, tmp_path: Path
) -> None:
    words = ["--vectors", vectors, "--queries_only", "--output", str(tmp_path / "map")]
    with pytest.raises(ValueError, match="several"):
        main([*words, "--model", "encoder"])
