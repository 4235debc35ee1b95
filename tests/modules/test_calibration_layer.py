from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.languages import language_to_id
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests import tiny


@pytest.fixture
def layer() -> CalibrationLayer:
    """Three maps in two of four dimensions."""
    basis = torch.linalg.qr(torch.randn(4, 2)).Q
    matrix = torch.randn(3, 2, 2)
    offset = torch.randn(3, 2)
    tensors = {"basis": basis.contiguous(), "matrix": matrix, "offset": offset}
    about: dict[str, Any] = {
        "pivot": "en",
        "steps": ["shift"],
        "strength": 0.5,
        "notes": {"a": "b"},
    }
    return CalibrationLayer(4, ["en", "fr", "pt-br"], tensors=tensors, **about)


def features(rows: torch.Tensor, *codes: str) -> dict[str, torch.Tensor]:
    return {
        "sentence_embedding": rows,
        "language_id": torch.tensor([language_to_id(code) for code in codes]),
    }


def test_transform_is_the_language_s_affine_map(layer: CalibrationLayer) -> None:
    rows = torch.randn(5, 4)
    weight, bias = layer.map_of("fr")
    torch.testing.assert_close(layer.transform(rows, "fr"), rows @ weight.T + bias)
    assert torch.equal(CalibrationLayer(4, ["en"]).transform(rows, "en"), rows)
    assert all(
        layer.transform(rows.to(dtype), "fr").dtype == dtype
        for dtype in (torch.float64, torch.bfloat16)
    )
    # One matrix may serve all languages.
    shared = CalibrationLayer(
        4, layer.languages, tensors={**dict(layer.named_buffers()), "matrix": layer.matrix[:1]}
    )
    assert torch.equal(shared.map_of("fr")[0], layer.map_of("en")[0]) and torch.equal(
        shared.map_of("fr")[1], bias
    )


def test_forward_maps_each_row_by_its_language_or_all_by_one_and_gradients_pass(
    layer: CalibrationLayer,
) -> None:
    rows = torch.randn(6, 4, requires_grad=True)
    codes = ["fr", "en", "pt-br", "fr", "en", "en"]
    mapped = layer(features(rows, *codes))["sentence_embedding"]
    torch.testing.assert_close(
        mapped, torch.stack([layer.transform(*each) for each in zip(rows, codes, strict=True)])
    )
    mapped.sum().backward()
    torch.testing.assert_close(
        rows.grad, torch.stack([layer.map_of(code)[0].sum(0) for code in codes])
    )
    mapped = layer({"sentence_embedding": rows}, language="fr")["sentence_embedding"]
    torch.testing.assert_close(mapped, layer.transform(rows, "fr"))


def test_an_agnostic_layer_needs_no_language_and_the_host_loads_it(tmp_path: Path) -> None:
    layer = CalibrationLayer(2)
    layer.offset += 2
    assert layer.language_agnostic and layer.transform(torch.ones(1, 2), "anything").tolist() == [
        [3.0, 3.0]
    ]
    assert layer(features(torch.ones(1, 2), "en"))["sentence_embedding"].tolist() == [[3.0, 3.0]]
    SentenceTransformer(modules=[*tiny.static(features=2), layer], device="cpu").save_pretrained(
        str(tmp_path)
    )
    loaded = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    assert loaded.encode("sun").tolist() == (tiny.static(features=2).encode("sun") + 2).tolist()


def test_what_does_not_fit_is_named(layer: CalibrationLayer) -> None:
    for inputs, language, message in (
        ({"sentence_embedding": torch.ones(1, 4)}, None, "None"),
        ({"sentence_embedding": torch.ones(1, 4)}, "xx", "'xx'.*maps for en"),
        (features(torch.ones(1, 4), "sw"), None, "'sw'"),
        ({"sentence_embedding": torch.ones(1, 4), "language_id": torch.tensor([-1])}, None, "-1"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(inputs, language=language)
    for dimension, codes in ((4, ["en"]), (5, layer.languages), (4, ["en", "en", "fr"])):
        with pytest.raises(ValueError, match=f"{dimension} dimensions.*{codes[-1]}"):
            CalibrationLayer(dimension, codes, tensors=dict(layer.named_buffers()))
