"""A calibration of stored vectors: NumPy applies it, any language reads it, and it refuses what it does not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from st_xlret import VectorCalibration

CODES = ("de", "en", "fr")
NAN = np.full((1, 12, 12), np.nan, np.float32), np.zeros((1, 12), np.float32)


def stored(dimension: int = 12, texts: int = 80, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        code: (generator.normal(size=(texts, dimension)) + 2 * np.eye(dimension)[i] + 1).astype(np.float32)
        for i, code in enumerate(CODES)
    }


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def means_apart(rows: dict[str, np.ndarray]) -> float:
    means = np.stack([part.mean(axis=0) for part in rows.values()])
    return float(np.abs(means - means.mean(axis=0)).max())


@pytest.mark.parametrize("steps", [["lsar"], ["shift"], ["shift", "coral"]])
def test_mapped_vectors_have_unit_length_whatever_the_length_of_the_stored_ones(steps: list[str]) -> None:
    vectors = stored()
    calibration = VectorCalibration.fit(vectors, steps=steps)
    mapped = {code: calibration.transform(rows, "document", code) for code, rows in vectors.items()}
    assert means_apart(mapped) < 0.5 * means_apart({code: unit(rows) for code, rows in vectors.items()})
    for code, rows in vectors.items():
        np.testing.assert_allclose(np.linalg.norm(mapped[code], axis=1), 1, atol=1e-5)
        longer = calibration.transform(7 * rows.astype(np.float64), "query", code)
        np.testing.assert_allclose(longer, mapped[code], atol=1e-5)
    assert bool(calibration.languages) == (steps != ["lsar"])


def test_rows_name_their_languages_in_the_fit_and_in_the_map() -> None:
    vectors = stored()
    matrix, codes = np.concatenate([*vectors.values()]), [code for code in vectors for _ in vectors[code]]
    order = np.random.default_rng(1).permutation(len(matrix))
    codes = [codes[i] for i in order]
    calibration = VectorCalibration.fit(vectors, steps=["shift"])
    of_rows = VectorCalibration.fit(matrix[order], codes, steps=["shift"])
    np.testing.assert_allclose(of_rows.bias, calibration.bias, atol=1e-6)
    mapped = calibration.transform(matrix[order], "query", codes)
    for i in (0, 50, 200):
        np.testing.assert_allclose(mapped[i], calibration.transform(matrix[order][i], "query", codes[i]), atol=1e-6)


def test_queries_only_leaves_documents_as_they_are() -> None:
    vectors = stored()
    calibration = VectorCalibration.fit(vectors, queries_only=True)
    assert np.array_equal(calibration.transform(vectors["en"], "document"), vectors["en"])
    assert not np.allclose(calibration.transform(vectors["en"], "query"), unit(vectors["en"]), atol=0.01)


def test_what_is_saved_is_used_by_its_own_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = stored()
    calibration = VectorCalibration.fit(vectors, queries_only=True, metric="cosine", model="me/encoder")
    calibration.save(tmp_path / "map")
    loaded = VectorCalibration.load(tmp_path / "map")
    mapped = calibration.transform(vectors["fr"])
    assert np.array_equal(loaded.transform(vectors["fr"]), mapped)
    assert (loaded.queries_only, loaded.metric, loaded.model) == (True, "cosine", "me/encoder")
    assert (list(loaded.steps), loaded.strength, list(loaded.languages)) == (["lsar"], 1.0, [])
    text = (tmp_path / "map" / "README.md").read_text(encoding="utf-8")
    program = "\n".join(line.strip() for line in text.partition("With NumPy")[2].splitlines() if line[:4] == "    ")
    monkeypatch.chdir(tmp_path / "map")
    by_hand: dict = {"vector": vectors["fr"][3]}
    exec(program, by_hand)
    np.testing.assert_allclose(by_hand["mapped"], mapped[3], atol=1e-6)
    assert "Queries alone are mapped" in text and "12 dimensions of me/encoder" in text
    with pytest.raises(FileExistsError, match="map already holds files"):
        calibration.save(tmp_path / "map")


def test_to_transform_takes_neither_torch_nor_a_model(tmp_path: Path) -> None:
    VectorCalibration.fit(stored()).save(tmp_path / "map")
    program = (
        f"import sys, numpy, st_xlret\n"
        f"calibration = st_xlret.VectorCalibration.load({str(tmp_path / 'map')!r})\n"
        "calibration.transform(numpy.ones(12))\n"
        "assert not {'torch', 'transformers', 'pyarrow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def with_row(row: float) -> dict[str, np.ndarray]:
    vectors = stored()
    vectors["fr"][5] = row
    return vectors


def bad_samples() -> Iterator[tuple[dict, str]]:
    yield {"vectors": with_row(np.nan)}, "1 of 80 vectors of 'fr' .* row 5, which holds NaN"
    yield {"vectors": with_row(0)}, "'fr' .* row 5, which holds zeros alone"
    yield {"vectors": with_row(1e-25)}, "'fr' .* row 5, which holds zeros alone, or nearly"
    yield {"vectors": {"en": stored()["en"]}}, "one language .en."
    yield {"vectors": {}}, "one language .none."
    yield {"vectors": {**stored(), "sw": stored()["en"][:3]}}, "'sw' has 3 texts"
    yield {"vectors": {**stored(), "sw": stored(dimension=8)["en"]}}, r"one dimension.*'sw': \(80, 8\).*one model"
    yield {"vectors": stored(), "metric": "dot"}, "metric is dot.*'de' have lengths from .* unit length"
    yield {"vectors": stored()["en"]}, "80 vectors need as many languages.*got 0"
    yield {"vectors": stored()["en"], "languages": ["en"] * 7}, "got 7"
    yield {"vectors": stored(), "languages": ["en"]}, "leave languages out"
    yield {"vectors": stored(), "steps": ["coral"], "queries_only": True}, "'coral' moves documents"
    yield {"vectors": stored(), "steps": ["twist"]}, "'twist'"
    yield {"vectors": stored(), "steps": ["to_pivot"]}, "to_pivot moves documents.*one map for both"


@pytest.mark.parametrize(("arguments", "message"), list(bad_samples()))
def test_a_bad_sample_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorCalibration.fit(**arguments)


def test_unit_vectors_may_be_compared_by_their_dot_product() -> None:
    vectors = {code: unit(rows) for code, rows in stored().items()}
    assert VectorCalibration.fit(vectors, metric="dot").metric == "dot"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vectors": np.ones(7)}, r"shape \(7,\).* 12 dimensions"),
        ({"vectors": np.full((2, 12), np.nan)}, "2 of 2 vectors .*NaN"),
        ({"vectors": np.zeros(12)}, "zeros alone"),
        ({"vectors": np.ones(12)}, "None: there are maps for de, en, fr"),
        ({"vectors": np.ones(12), "language": "ja"}, "language ja: there are maps for de, en, fr"),
        ({"vectors": np.ones((2, 12)), "language": ["en"]}, "1 languages are given for 2 vectors"),
        ({"vectors": np.ones(12), "role": "passage"}, "'query' or 'document', got 'passage'"),
    ],
)
def test_vectors_that_cannot_be_mapped_are_named(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorCalibration.fit(stored(), steps=["shift"]).transform(**given)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"dimension": 8}, "docs: dimensions 8, but .* fitted for dimensions 12"),
        ({"dimension": 12, "metric": "dot"}, "metric dot, but .* metric cosine"),
        ({"dimension": 12, "model": "you/other"}, "model you/other, but .* model me/encoder"),
    ],
)
def test_a_map_for_other_vectors_is_refused(other: dict, message: str) -> None:
    calibration = VectorCalibration.fit(stored(), metric="cosine", model="me/encoder")
    calibration.check(dimension=12, metric="cosine", model="me/encoder")
    calibration.check(dimension=12)
    with pytest.raises(ValueError, match=message):
        calibration.check(**other, name="docs")


def test_a_folder_without_a_map_or_with_a_part_of_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no calibration of vectors"):
        VectorCalibration.load(tmp_path)
    VectorCalibration.fit(stored()).save(tmp_path / "map")
    file = tmp_path / "map" / "calibration.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dimension": 5}))
    with pytest.raises(ValueError, match="1 maps of 5 dimensions"):
        VectorCalibration.load(tmp_path / "map")


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "calibration.json").write_text("{"), "calibration.json is damaged: Expecting"),
        (lambda folder: (folder / "calibration.json").write_text("{}"), "calibration.json is damaged: .dim"),
        (lambda folder: (folder / "calibration.json").write_text("[7]"), "calibration.json is damaged"),
        (
            lambda folder: change(folder / "calibration.json", languages="en"),
            "calibration.json is damaged: .languages.",
        ),
        (lambda folder: change(folder / "calibration.json", more=1), "calibration.json is damaged.* 'more'"),
        (lambda folder: (folder / "calibration.safetensors").unlink(), "safetensors is damaged or missing"),
        (lambda folder: (folder / "calibration.safetensors").write_bytes(b"no"), "safetensors is damaged or missing"),
        (lambda folder: VectorCalibration(*NAN).save(folder, overwrite=True), "safetensors is damaged: it holds NaN"),
    ],
)
def test_a_damaged_map_is_named(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    VectorCalibration.fit(stored()).save(tmp_path / "map")
    damage(tmp_path / "map")
    with pytest.raises(ValueError, match=rf"{tmp_path}/map/\S*{message}"):
        VectorCalibration.load(tmp_path / "map")


def test_many_languages_have_one_map() -> None:
    generator = np.random.default_rng(0)
    vectors = {f"l{i}": generator.normal(size=(50, 256)) for i in range(200)}
    assert VectorCalibration.fit(vectors).weight.shape == (1, 256, 256)
    with pytest.raises(ValueError, match="200 languages differ in all 64 dimensions, so that lsar leaves nothing"):
        VectorCalibration.fit({code: rows[:, :64] for code, rows in vectors.items()})
