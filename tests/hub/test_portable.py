"""Saved models as older versions and other engines read them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer, LlamaTokenizer, ModernBertConfig

from st_xlret import export, fit_calibration, save_portable
from st_xlret.hub.lengths import pooled_rows
from st_xlret.modules import CalibrationLayer
from st_xlret.training.trainable import add_lora
from tests.tiny import static, transformer

TEXTS = ["the old house", "das alte Haus", "la vieille maison"]


def read_as_an_engine(folder: Path, texts: list[str]) -> torch.Tensor:
    """Vectors by the rules of serving engines: four names, flags of pooling, each `Dense` on the pooled vector."""
    kinds = [
        (entry["type"], folder / entry["path"])
        for entry in json.loads((folder / "modules.json").read_text())
    ]
    names = [kind.removeprefix("sentence_transformers.models.") for kind, _ in kinds]
    assert set(names) <= {"Transformer", "Pooling", "Dense", "Normalize"}, names
    limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=limit)
    tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    pooling = json.loads((kinds[names.index("Pooling")][1] / "config.json").read_text())
    mask = tokens["attention_mask"].unsqueeze(-1)
    rows = (
        hidden[:, 0] if pooling["pooling_mode_cls_token"] else (hidden * mask).sum(1) / mask.sum(1)
    )
    assert pooling["pooling_mode_cls_token"] != pooling["pooling_mode_mean_tokens"]
    for name, (_, path) in zip(names, kinds, strict=True):
        if name == "Dense":
            dense = load_file(path / "model.safetensors")
            rows = rows @ dense["linear.weight"].T + dense["linear.bias"]
    return normalize(rows) if "Normalize" in names else rows


def fitted(model: SentenceTransformer, steps: list[str], seed: int = 0) -> CalibrationLayer:
    torch.manual_seed(seed)
    middle = torch.randn(32)
    rows = {
        code: middle + torch.randn(60, 32) / 2 + 0.2 * n
        for n, code in enumerate(("en", "fr", "de"))
    }
    if isinstance(model[-1], Normalize):
        rows = {code: normalize(part) for code, part in rows.items()}
    return fit_calibration(rows, steps=steps)


def normalized() -> SentenceTransformer:
    modules, prompts = [*transformer(), Normalize()], {"query": "ask: ", "document": ""}
    return SentenceTransformer(modules=modules, prompts=prompts, device="cpu")


def build(name: str) -> SentenceTransformer:
    torch.manual_seed(1)
    if name == "two encoders":
        router = Router.for_query_document([*transformer()], [*transformer()])
        return SentenceTransformer(modules=[router], device="cpu")
    model = transformer() if name in ("mean", "cls", "rotary", "llama") else normalized()
    if name == "rotary":
        sizes: Any = {
            "vocab_size": 120,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_attention_heads": 4,
        }
        sizes["rope_parameters"] = {
            "full_attention": {"rope_theta": 50.0},
            "sliding_attention": {"rope_theta": 30.0},
        }
        model[0].model = AutoModel.from_config(ModernBertConfig(**sizes, pad_token_id=0))
        return model
    if name == "llama":
        vocabulary = {
            token: i
            for i, token in enumerate(["<unk>", "<s>", "</s>", "▁", *sorted({*"".join(TEXTS)})])
        }
        settings: Any = {"add_eos_token": True, "pad_token": "</s>", "model_max_length": 16}
        model[0].processor, model[1] = (
            LlamaTokenizer(vocabulary, [], **settings),
            Pooling(32, pooling_mode="lasttoken"),
        )
        return model
    if name == "cls":
        model[1] = Pooling(32, pooling_mode="cls")
    queries = fitted(model, ["lsar"], seed=1) if name == "by role" else None
    return export(
        model, fitted(model, ["lsar"]), query_calibration=queries, pooled=pooled_rows(model, TEXTS)
    )


@pytest.mark.parametrize("name", ["mean", "cls", "before the normalize", "by role", "two encoders"])
def test_an_engine_that_knows_four_names_gives_the_vectors_of_encode(
    name: str, tmp_path: Path
) -> None:
    model, first, second = build(name), tmp_path / "first", tmp_path / "second"
    save_portable(model, first)
    loaded = SentenceTransformer(str(first), device="cpu")
    for role in ("query", "document"):
        folder = first / role if (first / role).is_dir() else first
        vectors = getattr(model, f"encode_{role}")(TEXTS)
        prompt = model.prompts.get(role) or ""
        np.testing.assert_allclose(
            read_as_an_engine(folder, [prompt + text for text in TEXTS]), vectors, atol=1e-6
        )
        assert np.array_equal(getattr(loaded, f"encode_{role}")(TEXTS), vectors)
        if folder != first:
            assert np.array_equal(
                SentenceTransformer(str(folder), device="cpu").encode(TEXTS), vectors
            )
    # Settings keep their old names when they are read and saved again.
    save_portable(loaded, second)
    for file in (
        first / "modules.json",
        *first.glob("?_*/*config.json"),
        *first.glob("sentence_bert_config.json"),
    ):
        assert (second / file.relative_to(first)).read_text() == file.read_text()
    assert not any(
        "TokenizersBackend" in file.read_text() for file in first.rglob("tokenizer_config.json")
    )


def test_a_map_stands_before_the_normalize_where_that_costs_little(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = normalized()
    layer, pooled = fitted(model, ["lsar"]), pooled_rows(model, TEXTS)
    exact, fast = export(model, layer), export(model, layer, pooled=pooled)
    assert [type(module) for module in fast] == [Transformer, Pooling, Dense, Normalize]
    assert (exact.encode(TEXTS) * fast.encode(TEXTS)).sum(1).min() > 0.999
    uneven = {role: rows * torch.tensor([[0.2], [1], [5]]) for role, rows in pooled.items()}
    behind = export(model, layer, pooled=uneven)
    assert [type(module) for module in behind] == [
        Transformer,
        Pooling,
        Normalize,
        Dense,
        Normalize,
    ]
    assert "lengths of pooled vectors vary" in caplog.text
    np.testing.assert_array_equal(behind.encode(TEXTS), exact.encode(TEXTS))


def test_what_has_no_old_form_keeps_its_own(tmp_path: Path) -> None:
    by_language = export(normalized(), fitted(normalized(), ["shift"]))
    save_portable(by_language, tmp_path)
    assert json.loads((tmp_path / "3_Router/router_config.json").read_text())["parameters"][
        "route_mappings"
    ]
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS, task="fr")
    assert np.array_equal(vectors, by_language.encode(TEXTS, task="fr"))
    several = SentenceTransformer(
        modules=[transformer()[0], Pooling(32, pooling_mode=("mean", "cls"))], device="cpu"
    )
    save_portable(several, tmp_path / "several")
    loaded = SentenceTransformer(str(tmp_path / "several"), device="cpu")
    assert np.array_equal(loaded.encode(TEXTS), several.encode(TEXTS))


def test_adapters_are_merged_and_settings_have_their_old_names(tmp_path: Path) -> None:
    save_portable(build("rotary"), tmp_path / "rotary")
    config = json.loads((tmp_path / "rotary" / "config.json").read_text())
    assert (config["rope_theta"], config["global_rope_theta"], config["local_rope_theta"]) == (
        50,
        50,
        30,
    )
    assert config["rotary_emb_base"] == 50
    model = build("llama")
    add_lora(model, 2)
    torch.nn.init.ones_(
        next(weight for name, weight in model.named_parameters() if "lora_B" in name)
    )
    save_portable(model, tmp_path / "llama")
    assert "PreTrainedTokenizerFast" in (tmp_path / "llama/tokenizer_config.json").read_text()
    vectors = SentenceTransformer(str(tmp_path / "llama"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, model.encode(TEXTS), atol=1e-5)
    assert not list(tmp_path.rglob("adapter*")) and model[0].model.peft_config
    save_portable(model := static(), tmp_path)
    assert "sentence_transformers.models.StaticEmbedding" in (tmp_path / "modules.json").read_text()
    model[0].embedding.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        save_portable(model, tmp_path)


PYTHONS = [path for path in os.environ.get("XLRET_OLD_PYTHONS", "").split(os.pathsep) if path]


@pytest.mark.skipif(
    not PYTHONS, reason="XLRET_OLD_PYTHONS names no interpreters with older Sentence Transformers"
)
@pytest.mark.parametrize("python", PYTHONS or [""])
@pytest.mark.parametrize(
    "name", ["llama", "cls", "before the normalize", "by role/query", "rotary"]
)
def test_older_versions_give_the_same_bits(python: str, name: str, tmp_path: Path) -> None:
    file, (name, _, role) = tmp_path / "vectors.npy", name.partition("/")
    save_portable(build(name), tmp_path / "model")
    folder = tmp_path / "model" / role
    program = (
        "import sys, numpy; from sentence_transformers import SentenceTransformer as S\n"
        "numpy.save(sys.argv[2], S(sys.argv[1], device='cpu').encode(sys.argv[3:]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [python, "-c", program, folder, file, *TEXTS], check=True, cwd=tmp_path, env=environment
    )
    assert np.array_equal(
        np.load(file), SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    )
