"""Saved models as older versions and other engines read them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from st_xlret import export, fit_calibration, save_portable
from tests.tiny import transformer

TEXTS = ["the old house", "das alte Haus", "la vieille maison"]


def read_as_an_engine(folder: Path, texts: list[str]) -> torch.Tensor:
    """Vectors by the rules of serving engines: four names, flags of pooling, each `Dense` on the pooled vector."""
    kinds = [(entry["type"], folder / entry["path"]) for entry in json.loads((folder / "modules.json").read_text())]
    names = [kind.removeprefix("sentence_transformers.models.") for kind, _ in kinds]
    assert set(names) <= {"Transformer", "Pooling", "Dense", "Normalize"}, names
    limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokens = AutoTokenizer.from_pretrained(folder)(
        texts, padding=True, truncation=True, max_length=limit, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    pooling = json.loads((kinds[names.index("Pooling")][1] / "config.json").read_text())
    mask = tokens["attention_mask"].unsqueeze(-1)
    if pooling["pooling_mode_cls_token"]:
        rows = hidden[:, 0]
    else:
        assert pooling["pooling_mode_mean_tokens"]
        rows = (hidden * mask).sum(1) / mask.sum(1)
    for name, (_, path) in zip(names, kinds, strict=True):
        if name == "Dense":
            dense = load_file(path / "model.safetensors")
            rows = rows @ dense["linear.weight"].T + dense["linear.bias"]
    return normalize(rows) if "Normalize" in names else rows


def calibration(width: int, steps: list[str]):
    torch.manual_seed(0)
    rows = {code: torch.randn(60, width) + shift for shift, code in enumerate(("en", "fr", "de"))}
    return fit_calibration(rows, steps=steps)


@pytest.fixture(scope="module", params=["mean", "cls"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    torch.manual_seed(1)
    model = transformer()
    model[1] = Pooling(model[1].get_embedding_dimension(), pooling_mode=request.param)
    model = export(model, calibration(model[1].get_embedding_dimension(), ["lsar"]))
    folder = tmp_path_factory.mktemp("portable") / request.param
    save_portable(model, folder)
    return folder, model.encode(TEXTS)


def test_an_engine_that_knows_four_names_gives_the_vectors_of_encode(saved: tuple[Path, np.ndarray]) -> None:
    folder, vectors = saved
    np.testing.assert_allclose(read_as_an_engine(folder, TEXTS), vectors, atol=1e-6)


def test_this_version_reads_the_old_form_and_saves_it_again(saved: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, vectors = saved
    model = SentenceTransformer(str(folder), device="cpu")
    assert [type(module) for module in model] == [Transformer, Pooling, Dense]
    assert np.array_equal(model.encode(TEXTS), vectors)
    save_portable(model, tmp_path)
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json"):
        assert (tmp_path / name).read_text() == (folder / name).read_text()


def test_settings_have_their_old_names(saved: tuple[Path, np.ndarray]) -> None:
    folder, _ = saved
    dense = json.loads((folder / "2_Dense/config.json").read_text())
    assert set(dense) == {"in_features", "out_features", "bias", "activation_function"}
    assert json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"] != "TokenizersBackend"


def test_what_has_no_old_form_keeps_its_own(tmp_path: Path) -> None:
    model = transformer()
    model.append(Normalize())
    by_language = export(model, calibration(model[1].get_embedding_dimension(), ["shift"]))
    save_portable(by_language, tmp_path)
    assert json.loads((tmp_path / "3_Router/router_config.json").read_text())["parameters"]["route_mappings"]
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS, task="fr")
    assert np.array_equal(vectors, by_language.encode(TEXTS, task="fr"))


PYTHONS = [path for path in os.environ.get("XLRET_OLD_PYTHONS", "").split(os.pathsep) if path]


@pytest.mark.skipif(not PYTHONS, reason="XLRET_OLD_PYTHONS names no interpreters with older Sentence Transformers")
@pytest.mark.parametrize("python", PYTHONS or [""])
def test_older_versions_give_the_same_bits(python: str, saved: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, _ = saved
    program = (
        "import sys, numpy; from sentence_transformers import SentenceTransformer as S\n"
        "numpy.save(sys.argv[2], S(sys.argv[1], device='cpu').encode(sys.argv[3:]))"
    )
    target = tmp_path / "vectors.npy"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-c", program, folder, target, *TEXTS], check=True, cwd=tmp_path, env=environment)
    now = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.array_equal(np.load(target), now)
