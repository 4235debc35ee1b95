from __future__ import annotations

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.encoding import embeds_roles_apart, prompt_name, role_prompt
from st_xlret.modules import with_two_encoders
from tests import tiny

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
