"""The whole chain on the generated corpus, at sizes too small to learn anything."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from training_scripts.demo import demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "run"
    demo.main(["--output", str(folder), "--quick"])
    return folder


def test_results_have_the_promised_layout(output: Path) -> None:
    results = json.loads((output / "results.json").read_text())
    assert results["seconds"] > 0
    assert list(results["stages"]) == ["pairs", "ccp", "shift", "scale", "rotate"]
    for scores in results["stages"].values():
        assert {"all", "with_parallel", "without_parallel", "en", "zh"} <= set(scores)
        assert all(0 <= value <= 1 for value in scores.values())
        # 10 pairs of languages with parallel text, 5 with zh, both directions each.
        mean = (20 * scores["with_parallel"] + 10 * scores["without_parallel"]) / 30
        assert math.isclose(scores["all"], mean, abs_tol=1e-9)


def test_the_model_is_plain_and_knows_the_languages(output: Path) -> None:
    types = {entry["type"] for entry in json.loads((output / "model" / "modules.json").read_text())}
    assert all(name.startswith("sentence_transformers.") for name in types)
    model = SentenceTransformer(str(output / "model"))
    assert model.encode(["где ключ"], task="ru").shape == model.encode(["the key"]).shape
    with pytest.raises(ValueError, match="xx"):
        model.encode(["?"], task="xx")


def test_card_and_pictures_are_there(output: Path) -> None:
    card = (output / "model" / "README.md").read_text(encoding="utf-8")
    assert "few pairs only" in card and "wu2022ccp" in card
    of_model = json.loads((output / "results.json").read_text())["stages"]["rotate"]
    metadata = ModelCard(card).data.eval_results
    assert {entry.dataset_config: entry.metric_value for entry in metadata} == pytest.approx(of_model, abs=1e-6)
    assert {"training.png", "stages.png", "pca-en-fr.png", "pca-en-de.png"} <= {p.name for p in output.glob("*.png")}
