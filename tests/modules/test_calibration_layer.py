from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from st_xlret.languages import language_to_id
from st_xlret.modules.calibration_layer import CalibrationLayer


@pytest.fixture
def layer() -> CalibrationLayer:
    """Three maps in two of four dimensions."""
    tensors = {
        "basis": torch.linalg.qr(torch.randn(4, 2)).Q,
        "matrix": torch.randn(3, 2, 2),
        "offset": torch.randn(3, 2),
    }
    about: dict[str, Any] = {"pivot": "en", "steps": ["shift"], "strength": 0.5, "notes": {"a": "b"}}
    return CalibrationLayer(4, ["en", "fr", "pt-br"], tensors=tensors, **about)


def features(rows: torch.Tensor, *codes: str) -> dict[str, torch.Tensor]:
    return {"sentence_embedding": rows, "language_id": torch.tensor([language_to_id(code) for code in codes])}


def test_transform_is_the_language_s_affine_map(layer: CalibrationLayer) -> None:
    rows, (weight, bias) = torch.randn(5, 4), layer.map_of("fr")
    torch.testing.assert_close(layer.transform(rows, "fr"), rows @ weight.T + bias)
    assert torch.equal(CalibrationLayer(4, ["en"]).transform(rows, "en"), rows)
    for dtype in (torch.float64, torch.bfloat16):
        assert layer.transform(rows.to(dtype), "fr").dtype == dtype
    # One matrix may serve all languages.
    shared = CalibrationLayer(4, layer.languages, tensors={**dict(layer.named_buffers()), "matrix": layer.matrix[:1]})
    assert torch.equal(shared.map_of("fr")[0], layer.map_of("en")[0]) and torch.equal(shared.map_of("fr")[1], bias)


def test_forward_maps_each_row_by_its_language_or_all_by_one(layer: CalibrationLayer) -> None:
    rows, codes = torch.randn(6, 4), ["fr", "en", "pt-br", "fr", "en", "en"]
    mapped = layer(features(rows, *codes))["sentence_embedding"]
    for row, code, result in zip(rows, codes, mapped, strict=True):
        torch.testing.assert_close(result, layer.transform(row, code))
    mapped = layer({"sentence_embedding": rows}, language="fr")["sentence_embedding"]
    torch.testing.assert_close(mapped, layer.transform(rows, "fr"))


def test_gradients_reach_the_encoder(layer: CalibrationLayer) -> None:
    rows = torch.randn(2, 4, requires_grad=True)
    layer(features(rows, "fr", "en"))["sentence_embedding"].sum().backward()
    torch.testing.assert_close(rows.grad, torch.stack([layer.map_of(code)[0].sum(0) for code in ("fr", "en")]))


def test_unknown_languages_are_named_with_the_known_ones(layer: CalibrationLayer) -> None:
    for code in ("xx", None):
        with pytest.raises(ValueError, match=f"{code}.*en, fr, pt-br"):
            layer.transform(torch.ones(1, 4), code)
    with pytest.raises(ValueError, match="'sw'.*en, fr, pt-br"):
        layer(features(torch.ones(1, 4), "sw"))
    with pytest.raises(ValueError, match="'-1'"):
        layer({"sentence_embedding": torch.ones(1, 4), "language_id": torch.tensor([-1])})
    with pytest.raises(ValueError, match="en, fr, pt-br"):
        layer({"sentence_embedding": torch.ones(1, 4)})


def test_an_agnostic_layer_needs_no_language() -> None:
    layer = CalibrationLayer(2)
    layer.offset += 2
    assert layer.language_agnostic
    for language in (None, "en", "anything"):
        assert layer.transform(torch.ones(1, 2), language).tolist() == [[3.0, 3.0]]
    assert layer(features(torch.ones(1, 2), "en"))["sentence_embedding"].tolist() == [[3.0, 3.0]]


def test_save_and_load(layer: CalibrationLayer, tmp_path: Path) -> None:
    layer.save(tmp_path / "layer")
    assert {path.name for path in (tmp_path / "layer").iterdir()} == {"calibration.json", "model.safetensors"}
    loaded = CalibrationLayer.load(tmp_path / "layer")
    assert loaded.get_config_dict() == layer.get_config_dict()
    rows = torch.randn(3, 4)
    assert torch.equal(loaded.transform(rows, "pt-br"), layer.transform(rows, "pt-br"))
    about = tmp_path / "layer" / "calibration.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"transform": 1}))
    with pytest.raises(TypeError, match="transform"):
        CalibrationLayer.load(tmp_path / "layer")
    with pytest.raises(ValueError, match=str(tmp_path)):
        CalibrationLayer.load(tmp_path)


def test_what_does_not_fit_is_named(layer: CalibrationLayer) -> None:
    with pytest.raises(ValueError, match="5 dimensions, the calibration 4"):
        layer.transform(torch.ones(1, 5), "en")
    with pytest.raises(ValueError, match="'en', 'en'"):
        CalibrationLayer(2, ["en", "en"])
    with pytest.raises(ValueError, match="4 dimensions"):
        CalibrationLayer(4, ["en"], tensors=dict(layer.named_buffers()))
