"""Texts are embedded once for all measures, with the same result as by the evaluators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import LAReQAEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from tests import tiny
from training_scripts.studies.measure_search import main


@pytest.mark.parametrize("context", [False, True])
def test_the_figures_are_those_of_the_evaluators(
    context: bool, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.static(features=16)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    model.save(str(tmp_path / "model"))
    embedded: list[str] = []
    encode = SentenceTransformer.encode

    def counting(self: SentenceTransformer, sentences: list[str], **options: Any) -> Any:
        embedded.extend(sentences)
        return encode(self, sentences, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    words = ["--model", str(tmp_path / "model"), "--pool", str(pool), "--output", str(tmp_path / "figures.json")]
    figures = main([*words, "--held_out", str(pool), "--precision", "fp32", *["--context"] * context])
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    monkeypatch.undo()
    data = read_lareqa(pool, context=context)
    texts = {*data.corpus["text"], *read_lareqa(pool).corpus["text"]}
    assert len(embedded) == len(texts) + len({*data.queries["text"]})
    mixed, own = (
        LAReQAEvaluator.from_directory(pool, split=split, context=context).evaluate(model).average
        for split in ("test", "test-same-language")
    )
    assert [figures[f"raw {name}"] for name in ("pool", "own", "preference")] == pytest.approx(
        [mixed["map_at_20"], own["map_at_20"], mixed["language_preference"]]
    )
    assert context or figures["raw held out"] == figures["raw pool"]
    ways = {f"{way} {name}" for way in ("calibrated", "aligned") for name in ("pool", "own", "whole ranking")}
    assert ways <= set(figures)
