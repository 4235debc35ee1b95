"""What the studies measure of a model is what the evaluators measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from st_xlret.evaluation import LAReQAEvaluator, RetrievalEvaluator, TatoebaEvaluator
from tests import tiny
from tests.data.files import write_jsonl
from tests.training_scripts.studies.conftest import write_tatoeba
from training_scripts.studies.measure_search import main


@pytest.mark.parametrize("context", [False, True])
def test_the_figures_are_those_of_the_evaluators(context: bool, pool: Path, tmp_path: Path) -> None:
    model = tiny.static(features=16)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    model.save(str(tmp_path / "model"))
    queries = [json.loads(line) for line in (pool / "queries.jsonl").read_text().splitlines()]
    write_jsonl(pool / "queries.jsonl", [row for row in queries if row["metadata"]["language"] in ("en", "fr")])
    words = ["--model", str(tmp_path / "model"), "--pool", str(pool), "--output", str(tmp_path / "figures.json")]
    words += ["--tatoeba", str(write_tatoeba(tmp_path / "tatoeba")), "--asked", str(pool), "--split", "test"]
    figures = main([*words, "--held_out", str(pool), "--precision", "fp32", *["--context"] * context])
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    mixed, own = (
        LAReQAEvaluator.from_directory(pool, split=split, context=context).evaluate(model).average
        for split in ("test", "test-same-language")
    )
    accuracy = TatoebaEvaluator.from_directory(tmp_path / "tatoeba").evaluate(model).average["accuracy"]
    asked = RetrievalEvaluator.from_directory(pool).evaluate(model).scores
    expected = {
        "pool": mixed["map_at_20"],
        "own": own["map_at_20"],
        "preference": mixed["language_preference"],
        "whole ranking": mixed["map"],
        "Tatoeba of all": accuracy,
        "asked": asked["fr"]["success_at_10"],
        "asked share": asked["fr"]["same_language_at_10"],
        "English": asked["en"]["success_at_10"],
    }
    assert {name: figures[f"raw {name}"] for name in expected} == pytest.approx(expected)
    assert context or figures["raw held out"] == figures["raw pool"]
    ways = {f"{way} {name}" for way in ("queries", "calibrated") for name in ("pool", "own", "asked", "Tatoeba")}
    assert {*ways, "aligned whole ranking"} <= set(figures)
