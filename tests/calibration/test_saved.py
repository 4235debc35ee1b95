"""A calibration as it is applied by NumPy alone, saved for any language, and damaged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from st_xlret import CalibrationLayer, VectorCalibration
from st_xlret.calibration.steps import Maps
from tests.calibration.clouds import CODES, clouds

DOCUMENTS = clouds()
QUERIES = clouds(1, offset=3.0)
ROLES: tuple[Any, ...] = ("document", "query")
WAYS: list[dict[str, Any]] = [
    {},
    {"steps": ["shift"]},
    {"queries_only": True},
    {"steps": ["coral"]},
]


def fit(steps: str = "lsar", **how: Any) -> VectorCalibration:
    """A calibration of vectors as they are, whatever their lengths."""
    return VectorCalibration.fit(DOCUMENTS, steps=[steps], normalize=False, **how)


def map_by_language(calibration: VectorCalibration, role: Any) -> NDArray:
    parts = [calibration.transform(rows, role, code) for code, rows in DOCUMENTS.items()]
    return np.concatenate(parts)


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize("how", WAYS)
def test_a_saved_map_is_the_same(queries: dict | None, how: dict, tmp_path: Path) -> None:
    calibration = VectorCalibration.fit(
        DOCUMENTS, queries=queries, model="me/encoder", metric="cosine", **how
    )
    loaded = VectorCalibration.load(calibration.save(tmp_path / "map"))
    with pytest.raises(ValueError, match="one strength"):
        loaded.at(calibration.strength / 2)
    assert loaded.metadata() == calibration.metadata()
    assert loaded.fingerprint == calibration.fingerprint
    rows = np.concatenate(list(DOCUMENTS.values()))
    codes = np.repeat(CODES, 80).tolist()
    for role in ROLES:
        mapped = map_by_language(calibration, role)
        np.testing.assert_allclose(loaded.transform(rows, role, codes), mapped, atol=1e-6)
    with pytest.raises(FileExistsError, match="map"):
        calibration.save(tmp_path / "map")


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize("how", WAYS)
def test_a_map_of_labelled_rows_is_that_of_languages(queries: dict | None, how: dict) -> None:
    calibration = VectorCalibration.fit(DOCUMENTS, queries=queries, **how)
    rows = np.concatenate(list(DOCUMENTS.values()))
    codes = np.repeat(CODES, 80).tolist()
    of_rows = VectorCalibration.fit(rows, codes, queries=queries, **how)
    for role in ROLES:
        mapped = map_by_language(calibration, role)
        np.testing.assert_allclose(of_rows.transform(rows, role, codes), mapped, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-6), (torch.float32, 1e-6), (torch.float16, 1e-2), (torch.bfloat16, 1e-1)],
)
def test_tensors_are_mapped_as_a_model_of_any_device_and_format_gives_them(
    dtype: torch.dtype, tolerance: float
) -> None:
    calibration = fit()
    rows = DOCUMENTS["en"]
    tensor: Any = torch.from_numpy(rows).to(dtype).requires_grad_()
    mapped = calibration.transform(tensor)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(mapped, calibration.transform(rows), atol=tolerance)


PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(["torch", "st_xlret", "sentence_transformers"]))
import numpy
x = numpy.array({vector})
map = 1
{lines}
print(x.tolist())
"""


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize("how", WAYS)
def test_the_program_of_the_readme_needs_numpy_and_safetensors_alone(
    queries: dict | None, how: dict, tmp_path: Path
) -> None:
    calibration = VectorCalibration.fit(DOCUMENTS, queries=queries, **how)
    folder = calibration.save(tmp_path / "map")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "pip install numpy safetensors" in text
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]

    vector = 7 * DOCUMENTS["en"][3]  # of any length; English has map 1
    program = PROGRAM.format(vector=vector.tolist(), lines="\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = calibration.transform(vector, "query", "en")
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-6)


def test_a_saved_map_is_a_layer_and_a_saved_layer_a_map(tmp_path: Path) -> None:
    calibration = fit("shift", queries=QUERIES, strength=0.5, model="me/encoder")
    layer = CalibrationLayer.load(calibration.save(tmp_path / "map"))
    layer.save(tmp_path / "layer")
    again = VectorCalibration.load(tmp_path / "layer")
    assert again.metadata() == calibration.metadata()

    rows = DOCUMENTS["fr"].astype(np.float32)
    expected = calibration.transform(rows, "document", "fr")
    np.testing.assert_array_equal(again.transform(rows, "document", "fr"), expected)
    np.testing.assert_allclose(layer.transform(rows, "fr"), expected, atol=1e-6)
    of_documents = calibration.layer().transform(rows, "fr")
    np.testing.assert_allclose(of_documents, expected, atol=1e-6)
    of_queries = calibration.layer("query").transform(rows, "fr")
    as_queries = calibration.transform(rows, "query", "fr")
    np.testing.assert_allclose(of_queries, as_queries, atol=1e-6)


def test_a_layer_of_one_map_needs_no_language_and_stays_where_queries_alone_are_mapped() -> None:
    assert not VectorCalibration.fit(DOCUMENTS, normalize=False).layer().languages
    of_documents = fit(queries_only=True).layer()
    assert torch.equal(of_documents.transform(torch.ones(12)), torch.ones(12))


@pytest.mark.parametrize(
    ("vectors", "role", "language", "message"),
    [
        (np.ones(7), "query", None, r"\(7,\)"),
        (np.full((2, 12), np.nan), "query", "en", "2 of 2"),
        (np.ones(12), "query", None, "None.*de, en, fr, sw"),
        (np.ones(12), "query", "ja", "ja.*de, en, fr, sw"),
        (np.ones((2, 12)), "query", ["en"], "1 languages"),
        (np.ones(12), "passage", None, "'passage'"),
    ],
)
def test_vectors_that_cannot_be_mapped_are_named(
    vectors: NDArray, role: Any, language: Any, message: str
) -> None:
    calibration = VectorCalibration.fit(DOCUMENTS, steps=["shift"])
    with pytest.raises(ValueError, match=message):
        calibration.transform(vectors, role, language)


def test_a_folder_without_a_map_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        VectorCalibration.load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[7]"])
def test_a_damaged_description_is_named(content: str, tmp_path: Path) -> None:
    folder = fit().save(tmp_path / "map")
    (folder / "calibration.json").write_text(content)
    with pytest.raises(ValueError, match=f"{tmp_path}/map"):
        VectorCalibration.load(folder)


@pytest.mark.parametrize("entries", [{"dimension": 5}, {"languages": ["en", "fr"]}, {"more": 1}])
def test_a_description_of_another_map_is_named(entries: dict, tmp_path: Path) -> None:
    folder = fit().save(tmp_path / "map")
    about = folder / "calibration.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), **entries}))
    with pytest.raises(ValueError, match=f"{tmp_path}/map"):
        VectorCalibration.load(folder)


def test_missing_or_damaged_tensors_are_named(tmp_path: Path) -> None:
    folder = fit().save(tmp_path / "map")
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=f"{tmp_path}/map"):
        VectorCalibration.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=f"{tmp_path}/map"):
        VectorCalibration.load(folder)


def test_tensors_that_are_not_finite_are_named(tmp_path: Path) -> None:
    not_finite = Maps(None, np.full((1, 12), np.nan))
    folder = VectorCalibration(np.eye(12), not_finite).save(tmp_path / "map")
    with pytest.raises(ValueError, match=f"{tmp_path}/map"):
        VectorCalibration.load(folder)
