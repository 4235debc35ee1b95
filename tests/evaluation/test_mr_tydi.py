"""Mr.TyDi: every layout of its files, and the Hub."""

from pathlib import Path

import huggingface_hub
import pytest

from st_xlret.evaluation import MrTyDiEvaluator
from tests import tiny
from tests.evaluation.samples import MR_TYDI_LAYOUTS, write_mr_tydi


@pytest.mark.parametrize("layout", MR_TYDI_LAYOUTS)
def test_every_layout_gives_the_scores_by_hand(tmp_path: Path, layout: str) -> None:
    evaluator = MrTyDiEvaluator.from_directory(write_mr_tydi(tmp_path, layout))
    result = evaluator.evaluate(tiny.static(features=64))
    # Of a question in Telugu, the passage that is right has one word, and another two.
    assert result.scores["sw"] == {"mrr_at_100": 1, "recall_at_100": 1}
    assert result.scores["te"] == {"mrr_at_100": 0.75, "recall_at_100": 1}
    assert result.average == {"mrr_at_100": 0.875, "recall_at_100": 1}
    assert result.protocol["split"] == "test"
    assert result.protocol["corpus_size"] == "sw 3, te 3"


def test_a_folder_may_be_that_of_one_language(tmp_path: Path) -> None:
    folder = write_mr_tydi(tmp_path) / "mrtydi-v1.1-telugu"
    assert list(MrTyDiEvaluator.from_directory(folder).pools) == ["te"]


def test_of_the_hub_the_files_of_a_language_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mr_tydi(tmp_path, "hub")

    def download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset"
        assert allow_patterns == ["mrtydi-v1.1-telugu/*"]
        return str(tmp_path / repository.rpartition("/")[2])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert list(MrTyDiEvaluator.from_directory(None, ["te"]).pools) == ["te"]
    with pytest.raises(ValueError, match="'fr'"):
        MrTyDiEvaluator.from_directory(None, ["fr"])
