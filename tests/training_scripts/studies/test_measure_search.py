"""Texts are embedded once for all measures, with the same result as by the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import LAReQAEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from tests import tiny
from training_scripts.studies.measure_search import RememberingEmbedder, main


@pytest.mark.parametrize("context", [False, True])
def test_the_figures_are_those_of_the_evaluators(
    context: bool, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.static(features=16)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    model.save(str(tmp_path / "model"))
    embedded: list[str] = []
    encode = SentenceTransformer.encode

    def counting(self: SentenceTransformer, sentences: list[str], **given: Any) -> Any:
        embedded.extend(sentences)
        return encode(self, sentences, **given)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    given = ["--model", str(tmp_path / "model"), "--pool", str(pool), "--output", str(tmp_path / "figures.json")]
    figures = main([*given, "--precision", "fp32", *["--context"] * context])
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    data = read_lareqa(pool, context=context)
    assert len(embedded) == len(set(data.corpus["text"][:])) + len(set(data.queries["text"][:]))
    mixed, own = (
        LAReQAEvaluator.from_directory(pool, split=split, context=context).evaluate(model).average
        for split in ("test", "test-same-language")
    )
    assert [figures[f"raw {name}"] for name in ("pool", "own", "preference")] == pytest.approx(
        [mixed["map_at_20"], own["map_at_20"], mixed["language_preference"]]
    )
    ways = ("calibrated", "aligned")
    assert {f"{way} {name}" for way in ways for name in ("pool", "own", "whole ranking")} <= set(figures)


def test_each_role_is_remembered_apart() -> None:
    model = tiny.static(features=8)
    model.prompts = {"query": f"{tiny.WORDS[1]} ", "document": ""}
    embedder = RememberingEmbedder()
    query = embedder.embed(model, [tiny.WORDS[0]], "en", role="query")
    document = embedder.embed(model, [tiny.WORDS[0]] * 2, "en", role="document")
    assert len(embedder.known) == 2 and len(document) == 2
    assert not query.allclose(document[:1])
