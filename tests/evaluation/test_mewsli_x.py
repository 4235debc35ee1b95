from __future__ import annotations

import pytest

from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from tests.evaluation.samples import write_mewsli_x


def test_reads_the_release_by_language_and_split(static_model, tmp_path) -> None:
    data = MewsliXEvaluator.from_directory(write_mewsli_x(tmp_path)).pools["all"]
    assert data.corpus["id"][:] == [f"Q{row}" for row in range(6)]
    assert data.corpus["text"][0] == "A taxi. It is a taxi."
    assert data.corpus["language"][:] == ["en", "fr", "de", "en", "fr", "de"]
    mentions = ["taxi: { taxi } and night met.", "hotel: Then { hotel } .", "night: taxi and { night } met."]
    assert data.queries["text"][:3] == mentions
    assert data.qrels["de-4"] == {"Q4": 1}
    result = MewsliXEvaluator.from_directory(tmp_path, ["de"]).evaluate(static_model)
    assert list(result.scores) == ["de"] and 0 < result.average["map_at_20"] < 1
    assert result.average["map_at_20"] == pytest.approx(result.average["mrr_at_100"])  # of one relevant entity
    assert result.protocol["corpus_size"] == "6" and "braces" in result.protocol["query"]
    assert list(MewsliXEvaluator.from_directory(tmp_path, split="dev").evaluate(static_model).scores) == ["en"]
