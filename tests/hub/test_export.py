"""Exported models give the vectors of model and map, and load where we are not installed."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import Tensor, nn

from st_xlret.calibration import VectorCalibration
from st_xlret.hub.export import export
from st_xlret.hub.loading import load_model
from st_xlret.modules import CalibrationLayer
from tests import tiny

TEXTS = {
    code: [tiny.sentence(random.Random(f"{code}{i}")) for i in range(5)]
    for code in ("en", "fr", "to")
}


@pytest.fixture(scope="module")
def models() -> dict[str, SentenceTransformer]:
    transformer = tiny.transformer()
    return {
        "static": tiny.static(features=16),
        "transformer": transformer,
        "normalized": SentenceTransformer(modules=[*transformer, Normalize()], device="cpu"),
    }


@pytest.fixture
def static(models: dict[str, SentenceTransformer]) -> SentenceTransformer:
    return models["static"]


def encode(model: SentenceTransformer, code: str, **options: Any) -> Tensor:
    return torch.from_numpy(model.encode(TEXTS[code], **options))


def fit(model: SentenceTransformer, *steps: str) -> CalibrationLayer:
    rows = {code: encode(model, code) for code in TEXTS}
    own_steps = steps or ("shift", "scale")
    return VectorCalibration.fit(rows, steps=own_steps, min_texts=2, normalize=False).layer()


def assert_close(result: Any, expected: Any) -> None:
    torch.testing.assert_close(
        torch.as_tensor(result), torch.as_tensor(expected), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["static", "transformer", "normalized"])
def test_export_agrees_with_the_layer(
    models: dict[str, SentenceTransformer], name: str, tmp_path: Path
) -> None:
    calibration = fit(models[name])
    exported = export(models[name], calibration)
    exported.save(str(tmp_path))
    for file in tmp_path.rglob("*.json"):
        assert "st_xlret" not in file.read_text(), "it loads without us"

    loaded = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    for language in TEXTS:
        expected = calibration.transform(encode(models[name], language), language)
        if name == "normalized":
            expected = nn.functional.normalize(expected, dim=1)
        assert_close(encode(exported, language, task=language), expected)
        assert_close(encode(loaded, language, task=language), expected)


@pytest.mark.parametrize(("default", "code"), [(None, "en"), ("fr", "fr"), ("to", "to")])
def test_text_without_a_task_takes_the_default_route(
    static: SentenceTransformer, default: str | None, code: str
) -> None:
    exported = export(static, fit(static), default_language=default)
    expected = encode(exported, "en", task=code)
    assert_close(exported.encode(TEXTS["en"]), expected)
    assert_close(exported.encode_query(TEXTS["en"]), expected)
    assert_close(exported.encode_document(TEXTS["en"]), expected)


def test_queries_have_a_map_of_their_own(static: SentenceTransformer) -> None:
    documents = fit(static, "shift")
    queries = fit(static, "scale")
    exported = export(static, documents, query_calibration=queries)
    english = encode(static, "en")
    french = encode(static, "fr")
    assert_close(exported.encode_query(TEXTS["en"]), queries.transform(english, "en"))
    assert_close(exported.encode_document(TEXTS["en"]), documents.transform(english, "en"))
    assert_close(encode(exported, "fr", task="query_fr"), queries.transform(french, "fr"))


def test_prompts_and_facts_of_the_model_stay(
    models: dict[str, SentenceTransformer], tmp_path: Path
) -> None:
    model = SentenceTransformer(
        modules=list(models["transformer"].children()),
        prompts={"query": "sun: ", "passage": "moon: "},
        similarity_fn_name="dot",
        device="cpu",
    )
    calibration = fit(model)
    export(model, calibration).save(str(tmp_path))
    assert len(list(model.children())) == 2

    loaded = load_model(str(tmp_path), "cpu")
    assert loaded.prompts["query"] == "sun: "
    assert loaded.prompts["document"] == "moon: "
    assert loaded.similarity_fn_name == "dot"
    assert loaded.max_seq_length == model.max_seq_length
    queries = torch.from_numpy(model.encode_query(TEXTS["to"]))
    assert_close(loaded.encode_query(TEXTS["to"]), calibration.transform(queries, "en"))


@pytest.mark.parametrize("after", [[], [Normalize()]])
def test_a_layer_in_the_model_is_exported_in_its_place(
    static: SentenceTransformer, after: list[nn.Module]
) -> None:
    inside = SentenceTransformer(modules=[*static.children(), fit(static), *after], device="cpu")
    assert_close(encode(export(inside), "fr", task="fr"), encode(inside, "fr", language="fr"))


def test_half_precision_models_stay_in_half_precision(
    models: dict[str, SentenceTransformer],
) -> None:
    exported = export(tiny.transformer().to(torch.bfloat16), fit(models["transformer"]))
    assert {parameter.dtype for parameter in exported.parameters()} == {torch.bfloat16}
    assert exported.encode(TEXTS["fr"], task="fr", convert_to_tensor=True).dtype == torch.bfloat16


def test_what_cannot_be_exported_is_named(models: dict[str, SentenceTransformer]) -> None:
    model = models["static"]
    calibration = fit(model)
    with pytest.raises(ValueError, match="'de'"):
        export(model, calibration, default_language="de")
    with pytest.raises(ValueError, match="'fr'.* there are none"):
        export(model, default_language="fr")
    with pytest.raises(ValueError, match="16 dimensions, .* 32"):
        export(model, fit(models["transformer"]))
    with pytest.raises(ValueError, match="Router"):
        export(export(model, calibration), calibration)
    foreign = SentenceTransformer(modules=[*model.children(), nn.Identity()], device="cpu")
    with pytest.raises(ValueError, match="Identity"):
        export(foreign)


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("{")
    for name in ("/nope", "runs/nope", str(tmp_path)):
        with pytest.raises(ValueError, match=f"--model {name}"):
            load_model(name)
