"""Exported models give the vectors of the model and its calibration, and load where we are not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import BoW
from torch import nn

from st_xlret.calibration import fit_calibration
from st_xlret.hub.export import check_finite, export, load_model
from st_xlret.modules import CalibrationLayer, static_encoder, train_tokenizer, transformer_encoder

TEXTS = {
    "en": ["the cat sleeps", "a dog barks", "rain falls today", "the sun shines", "we read a book"],
    "fr": ["le chat dort", "un chien aboie", "la pluie tombe", "le soleil brille", "nous lisons un livre"],
    "to": ["'oku mohe 'a e pusi", "'oku ululu 'a e kuli", "'oku 'uha", "'oku ulo 'a e la'a", "'oku mau lau"],
}


@pytest.fixture(scope="module")
def models() -> dict[str, SentenceTransformer]:
    tokenizer = train_tokenizer([text for texts in TEXTS.values() for text in texts] * 5, vocabulary=120)
    transformer = transformer_encoder(tokenizer, "tiny")
    normalized = SentenceTransformer(modules=[*transformer.children(), Normalize()], device="cpu")
    return {"static": static_encoder(tokenizer, features=16), "transformer": transformer, "normalized": normalized}


def encode(model: SentenceTransformer, code: str, **options: Any) -> torch.Tensor:
    return torch.from_numpy(model.encode(TEXTS[code], **options))


def fit(model: SentenceTransformer, *steps: str) -> CalibrationLayer:
    vectors = {language: encode(model, language) for language in TEXTS}
    return fit_calibration(vectors, steps=steps or ("shift", "scale"), min_texts=2)


def assert_close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["static", "transformer", "normalized"])
def test_export_agrees_with_the_layer(models: dict[str, SentenceTransformer], name: str, tmp_path: Path) -> None:
    calibration = fit(models[name])
    exported = export(models[name], calibration)
    exported.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    for language in TEXTS:
        expected = calibration.transform(encode(models[name], language), language)
        expected = nn.functional.normalize(expected, dim=1) if name == "normalized" else expected
        for result in (exported, loaded):
            assert_close(encode(result, language, task=language), expected)


@pytest.mark.parametrize(("default", "code"), [(None, "en"), ("fr", "fr"), ("to", "to")])
def test_text_without_a_task_takes_the_default_route(
    models: dict[str, SentenceTransformer], default: str | None, code: str
) -> None:
    exported = export(models["static"], fit(models["static"]), default_language=default)
    for call in (exported.encode, exported.encode_query, exported.encode_document):
        assert_close(call(TEXTS["en"]), encode(exported, "en", task=code))


@pytest.mark.parametrize("steps", [("lsar",), ("shift",)])
def test_queries_have_a_map_of_their_own(models: dict[str, SentenceTransformer], steps: tuple[str, ...]) -> None:
    base = models["static"]
    documents = fit(base, *steps)
    queries = documents if steps == ("lsar",) else fit(base, "scale")
    exported, raw = export(base, documents, query_calibration=queries), encode(base, "en")
    language = next(iter(documents.languages), None)
    assert_close(exported.encode_query(TEXTS["en"]), queries.transform(raw, language))
    assert_close(exported.encode_document(TEXTS["en"]), documents.transform(raw, language))
    if language:
        assert_close(encode(exported, "fr", task="query_fr"), queries.transform(encode(base, "fr"), "fr"))


def test_prompts_and_facts_of_the_model_stay(models: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    prompts, modules = {"query": "find: ", "passage": "read: "}, list(models["transformer"].children())
    model = SentenceTransformer(modules=modules, prompts=prompts, similarity_fn_name="dot", device="cpu")
    calibration = fit(model)
    export(model, calibration).save(str(tmp_path))
    loaded = load_model(str(tmp_path), "cpu")
    assert (loaded.prompts["query"], loaded.prompts["document"]) == ("find: ", "read: ")
    assert loaded.similarity_fn_name == "dot" and loaded.max_seq_length == model.max_seq_length
    assert loaded.get_embedding_dimension() == model.get_embedding_dimension() == 32
    expected = calibration.transform(torch.from_numpy(model.encode_query(["the cat"])), "en")
    assert_close(loaded.encode_query(["the cat"]), expected)
    assert len(list(model.children())) == 2


@pytest.mark.parametrize("after", [[], [Normalize()]])
def test_a_layer_in_the_model_is_exported_in_its_place(
    models: dict[str, SentenceTransformer], after: list[Any]
) -> None:
    layer = fit(models["static"])
    inside = SentenceTransformer(modules=[*models["static"].children(), layer, *after], device="cpu")
    assert_close(encode(export(inside), "fr", task="fr"), encode(inside, "fr", language="fr"))


def test_half_precision_models_stay_in_half_precision(models: dict[str, SentenceTransformer]) -> None:
    model = transformer_encoder(models["transformer"].tokenizer, "tiny").to(torch.bfloat16)
    exported = export(model, fit(models["transformer"]))
    assert {parameter.dtype for parameter in exported.parameters()} == {torch.bfloat16}
    assert exported.encode(["the cat"], task="fr", convert_to_tensor=True).dtype == torch.bfloat16


class Foreign(nn.Module):
    def forward(self, features: dict) -> dict:
        return features


def test_what_cannot_be_exported_is_named(models: dict[str, SentenceTransformer]) -> None:
    model, calibration = models["static"], fit(models["static"])
    with pytest.raises(ValueError, match="'de'"):
        export(model, calibration, default_language="de")
    with pytest.raises(ValueError, match="16 dimensions, .* 32"):
        export(model, fit(models["transformer"]))
    with pytest.raises(ValueError, match="Router"):
        export(export(model, calibration), calibration)
    with pytest.raises(ValueError, match="Foreign"):
        export(SentenceTransformer(modules=[*model.children(), Foreign()], device="cpu"))


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("{")
    for name in ("/nope", "runs/nope", str(tmp_path)):
        with pytest.raises(ValueError, match=f"--model {name}"):
            load_model(name)
    dense = Dense(1, 2)
    nn.init.constant_(dense.linear.bias, 1e6)
    check_finite(dense)
    dense.half()
    SentenceTransformer(modules=[BoW(vocab=["a"]), dense], device="cpu").save(str(tmp_path / "half"))
    with pytest.raises(ValueError, match=f"--model {tmp_path / 'half'}: 1.linear.bias: 2 of 2"):
        load_model(str(tmp_path / "half"))


LOAD_WITHOUT_US = """
import json, sys
sys.modules["st_xlret"] = None
from sentence_transformers import SentenceTransformer
texts = json.loads(sys.argv[1])
model = SentenceTransformer(sys.argv[2], device="cpu")
print("RESULT" + json.dumps({code: model.encode(lines, task=code).tolist() for code, lines in texts.items()}))
"""


def test_exports_load_where_we_are_not_installed(models: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    model = export(models["normalized"], fit(models["normalized"]))
    model.save(str(tmp_path / "model"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", LOAD_WITHOUT_US, json.dumps(TEXTS), str(tmp_path / "model")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for language, vectors in json.loads(done.stdout.split("RESULT")[1]).items():
        assert_close(vectors, encode(model, language, task=language))
