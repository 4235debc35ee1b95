"""Saved models as older versions and other engines read them."""

import json
import os
import subprocess
from pathlib import Path

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

from st_xlret import VectorCalibration, export, save_portable
from st_xlret.hub.lengths import pooled_rows
from st_xlret.modules import CalibrationLayer
from st_xlret.modules.adapters import merge_adapters
from st_xlret.training.trainable import add_lora
from tests.tiny import static, transformer

TEXTS = ["the old house", "das alte Haus", "la vieille maison"]


def read_as_an_engine(folder: Path, texts: list[str]) -> torch.Tensor:
    """Vectors by the rules of serving engines.

    They know four names, flags of pooling, and apply each `Dense` to the pooled vector.
    """
    modules = {}
    for module in json.loads((folder / "modules.json").read_text()):
        name = module["type"].removeprefix("sentence_transformers.models.")
        assert name in {"Transformer", "Pooling", "Dense", "Normalize"}
        modules[name] = folder / module["path"]
    limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=limit)
    tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state

    pooling = json.loads((modules["Pooling"] / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"] != pooling["pooling_mode_mean_tokens"]
    mask = tokens["attention_mask"].unsqueeze(-1)
    rows = (hidden * mask).sum(1) / mask.sum(1)
    if pooling["pooling_mode_cls_token"]:
        rows = hidden[:, 0]
    if "Dense" in modules:
        dense = load_file(modules["Dense"] / "model.safetensors")
        rows = rows @ dense["linear.weight"].T + dense["linear.bias"]
    return normalize(rows) if "Normalize" in modules else rows


def fitted(model: SentenceTransformer, steps: list[str], seed: int = 0) -> CalibrationLayer:
    torch.manual_seed(seed)
    middle = torch.randn(32)
    rows = {}
    for number, code in enumerate(("en", "fr", "de")):
        rows[code] = middle + torch.randn(60, 32) / 2 + 0.2 * number
    if isinstance(model[-1], Normalize):
        rows = {code: normalize(part) for code, part in rows.items()}
    return VectorCalibration.fit(rows, steps=steps, normalize=False).layer()


def normalized() -> SentenceTransformer:
    return SentenceTransformer(
        modules=[*transformer(), Normalize()],
        prompts={"query": "ask: ", "document": ""},
        device="cpu",
    )


def with_cls_pooling() -> SentenceTransformer:
    model = transformer()
    model[1] = Pooling(32, pooling_mode="cls")
    return model


def with_map_before_the_normalize() -> SentenceTransformer:
    model = normalized()
    return export(model, fitted(model, ["lsar"]), pooled=pooled_rows(model, TEXTS))


def with_maps_by_role() -> SentenceTransformer:
    model = normalized()
    return export(
        model,
        fitted(model, ["lsar"]),
        query_calibration=fitted(model, ["lsar"], seed=1),
        pooled=pooled_rows(model, TEXTS),
    )


def with_two_encoders() -> SentenceTransformer:
    router = Router.for_query_document([*transformer()], [*transformer()])
    return SentenceTransformer(modules=[router], device="cpu")


def with_rotary_positions() -> SentenceTransformer:
    model = transformer()
    config = ModernBertConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=4,
        pad_token_id=0,
        rope_parameters={
            "full_attention": {"rope_theta": 50.0},
            "sliding_attention": {"rope_theta": 30.0},
        },
    )
    model[0].model = AutoModel.from_config(config)
    return model


def with_tokens_of_llama() -> SentenceTransformer:
    letters = sorted(set("".join(TEXTS)))
    tokens = ["<unk>", "<s>", "</s>", "▁", *letters]
    model = transformer()
    model[0].processor = LlamaTokenizer(
        {token: number for number, token in enumerate(tokens)},
        [],
        add_eos_token=True,
        pad_token="</s>",
        model_max_length=16,
    )
    model[1] = Pooling(32, pooling_mode="lasttoken")
    return model


MODELS = {
    "mean": transformer,
    "cls": with_cls_pooling,
    "before the normalize": with_map_before_the_normalize,
    "by role": with_maps_by_role,
    "two encoders": with_two_encoders,
    "rotary": with_rotary_positions,
    "llama": with_tokens_of_llama,
}


def build(name: str) -> SentenceTransformer:
    torch.manual_seed(1)
    return MODELS[name]()


@pytest.mark.parametrize("name", ["mean", "cls", "before the normalize", "by role", "two encoders"])
def test_an_engine_that_knows_four_names_gives_the_vectors_of_encode(
    name: str, tmp_path: Path
) -> None:
    model = build(name)
    save_portable(model, tmp_path)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    for role in ("query", "document"):
        vectors = getattr(model, f"encode_{role}")(TEXTS)
        assert np.array_equal(getattr(loaded, f"encode_{role}")(TEXTS), vectors)
        folder = tmp_path
        if (tmp_path / role).is_dir():
            folder = tmp_path / role
            of_role = SentenceTransformer(str(folder), device="cpu")
            assert np.array_equal(of_role.encode(TEXTS), vectors)
        prompt = model.prompts.get(role) or ""
        as_engine = read_as_an_engine(folder, [prompt + text for text in TEXTS])
        np.testing.assert_allclose(as_engine, vectors, atol=1e-6)


@pytest.mark.parametrize("name", ["mean", "cls", "before the normalize", "by role", "two encoders"])
def test_settings_keep_their_old_names_when_they_are_read_and_saved_again(
    name: str, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    save_portable(build(name), first)
    save_portable(SentenceTransformer(str(first), device="cpu"), tmp_path / "second")
    settings = [*first.glob("?_*/*config.json"), *first.glob("sentence_bert_config.json")]
    for file in (first / "modules.json", *settings):
        again = tmp_path / "second" / file.relative_to(first)
        assert again.read_text() == file.read_text()
    for file in first.rglob("tokenizer_config.json"):
        assert "TokenizersBackend" not in file.read_text()


def test_a_map_stands_before_the_normalize_where_that_costs_little(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = normalized()
    layer = fitted(model, ["lsar"])
    pooled = pooled_rows(model, TEXTS)
    exact = export(model, layer)
    before = export(model, layer, pooled=pooled)
    assert [type(module) for module in before] == [Transformer, Pooling, Dense, Normalize]
    assert (exact.encode(TEXTS) * before.encode(TEXTS)).sum(1).min() > 0.999
    assert "vary" not in caplog.text

    factors = torch.tensor([[0.2], [1], [5]])
    uneven = {role: rows * factors for role, rows in pooled.items()}
    behind = export(model, layer, pooled=uneven)
    modules = [type(module) for module in behind]
    assert modules == [Transformer, Pooling, Normalize, Dense, Normalize]
    assert "lengths of pooled vectors vary" in caplog.text
    np.testing.assert_array_equal(behind.encode(TEXTS), exact.encode(TEXTS))


def test_what_has_no_old_form_keeps_its_own(tmp_path: Path) -> None:
    by_language = export(normalized(), fitted(normalized(), ["shift"]))
    save_portable(by_language, tmp_path)
    router = json.loads((tmp_path / "3_Router/router_config.json").read_text())
    assert router["parameters"]["route_mappings"]
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS, task="fr")
    assert np.array_equal(vectors, by_language.encode(TEXTS, task="fr"))

    several = Pooling(32, pooling_mode=("mean", "cls"))
    model = SentenceTransformer(modules=[transformer()[0], several], device="cpu")
    save_portable(model, tmp_path / "several")
    loaded = SentenceTransformer(str(tmp_path / "several"), device="cpu")
    assert np.array_equal(loaded.encode(TEXTS), model.encode(TEXTS))


def test_rotary_settings_have_their_old_names(tmp_path: Path) -> None:
    save_portable(build("rotary"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["rope_theta"] == 50
    assert config["rotary_emb_base"] == 50
    assert config["global_rope_theta"] == 50
    assert config["local_rope_theta"] == 30


def test_adapters_are_merged_in_the_folder_alone(tmp_path: Path) -> None:
    model = build("llama")
    add_lora(model, 2)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.ones_(weight)
            break
    save_portable(model, tmp_path)
    assert "PreTrainedTokenizerFast" in (tmp_path / "tokenizer_config.json").read_text()
    assert not list(tmp_path.rglob("adapter*"))
    assert model[0].model.peft_config
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, model.encode(TEXTS), atol=1e-5)


def test_a_folder_of_another_model_is_not_written_into(tmp_path: Path) -> None:
    adapted = build("mean")
    add_lora(adapted, 2)
    adapted.save(str(tmp_path / "run"))
    with pytest.raises(FileExistsError, match="run is not replaced"):
        save_portable(merge_adapters(adapted), tmp_path / "run")

    save_portable(build("by role"), tmp_path / "plain")
    save_portable(build("mean"), tmp_path / "plain")
    assert not (tmp_path / "plain" / "query").exists()


def test_layers_that_were_trained_whole_beside_adapters_are_saved(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = build("mean")
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=["dense"]))
    for name, weight in model.named_parameters():
        if "modules_to_save" in name:
            torch.nn.init.normal_(weight)
    save_portable(model, tmp_path)
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, model.encode(TEXTS), atol=1e-5)


def test_a_static_encoder_has_its_old_name_and_one_of_nan_is_refused(tmp_path: Path) -> None:
    model = static()
    save_portable(model, tmp_path)
    modules = (tmp_path / "modules.json").read_text()
    assert "sentence_transformers.models.StaticEmbedding" in modules
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
    file = tmp_path / "vectors.npy"
    model, _, role = name.partition("/")
    save_portable(build(model), tmp_path / "model")
    folder = tmp_path / "model" / role
    program = (
        "import sys, numpy; from sentence_transformers import SentenceTransformer as S\n"
        "numpy.save(sys.argv[2], S(sys.argv[1], device='cpu').encode(sys.argv[3:]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [python, "-c", program, folder, file, *TEXTS], check=True, cwd=tmp_path, env=environment
    )
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.array_equal(np.load(file), expected)
