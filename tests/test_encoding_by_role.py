"""Texts in several languages through a model that has a map for each, and the prompts of roles."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from torch.nn.functional import normalize

from st_xlret import encode
from st_xlret.encoding import embeds_roles_apart, prompt_name, role_prompt, task_languages
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer, with_two_encoders
from tests import tiny

LANGUAGES = ["en", "fr", "ru", "zh", "to"]  # "to" is also a method of torch's containers
TEXTS = ["sun moon", "star rain wind", "snow", "tree leaf root fish", "bird wolf"]


PROMPTS = {"query": "moon bear: ", "passage": "wolf: "}
LAYER = CalibrationLayer(32, LANGUAGES, pivot="fr")
LAYER.offset.copy_(torch.arange(5.0)[:, None].expand(5, 32))


@pytest.fixture(scope="module")
def base() -> SentenceTransformer:
    return SentenceTransformer(modules=[*tiny.transformer(), Normalize()], prompts=PROMPTS, device="cpu")


@pytest.fixture(scope="module")
def model(base: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    folder = str(tmp_path_factory.mktemp("model"))
    export(base, LAYER).save_pretrained(folder)
    return SentenceTransformer(folder, device="cpu", local_files_only=True)


def test_every_role_and_language_is_prompt_and_map_together(base: Any, model: SentenceTransformer) -> None:
    roles: dict[Any, str] = {None: "", "query": "moon bear: ", "document": "wolf: "}
    for (role, prompt), code in product(roles.items(), LANGUAGES):
        expected = normalize(LAYER.transform(base.encode(TEXTS, prompt=prompt), code))
        np.testing.assert_allclose(encode(model, TEXTS, code, role=role), expected, atol=1e-5)
    assert encode(model, TEXTS[0], "fr").shape == (32,)


def test_lists_of_languages_are_grouped_and_keep_their_order(model: SentenceTransformer) -> None:
    codes = ["rus", "fr-CA", "zh-Hans", "ru", "en"]
    tasks = zip(TEXTS, ["ru", "fr", "zh", "ru", "en"], strict=True)
    expected = np.stack([model.encode(text, task=task) for text, task in tasks])
    np.testing.assert_allclose(encode(model, TEXTS, codes), expected, atol=1e-5)
    tensor = encode(model, TEXTS, codes, convert_to_tensor=True, truncate_dim=4)
    torch.testing.assert_close(tensor, torch.from_numpy(expected[:, :4]), atol=1e-5, rtol=1e-5)
    of_tensors = encode(model, TEXTS, codes, convert_to_numpy=False)
    np.testing.assert_allclose(torch.stack(of_tensors), expected, atol=1e-5)
    assert encode(model, [], []).shape == (0,)


@pytest.mark.parametrize("code", [None, "", "und"])
def test_texts_without_a_language_take_the_default_with_a_warning(model, code: str | None) -> None:
    with pytest.warns(UserWarning, match="no language"):
        plain = encode(model, TEXTS, ["en", *[code] * 4], role="query")
    np.testing.assert_allclose(plain, encode(model, TEXTS, ["en", *["fr"] * 4], role="query"), atol=1e-6)
    np.testing.assert_allclose(plain[1:], model.encode_query(TEXTS[1:]), atol=1e-6)


def test_languages_without_a_map_are_refused(model: SentenceTransformer) -> None:
    for code in ("sw", "zh-TW", "english"):
        with pytest.raises(ValueError, match=code):
            encode(model, TEXTS, ["en", *[code] * 4])
    with pytest.raises(ValueError):
        encode(model, TEXTS, ["en", "fr"])


def test_prompts_that_are_given_stay(model: SentenceTransformer) -> None:
    by_name = model.encode(TEXTS, task="ru", prompt_name="passage")
    np.testing.assert_allclose(encode(model, TEXTS, "ru", role="query", prompt="wolf: "), by_name, atol=1e-6)
    np.testing.assert_allclose(encode(model, TEXTS, "ru", role="query", prompt_name="passage"), by_name, atol=1e-6)


def test_a_model_without_maps_is_called_as_it_is(base: SentenceTransformer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(encode(base, TEXTS, ["sw"] * 5, role="query"), base.encode_query(TEXTS))
        np.testing.assert_allclose(encode(base, TEXTS, role="document"), base.encode(TEXTS, prompt="wolf: "))
        np.testing.assert_allclose(encode(base, TEXTS, "en"), base.encode(TEXTS))
    assert task_languages(base) == {}


def test_queries_may_have_maps_of_their_own() -> None:
    base = tiny.static()
    documents, queries = CalibrationLayer(8, ["en", "fr"], pivot="en"), CalibrationLayer(8, ["en", "fr"], pivot="en")
    queries.offset[1] += 3
    model = export(base, documents, query_calibration=queries)
    assert task_languages(model) == {"en": "en", "fr": "fr", "query_en": "en", "query_fr": "fr"}
    codes = ["fra", "en", "fr", "en", "en"]
    moved = encode(model, TEXTS, codes, role="query") - base.encode(TEXTS)
    np.testing.assert_allclose(moved[:, 0], [3, 0, 3, 0, 0], atol=1e-5)
    np.testing.assert_allclose(encode(model, TEXTS, codes, role="document"), base.encode(TEXTS), atol=1e-5)


# Prompts

SHIPPED: dict[str, tuple[dict[str, str], str | None, str, str, str]] = {
    # prompts, default prompt -> before queries, before documents, before other texts
    "none": ({}, None, "", "", ""),
    "E5": ({"query": "query: ", "passage": "passage: "}, None, "query: ", "passage: ", ""),
    "E5, default": ({"query": "query: ", "passage": "passage: "}, "query", "query: ", "passage: ", "query: "),
    "BGE": ({"query": "BGE: "}, None, "BGE: ", "", ""),
    "BGE, default": ({"query": "BGE: "}, "query", "BGE: ", "", "BGE: "),
    "Qwen": ({"query": "Instruct: a\nQuery:", "document": ""}, None, "Instruct: a\nQuery:", "", ""),
    "Nomic": ({"query": "q: ", "passage": "d: ", "Classification": "classification: "}, None, "q: ", "d: ", ""),
    "corpus": ({"query": "q: ", "corpus": "c: "}, None, "q: ", "c: ", ""),
    "all names": ({"document": "d: ", "passage": "p: ", "corpus": "c: "}, None, "", "d: ", ""),
    "one for all": ({"text": "text: "}, "text", "text: ", "text: ", "text: "),
}


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize("name", SHIPPED)
def test_prompts_as_models_ship_them(name, reloaded, tmp_path) -> None:
    prompts, default, *expected = SHIPPED[name]
    model = SentenceTransformer(modules=list(tiny.static()), prompts=prompts, default_prompt_name=default, device="cpu")
    if reloaded:
        model.save_pretrained(str(tmp_path))
        model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
        assert "document" in model.prompts
    assert [role_prompt(model, role) for role in ("query", "document", None)] == expected
    names = [prompt_name(model, role) for role in ("query", "document", None)]
    assert [model.prompts[each] if each else "" for each in names] == expected
    assert embeds_roles_apart(model) == (expected[0] != expected[1])


def test_a_prompt_that_is_given_is_a_text_or_a_name() -> None:
    model = SentenceTransformer(modules=list(tiny.static()), prompts={"query": "q: ", "sts": "s: "}, device="cpu")
    assert role_prompt(model, "document", "sts") == "s: " and role_prompt(model, "query", "") == ""
    assert role_prompt(model, "document", "passage: ") == "passage: "
    assert not embeds_roles_apart(model, "text: ", "text: ")
    with pytest.raises(ValueError, match="retrieval.*query, sts"):
        role_prompt(model, "query", "retrieval")
    with pytest.raises(KeyError, match="passage"):
        role_prompt(model, "passage")


def test_routes_embed_roles_apart() -> None:
    model = with_two_encoders(tiny.static())
    assert role_prompt(model, "query") == role_prompt(model, "document") == "" and embeds_roles_apart(model)
