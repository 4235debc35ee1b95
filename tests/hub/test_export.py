"""Exported models give the vectors of the model and its calibration, and load where we are not installed."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch import nn

from st_xlret.calibration import fit_calibration
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
    normalized = SentenceTransformer(modules=[*transformer, Normalize()], device="cpu")
    return {
        "static": tiny.static(features=16),
        "transformer": transformer,
        "normalized": normalized,
    }


def encode(model: SentenceTransformer, code: str, **options: Any) -> torch.Tensor:
    return torch.from_numpy(model.encode(TEXTS[code], **options))


def fit(model: SentenceTransformer, *steps: str) -> CalibrationLayer:
    rows = {code: encode(model, code) for code in TEXTS}
    return fit_calibration(rows, steps=steps or ("shift", "scale"), min_texts=2)


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
    assert not any("st_xlret" in file.read_text() for file in tmp_path.rglob("*.json")), (
        "it loads without us"
    )
    loaded = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    for language in TEXTS:
        expected = calibration.transform(encode(models[name], language), language)
        expected = nn.functional.normalize(expected, dim=1) if name == "normalized" else expected
        for result in (exported, loaded):
            assert_close(encode(result, language, task=language), expected)


def test_text_without_a_task_takes_the_default_route(
    models: dict[str, SentenceTransformer],
) -> None:
    for default, code in ((None, "en"), ("fr", "fr"), ("to", "to")):
        exported = export(models["static"], fit(models["static"]), default_language=default)
        for call in (exported.encode, exported.encode_query, exported.encode_document):
            assert_close(call(TEXTS["en"]), encode(exported, "en", task=code))


def test_queries_have_a_map_of_their_own(models: dict[str, SentenceTransformer]) -> None:
    base, documents, queries = (
        models["static"],
        fit(models["static"], "shift"),
        fit(models["static"], "scale"),
    )
    exported = export(base, documents, query_calibration=queries)
    assert_close(exported.encode_query(TEXTS["en"]), queries.transform(encode(base, "en"), "en"))
    assert_close(
        exported.encode_document(TEXTS["en"]), documents.transform(encode(base, "en"), "en")
    )
    assert_close(
        encode(exported, "fr", task="query_fr"), queries.transform(encode(base, "fr"), "fr")
    )


def test_prompts_and_facts_of_the_model_stay(
    models: dict[str, SentenceTransformer], tmp_path: Path
) -> None:
    prompts, modules = (
        {"query": "sun: ", "passage": "moon: "},
        list(models["transformer"].children()),
    )
    model = SentenceTransformer(
        modules=modules, prompts=prompts, similarity_fn_name="dot", device="cpu"
    )
    calibration = fit(model)
    export(model, calibration).save(str(tmp_path))
    loaded = load_model(str(tmp_path), "cpu")
    assert (loaded.prompts["query"], loaded.prompts["document"]) == ("sun: ", "moon: ")
    assert (loaded.similarity_fn_name, loaded.max_seq_length) == ("dot", model.max_seq_length)
    expected = calibration.transform(torch.from_numpy(model.encode_query(TEXTS["to"])), "en")
    assert_close(loaded.encode_query(TEXTS["to"]), expected)
    assert len(list(model.children())) == 2


def test_a_layer_in_the_model_is_exported_in_its_place(
    models: dict[str, SentenceTransformer],
) -> None:
    layer = fit(models["static"])
    for after in ([], [Normalize()]):
        inside = SentenceTransformer(
            modules=[*models["static"].children(), layer, *after], device="cpu"
        )
        assert_close(encode(export(inside), "fr", task="fr"), encode(inside, "fr", language="fr"))


def test_half_precision_models_stay_in_half_precision(
    models: dict[str, SentenceTransformer],
) -> None:
    exported = export(tiny.transformer().to(torch.bfloat16), fit(models["transformer"]))
    assert {parameter.dtype for parameter in exported.parameters()} == {torch.bfloat16}
    assert exported.encode(TEXTS["fr"], task="fr", convert_to_tensor=True).dtype == torch.bfloat16


def test_what_cannot_be_exported_or_loaded_is_named(
    models: dict[str, SentenceTransformer], tmp_path: Path
) -> None:
    model, calibration = models["static"], fit(models["static"])
    foreign = SentenceTransformer(modules=[*model.children(), nn.Identity()], device="cpu")
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("'de'", model, {"calibration": calibration, "default_language": "de"}),
        ("'fr'.* there are none", model, {"default_language": "fr"}),
        ("16 dimensions, .* 32", model, {"calibration": fit(models["transformer"])}),
        ("Router", export(model, calibration), {"calibration": calibration}),
        ("Identity", foreign, {}),
    ]
    for message, refused, options in cases:
        with pytest.raises(ValueError, match=message):
            export(refused, **options)
    (tmp_path / "modules.json").write_text("{")
    for name in ("/nope", "runs/nope", str(tmp_path)):
        with pytest.raises(ValueError, match=f"--model {name}"):
            load_model(name)
