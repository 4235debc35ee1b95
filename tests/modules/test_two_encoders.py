"""An encoder of queries beside one of passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.modules import freeze_unused, with_two_encoders
from tests import tiny


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_they_start_alike_and_are_saved_as_the_hosts(make: Any, tmp_path: Path) -> None:
    model = make()
    expected = model.encode(["sun moon"])
    two = with_two_encoders(model)
    assert (two.encode_query(["sun moon"]) == expected).all() and (two.encode_document(["sun moon"]) == expected).all()
    query, document = (two[0].sub_modules[route] for route in ("query", "document"))
    assert not {id(p) for p in query.parameters()} & {id(p) for p in document.parameters()}
    with torch.no_grad():
        for parameter in query.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    two.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for encode in ("encode_query", "encode_document", "encode"):
        assert (getattr(loaded, encode)(["sun moon"]) == getattr(two, encode)(["sun moon"])).all()
    assert (two.encode_query(["sun moon"]) != two.encode_document(["sun moon"])).any()
    assert (two.encode(["sun moon"]) == two.encode_document(["sun moon"])).all()


def test_a_model_with_a_router_is_refused() -> None:
    with pytest.raises(ValueError, match="Router.*--two_encoders"):
        with_two_encoders(with_two_encoders(tiny.static()))


def test_what_no_route_uses_is_frozen() -> None:
    model = with_two_encoders(tiny.transformer())
    assert {name.split(".pooler.")[1] for name in freeze_unused(model)} == {"dense.weight", "dense.bias"}
    assert all(p.grad is None and p.requires_grad == (".pooler." not in name) for name, p in model.named_parameters())
    assert freeze_unused(with_two_encoders(tiny.static())) == []


def test_the_prompts_stay() -> None:
    plain = tiny.transformer()
    plain.prompts, plain.default_prompt_name = {"query": "wind ", "document": "snow "}, "query"
    model = with_two_encoders(plain)
    assert model.prompts == plain.prompts and model.default_prompt_name == "query"
