from __future__ import annotations

from pathlib import Path

import pytest
import torch

from st_xlret.languages import language_to_id
from st_xlret.modules.calibration_layer import CalibrationLayer


@pytest.fixture
def layer() -> CalibrationLayer:
    layer = CalibrationLayer(4, ["en", "fr", "pt-br"], pivot="en", steps=["shift"], strength=0.5, notes={"a": "b"})
    layer.weight.copy_(torch.randn(3, 4, 4))
    layer.bias.copy_(torch.randn(3, 4))
    return layer


def test_transform_is_the_language_s_affine_map(layer: CalibrationLayer) -> None:
    rows = torch.randn(5, 4)
    expected = torch.stack([layer.weight[1] @ row + layer.bias[1] for row in rows])
    torch.testing.assert_close(layer.transform(rows, "fr"), expected)


def test_a_new_layer_changes_nothing() -> None:
    rows = torch.randn(5, 4)
    torch.testing.assert_close(CalibrationLayer(4, ["en"]).transform(rows, "en"), rows)


def test_forward_maps_each_row_by_its_language(layer: CalibrationLayer) -> None:
    rows, codes = torch.randn(6, 4), ["fr", "en", "pt-br", "fr", "en", "en"]
    features = {"sentence_embedding": rows, "language_id": torch.tensor([language_to_id(c) for c in codes])}
    mapped = layer(features)["sentence_embedding"]
    for row, code, result in zip(rows, codes, mapped, strict=True):
        torch.testing.assert_close(result, layer.transform(row, code))


def test_forward_takes_one_language_for_the_batch(layer: CalibrationLayer) -> None:
    rows = torch.randn(2, 4)
    mapped = layer({"sentence_embedding": rows}, language="fr")["sentence_embedding"]
    torch.testing.assert_close(mapped, layer.transform(rows, "fr"))


def test_gradients_reach_the_encoder(layer: CalibrationLayer) -> None:
    rows = torch.randn(2, 4, requires_grad=True)
    identifiers = torch.tensor([language_to_id("fr"), language_to_id("en")])
    layer({"sentence_embedding": rows, "language_id": identifiers})["sentence_embedding"].sum().backward()
    torch.testing.assert_close(rows.grad, torch.stack([layer.weight[1].sum(0), layer.weight[0].sum(0)]))


def test_unknown_languages_are_named_with_the_known_ones(layer: CalibrationLayer) -> None:
    with pytest.raises(ValueError, match="'xx'.*en, fr, pt-br"):
        layer.transform(torch.ones(1, 4), "xx")
    with pytest.raises(ValueError, match="None.*en, fr, pt-br"):
        layer.transform(torch.ones(1, 4))
    features = {"sentence_embedding": torch.ones(1, 4), "language_id": torch.tensor([language_to_id("sw")])}
    with pytest.raises(ValueError, match="'sw'.*en, fr, pt-br"):
        layer(features)
    features["language_id"] = torch.tensor([-1])
    with pytest.raises(ValueError, match="'-1'"):
        layer(features)
    with pytest.raises(ValueError, match="en, fr, pt-br"):
        layer({"sentence_embedding": torch.ones(1, 4)})


def test_an_agnostic_layer_needs_no_language() -> None:
    layer = CalibrationLayer(2)
    layer.weight.mul_(3)
    assert layer.language_agnostic
    for language in (None, "en", "anything"):
        assert layer.transform(torch.ones(1, 2), language).tolist() == [[3.0, 3.0]]
    assert layer({"sentence_embedding": torch.ones(1, 2)})["sentence_embedding"].tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dtype_of_the_embeddings_is_kept(layer: CalibrationLayer, dtype: torch.dtype) -> None:
    assert layer.transform(torch.ones(2, 4, dtype=dtype), "fr").dtype == dtype


def test_save_and_load(layer: CalibrationLayer, tmp_path: Path) -> None:
    layer.save(tmp_path / "layer")
    assert {path.name for path in (tmp_path / "layer").iterdir()} == {
        "calibration_config.json",
        "model.safetensors",
    }
    loaded = CalibrationLayer.load(tmp_path / "layer")
    assert loaded.get_config_dict() == layer.get_config_dict()
    assert torch.equal(loaded.weight, layer.weight) and torch.equal(loaded.bias, layer.bias)
    rows = torch.randn(3, 4)
    assert torch.equal(loaded.transform(rows, "pt-br"), layer.transform(rows, "pt-br"))


def test_load_says_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(tmp_path)):
        CalibrationLayer.load(tmp_path)


def test_pickle_is_refused(layer: CalibrationLayer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="safetensors only"):
        layer.save(tmp_path, safe_serialization=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dimension": 0}, "got 0"),
        ({"dimension": 2, "languages": ["en", "en"]}, "twice"),
        ({"dimension": 2, "languages": ["fr"], "pivot": "en"}, "'en'.*fr"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CalibrationLayer(**arguments)


def test_another_size_is_named(layer: CalibrationLayer) -> None:
    with pytest.raises(ValueError, match="5 dimensions, the calibration 4"):
        layer.transform(torch.ones(1, 5), "en")
