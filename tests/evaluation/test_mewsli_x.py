"""Mewsli-X: its texts and judgements, by language and by split."""

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import MewsliXEvaluator
from tests.evaluation.samples import write_mewsli_x


def test_entities_and_mentions_are_read_as_by_xtreme_r(tmp_path: Path) -> None:
    data = MewsliXEvaluator.from_directory(write_mewsli_x(tmp_path)).pools["all"]
    assert data.corpus["id"][:] == [f"Q{row}" for row in range(6)]
    assert data.corpus["text"][0] == "A taxi. It is a taxi."
    assert data.corpus["language"][:] == ["en", "fr", "de", "en", "fr", "de"]
    assert data.queries["text"][:3] == [
        "taxi: { taxi } and night met.",
        "hotel: Then { hotel } .",
        "night: taxi and { night } met.",
    ]
    assert data.qrels["de-4"] == {"Q4": 1}


def test_scores_by_language(static_model: SentenceTransformer, tmp_path: Path) -> None:
    evaluator = MewsliXEvaluator.from_directory(write_mewsli_x(tmp_path), ["de"])
    result = evaluator.evaluate(static_model)
    assert list(result.scores) == ["de"]
    assert 0 < result.average["map_at_20"] < 1
    # Of one relevant entity, both are the same.
    assert result.average["map_at_20"] == pytest.approx(result.average["mrr_at_100"])


def test_scores_of_another_split(static_model: SentenceTransformer, tmp_path: Path) -> None:
    evaluator = MewsliXEvaluator.from_directory(write_mewsli_x(tmp_path), split="dev")
    assert list(evaluator.evaluate(static_model).scores) == ["en"]
