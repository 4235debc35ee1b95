from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from torch import nn

from st_xlret.calibration import CalibrationOptions, RotationOptions, fit_calibration
from st_xlret.hub.export import export
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder
from st_xlret.modules.calibration_layer import CalibrationLayer

TEXTS = {
    "en": ["the cat sleeps", "a dog barks", "rain falls today", "the sun shines", "we read a book"],
    "fr": ["le chat dort", "un chien aboie", "la pluie tombe", "le soleil brille", "nous lisons un livre"],
    "to": ["'oku mohe 'a e pusi", "'oku ululu 'a e kuli", "'oku 'uha", "'oku ulo 'a e la'a", "'oku mau lau"],
}
OPTIONS = CalibrationOptions(min_texts=2, rotation=RotationOptions(initial="identity", refinements=2, prior=1.0))


@pytest.fixture(scope="module")
def models() -> dict[str, SentenceTransformer]:
    tokenizer = train_tokenizer([text for texts in TEXTS.values() for text in texts] * 5, vocabulary=120)
    static = static_encoder(tokenizer, features=16)
    transformer = transformer_encoder(tokenizer, "tiny")
    return {
        "static": static,
        "static, normalized": SentenceTransformer(modules=[*static.children(), Normalize()], device="cpu"),
        "transformer": transformer,
        "transformer, normalized": SentenceTransformer(modules=[*transformer.children(), Normalize()], device="cpu"),
    }


def encode(model: SentenceTransformer, language: str, **kwargs: str) -> torch.Tensor:
    return torch.from_numpy(model.encode(TEXTS[language], **kwargs))


def fit(model: SentenceTransformer, *steps: str, options: CalibrationOptions = OPTIONS) -> CalibrationLayer:
    embeddings = {language: encode(model, language) for language in TEXTS}
    return fit_calibration(embeddings, steps=steps or ("shift", "scale", "rotate"), options=options)


@pytest.mark.parametrize("name", ["static", "static, normalized", "transformer", "transformer, normalized"])
def test_export_agrees_with_the_layer(models: dict[str, SentenceTransformer], name: str, tmp_path: Path) -> None:
    model = models[name]
    calibration = fit(model)
    exported = export(model, calibration)
    exported.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    for language in TEXTS:
        expected = calibration.transform(encode(model, language), language)
        if name.endswith("normalized"):
            expected = F.normalize(expected, dim=1)
        for result in (exported, loaded):
            mapped = encode(result, language, task=language)
            torch.testing.assert_close(mapped, expected, atol=1e-6, rtol=1e-6)


def test_text_without_a_task_takes_the_default_route(models: dict[str, SentenceTransformer]) -> None:
    model = models["transformer"]
    calibration = fit(model)
    for default, expected in ((None, "en"), ("fr", "fr"), ("to", "to")):
        exported = export(model, calibration, default_language=default)
        by_task = exported.encode(TEXTS["en"], task=expected)
        for result in (
            exported.encode(TEXTS["en"]),
            exported.encode_query(TEXTS["en"]),
            exported.encode_document(TEXTS["en"]),
        ):
            np.testing.assert_allclose(result, by_task, atol=1e-6)


def test_prompts_and_facts_of_the_model_stay(models: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    model = SentenceTransformer(
        modules=list(models["transformer"].children()),
        prompts={"query": "find: ", "document": ""},
        similarity_fn_name="dot",
        device="cpu",
    )
    calibration = fit(model)
    export(model, calibration).save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    assert loaded.prompts["query"] == "find: " and loaded.similarity_fn_name == "dot"
    assert loaded.get_embedding_dimension() == model.get_embedding_dimension() == 32
    assert loaded.max_seq_length == model.max_seq_length
    assert loaded.modalities == ["text"]
    assert loaded.tokenizer("the cat")["input_ids"] == model.tokenizer("the cat")["input_ids"]
    expected = calibration.transform(torch.from_numpy(model.encode_query(["the cat"])), "en")
    np.testing.assert_allclose(loaded.encode_query(["the cat"]), expected, atol=1e-6)
    assert len(list(model.children())) == 2


def test_lsar_exports_to_one_dense(models: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    model = models["transformer, normalized"]
    calibration = fit(model, "lsar")
    export(model, calibration).save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    assert [type(module) for module in loaded.children()][2:] == [Normalize, Dense, Normalize]
    expected = F.normalize(calibration.transform(encode(model, "fr")), dim=1)
    torch.testing.assert_close(encode(loaded, "fr"), expected, atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match="'fr'"):
        export(model, calibration, default_language="fr")


def test_a_layer_in_the_model_is_exported_too(models: dict[str, SentenceTransformer]) -> None:
    model = models["static"]
    calibration = fit(model)
    for after in ([], [Normalize()]):
        inside = SentenceTransformer(modules=[*model.children(), calibration, *after], device="cpu")
        exported = export(inside)
        expected = torch.from_numpy(inside.encode(TEXTS["fr"], language="fr"))
        torch.testing.assert_close(encode(exported, "fr", task="fr"), expected, atol=1e-6, rtol=1e-6)


def test_half_precision_models_stay_in_half_precision(models: dict[str, SentenceTransformer]) -> None:
    tokenizer = models["transformer"].tokenizer
    model = transformer_encoder(tokenizer, "tiny").to(torch.bfloat16)
    exported = export(model, CalibrationLayer(32, ["en", "fr"], pivot="en"))
    assert {parameter.dtype for parameter in exported.parameters()} == {torch.bfloat16}
    assert exported.encode(["the cat"], task="fr", convert_to_tensor=True).dtype == torch.bfloat16


class Foreign(nn.Module):
    def forward(self, features: dict) -> dict:
        return features


def test_bad_input_is_named(models: dict[str, SentenceTransformer]) -> None:
    model = models["static"]
    calibration = fit(model)
    with pytest.raises(ValueError, match="'de' is none of the calibration's: en, fr, to"):
        export(model, calibration, default_language="de")
    with pytest.raises(ValueError, match="'fr' is given, but there is no calibration"):
        export(model, default_language="fr")
    with pytest.raises(ValueError, match="gives 16 dimensions, the calibration was fitted on 8"):
        export(model, CalibrationLayer(8))
    with pytest.raises(ValueError, match="calibrated before"):
        export(export(model, calibration), calibration)
    with pytest.raises(ValueError, match="CalibrationLayer already"):
        export(SentenceTransformer(modules=[*model.children(), calibration], device="cpu"), calibration)
    for where in ("weight", "bias"):
        calibration = fit(model)
        getattr(calibration, where).flatten()[0] = float("nan")
        with pytest.raises(ValueError, match=r"values that are NaN or infinite"):
            export(model, calibration)
    with pytest.raises(ValueError, match="Foreign is no module of Sentence Transformers"):
        export(SentenceTransformer(modules=[*model.children(), Foreign()], device="cpu"), calibration)


LOAD_WITHOUT_US = """
import json, sys
sys.modules["st_xlret"] = None
from sentence_transformers import SentenceTransformer
texts = json.loads(sys.argv[1])
found = []
for folder in sys.argv[2:]:
    model = SentenceTransformer(folder, device="cpu")
    found.append({language: model.encode(given, task=language).tolist() for language, given in texts.items()})
try:
    import st_xlret
except ImportError:
    print("RESULT" + json.dumps(found))
"""


def test_exports_load_where_we_are_not_installed(models: dict[str, SentenceTransformer], tmp_path: Path) -> None:
    chosen = ["static, normalized", "transformer"]
    exported = [export(models[name], fit(models[name])) for name in chosen]
    folders = [str(tmp_path / name) for name in chosen]
    for model, folder in zip(exported, folders, strict=True):
        model.save(folder)
    (tmp_path / "elsewhere").mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD_WITHOUT_US, json.dumps(TEXTS), *folders],
        cwd=tmp_path / "elsewhere",
        env={**environment, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for model, found in zip(exported, json.loads(done.stdout.split("RESULT")[1]), strict=True):
        for language in TEXTS:
            torch.testing.assert_close(
                torch.tensor(found[language]), encode(model, language, task=language), atol=1e-6, rtol=1e-6
            )
