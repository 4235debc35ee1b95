"""`st-xlret export`: plain models out of checkpoints, adapters and calibrations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.commands import main
from st_xlret.modules import CalibrationLayer, train_tokenizer, transformer_encoder
from st_xlret.training.trainable import add_lora
from tests import tiny

TEXTS = ["a b c", "b d", "c a b d a"]


@pytest.fixture
def encoder(tmp_path: Path) -> SentenceTransformer:
    torch.manual_seed(0)
    model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
    model.save(str(tmp_path / "model"))
    return model


def exported(tmp_path: Path, *options: str) -> SentenceTransformer:
    main(["export", "--output", str(tmp_path / "out"), *options])
    modules = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    return SentenceTransformer(str(tmp_path / "out"), device="cpu")


def test_adapters_of_a_checkpoint_are_merged(tmp_path: Path, encoder: SentenceTransformer) -> None:
    pytest.importorskip("peft")
    encoder = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    add_lora(encoder, 4)
    for name, weight in encoder.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    expected = encoder.encode(TEXTS)
    encoder.save(str(tmp_path / "checkpoint"))
    assert list((tmp_path / "checkpoint").rglob("adapter_model.safetensors"))
    found = exported(tmp_path, "--model", str(tmp_path / "checkpoint"))
    assert not list((tmp_path / "out").rglob("adapter*"))
    np.testing.assert_allclose(found.encode(TEXTS), expected, atol=1e-4)


def test_a_calibration_becomes_a_part_of_the_model(tmp_path: Path, encoder: SentenceTransformer) -> None:
    calibration = CalibrationLayer(32, ["en", "fr"], pivot="en", steps=["shift"])
    calibration.bias[1] += 0.5
    calibration.save(str(tmp_path / "calibration"))
    given = ["--model", str(tmp_path / "model"), "--calibration", str(tmp_path / "calibration")]
    found = exported(tmp_path, *given, "--default_language", "fr")
    np.testing.assert_allclose(found.encode(TEXTS), encoder.encode(TEXTS) + 0.5, atol=1e-5)
    np.testing.assert_allclose(found.encode(TEXTS, task="en"), encoder.encode(TEXTS), atol=1e-5)


def test_half_the_size(tmp_path: Path, encoder: SentenceTransformer) -> None:
    found = exported(tmp_path, "--model", str(tmp_path / "model"), "--dtype", "bfloat16")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("out", "model")]
    assert sizes[0] < 0.6 * sizes[1]
    one, other = encoder.encode(TEXTS, normalize_embeddings=True), found.encode(TEXTS, normalize_embeddings=True)
    assert (one * other).sum(axis=1).min() > 0.99


@pytest.mark.parametrize(
    "options, named",
    [
        (["--model", "nowhere/at/all"], "nowhere/at/all"),
        (["--license", "MIT License"], "'MIT License'"),
    ],
)
def test_what_cannot_work_is_named(
    tmp_path: Path, encoder: SentenceTransformer, options: list[str], named: str
) -> None:
    with pytest.raises(SystemExit, match=named):
        main(["export", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "out"), *options])
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("value", "options"), [(float("nan"), []), (1e6, ["--dtype", "float16"])])
def test_weights_that_are_not_finite_are_not_written(tmp_path: Path, value: float, options: list[str]) -> None:
    model = tiny.static()
    with torch.no_grad():
        next(model.parameters())[0, 0] = value
    model.save(str(tmp_path / "model"))
    with pytest.raises(SystemExit, match="1 of .* NaN or infinite"):
        exported(tmp_path, "--model", str(tmp_path / "model"), *options)
    assert not (tmp_path / "out").exists()


def test_an_existing_model_stays_unless_it_is_to_be_replaced(tmp_path: Path, encoder: SentenceTransformer) -> None:
    exported(tmp_path, "--model", str(tmp_path / "model"))
    with pytest.raises(SystemExit, match="--overwrite"):
        exported(tmp_path, "--model", str(tmp_path / "model"))
    exported(tmp_path, "--model", str(tmp_path / "model"), "--overwrite")
