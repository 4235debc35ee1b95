"""`st-xlret export`: plain models out of checkpoints, adapters and calibrations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize

from st_xlret import VectorCalibration
from st_xlret.calibration.steps import Maps
from st_xlret.commands import main
from st_xlret.training.trainable import add_lora
from tests import tiny

TEXTS = ["sun moon star", "wind snow", "tree leaf root fish bird"]


def exported(tmp_path: Path, *options: str, model: str = "model") -> SentenceTransformer:
    main(["export", str(tmp_path / model), "--output", str(tmp_path / "out"), *options])
    return SentenceTransformer(str(tmp_path / "out"), device="cpu")


def test_adapters_of_a_checkpoint_are_merged_in_half_the_size(
    tmp_path: Path, encoder: Path
) -> None:
    pytest.importorskip("peft")
    adapted = SentenceTransformer(str(encoder), device="cpu")
    add_lora(adapted, 4)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    adapted.save(str(tmp_path / "checkpoint"))

    half = exported(tmp_path, "--dtype", "bfloat16", model="checkpoint")
    assert not list((tmp_path / "out").rglob("adapter*"))
    size = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert size < 0.6 * (encoder / "model.safetensors").stat().st_size
    before = adapted.encode(TEXTS, normalize_embeddings=True)
    after = half.encode(TEXTS, normalize_embeddings=True)
    assert (before * after).sum(axis=1).min() > 0.99


@pytest.mark.parametrize("queries_only", [False, True])
def test_a_saved_map_becomes_a_part_of_the_model_that_it_names(
    tmp_path: Path, encoder: Path, queries_only: bool
) -> None:
    generator = np.random.default_rng(0)
    clouds = {
        "en": generator.normal(1, 1, (60, 32)),
        "fr": generator.normal(-1, 1, (60, 32)),
    }
    calibration = VectorCalibration.fit(
        clouds, queries_only=queries_only, normalize=False, model=str(encoder)
    )
    calibration.save(tmp_path / "map")

    out = tmp_path / "out"
    options = ["--calibration", str(tmp_path / "map"), "--license", "mit"]
    main(["export", "--output", str(out), *options])
    model = SentenceTransformer(str(out), device="cpu")
    vectors = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    of_queries = calibration.transform(vectors, "query")
    of_documents = calibration.transform(vectors, "document")
    np.testing.assert_allclose(model.encode_query(TEXTS), of_queries, atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), of_documents, atol=1e-5)
    assert ModelCard.load(out / "README.md").data.license == "mit"


def test_a_map_stands_before_the_normalize_only_where_the_lengths_of_the_users_texts_allow_it(
    tmp_path: Path,
) -> None:
    encoder = SentenceTransformer(modules=[*tiny.static(), Normalize()], device="cpu")
    encoder.save(str(tmp_path / "model"))
    maps = Maps(None, np.ones((1, 1)))
    calibration = VectorCalibration(np.eye(8)[:, :1], maps, model=str(tmp_path / "model"))
    calibration.save(tmp_path / "map")
    texts = [" ".join(tiny.WORDS[:length]) for length in range(1, 14)]
    files = [tmp_path / "en.txt", tmp_path / "fr.txt"]
    for file in files:
        file.write_text("\n".join(texts))

    documents = ["--documents", *map(str, files)]
    model = exported(tmp_path, "--calibration", str(tmp_path / "map"), *documents)
    expected = calibration.transform(encoder.encode(texts), "document")
    np.testing.assert_allclose(model.encode(texts), expected, atol=1e-5)


@pytest.mark.parametrize(("value", "options"), [(float("nan"), []), (1e6, ["--dtype", "float16"])])
def test_weights_that_are_not_finite_are_not_written(
    tmp_path: Path, value: float, options: list[str]
) -> None:
    model = tiny.static()
    next(model.parameters()).data[0, 0] = value
    model.save(str(tmp_path / "model"))
    with pytest.raises(SystemExit, match="1 of .* NaN or infinite"):
        exported(tmp_path, *options)
    assert not (tmp_path / "out").exists()
