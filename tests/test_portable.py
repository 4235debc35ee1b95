"""Saved models as older versions and other engines read them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from st_xlret import export, fit_calibration, save_portable
from st_xlret.hub.export import pooled_rows
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


def calibration(model: SentenceTransformer, steps: list[str], seed: int = 0):
    torch.manual_seed(seed)
    middle = torch.randn(model.get_embedding_dimension())
    rows = {code: middle + torch.randn(60, len(middle)) / 2 + 0.2 * n for n, code in enumerate(("en", "fr", "de"))}
    ends_normalized = isinstance(model[-1], Normalize)
    return fit_calibration(
        {code: normalize(part) if ends_normalized else part for code, part in rows.items()}, steps=steps
    )


def normalized() -> SentenceTransformer:
    model = transformer()
    model.append(Normalize())
    return SentenceTransformer(modules=[*model], prompts={"query": "ask: ", "document": ""}, device="cpu")


def one_map(pooling: str) -> SentenceTransformer:
    model = transformer()
    model[1] = Pooling(model[1].get_embedding_dimension(), pooling_mode=pooling)
    return export(model, calibration(model, ["lsar"]))


def before_normalize() -> SentenceTransformer:
    model = normalized()
    return export(model, calibration(model, ["lsar"]), pooled=pooled_rows(model, TEXTS))


def by_role() -> SentenceTransformer:
    model = normalized()
    maps = {"calibration": calibration(model, ["lsar"]), "query_calibration": calibration(model, ["lsar"], seed=1)}
    return export(model, **maps, pooled=pooled_rows(model, TEXTS))


def two_encoders() -> SentenceTransformer:
    router = Router.for_query_document([*transformer()], [*transformer()])
    return SentenceTransformer(modules=[router], device="cpu")


MODELS: dict[str, Callable[[], SentenceTransformer]] = {
    "mean": partial(one_map, "mean"),
    "cls": partial(one_map, "cls"),
    "before the normalize": before_normalize,
    "by role": by_role,
    "two encoders": two_encoders,
}


@pytest.mark.parametrize("name", MODELS)
def test_an_engine_that_knows_four_names_gives_the_vectors_of_encode(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = MODELS[name]()
    save_portable(model, tmp_path)
    for role in ("query", "document"):
        folder = tmp_path / role if (tmp_path / role).is_dir() else tmp_path
        vectors = getattr(model, f"encode_{role}")(TEXTS)
        prompt = model.prompts.get(role) or ""
        np.testing.assert_allclose(read_as_an_engine(folder, [prompt + text for text in TEXTS]), vectors, atol=1e-6)
        if folder != tmp_path:
            np.testing.assert_array_equal(SentenceTransformer(str(folder), device="cpu").encode(TEXTS), vectors)
        assert np.array_equal(
            getattr(SentenceTransformer(str(tmp_path), device="cpu"), f"encode_{role}")(TEXTS), vectors
        )


def test_a_map_stands_before_the_normalize_where_that_costs_little(caplog: pytest.LogCaptureFixture) -> None:
    model = normalized()
    layer, pooled = calibration(model, ["lsar"]), pooled_rows(model, TEXTS)
    exact, fast = export(model, layer), export(model, layer, pooled=pooled)
    assert [type(module) for module in fast] == [Transformer, Pooling, Dense, Normalize]
    assert (exact.encode(TEXTS) * fast.encode(TEXTS)).sum(1).min() > 0.999
    uneven = {role: rows * torch.tensor([[0.2], [1], [5]]) for role, rows in pooled.items()}
    kept = export(model, layer, pooled=uneven)
    assert [type(module) for module in kept] == [Transformer, Pooling, Normalize, Dense, Normalize]
    assert "lengths of pooled vectors vary" in caplog.text
    np.testing.assert_array_equal(kept.encode(TEXTS), exact.encode(TEXTS))


@pytest.fixture(scope="module", params=["mean", "cls", "before the normalize"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    torch.manual_seed(1)
    model, folder = MODELS[request.param](), tmp_path_factory.mktemp("portable") / request.param
    save_portable(model, folder)
    return folder, model.encode(TEXTS)


def test_this_version_reads_the_old_form_and_saves_it_again(saved: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, vectors = saved
    model = SentenceTransformer(str(folder), device="cpu")
    assert [type(module) for module in model][:3] == [Transformer, Pooling, Dense]
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
    model = normalized()
    by_language = export(model, calibration(model, ["shift"]))
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
