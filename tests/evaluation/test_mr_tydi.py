"""Mr.TyDi by its official layouts."""

from __future__ import annotations

import huggingface_hub
import pytest

from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator
from tests import tiny
from tests.evaluation.samples import MR_TYDI_FILES, write_mr_tydi


@pytest.mark.parametrize("layout", MR_TYDI_FILES)
def test_every_layout_gives_the_scores_by_hand(tmp_path, layout) -> None:
    evaluator = MrTyDiEvaluator.from_directory(write_mr_tydi(tmp_path, layout), cache_dir=tmp_path / "cache")
    result = evaluator.evaluate(tiny.static(features=64))
    # Of a question in Telugu, the passage that is right has one word, and another two.
    expected = {"sw": {"mrr_at_100": 1, "recall_at_100": 1}, "te": {"mrr_at_100": 0.75, "recall_at_100": 1}}
    assert result.scores == expected and result.average == {"mrr_at_100": 0.875, "recall_at_100": 1}
    assert result.protocol["split"] == "test" and result.protocol["corpus_size"] == "sw 3, te 3"


def test_from_the_hub(tmp_path, monkeypatch) -> None:
    write_mr_tydi(tmp_path, "hub")

    def download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset" and allow_patterns == ["mrtydi-v1.1-telugu/*"]
        return str(tmp_path / repository.rpartition("/")[2])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert list(MrTyDiEvaluator.from_directory(None, ["te"]).pools) == ["te"]
    folder = write_mr_tydi(tmp_path) / "mrtydi-v1.1-telugu"  # of one language
    assert list(MrTyDiEvaluator.from_directory(folder).pools) == ["te"]
    with pytest.raises(ValueError, match="'fr'"):
        MrTyDiEvaluator.from_directory(None, ["fr"])
