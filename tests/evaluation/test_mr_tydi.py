"""Mr.TyDi by its official layouts."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from st_xlret.evaluation.mr_tydi import MrTyDiEvaluator
from tests import tiny
from tests.evaluation.samples import MR_TYDI, write_jsonl, write_mr_tydi, write_topics


def write_hub(root: Path, *, jsonl: bool) -> Path:
    """The Hub's two data sets: questions with their passages, in one folder, or as TREC has them, side by side."""
    corpora, queries = (root, root) if jsonl else (root / "mr-tydi-corpus", root / "mr-tydi")
    for language, sample in MR_TYDI.items():
        name = f"mrtydi-v1.1-{language}"
        passages = {name: {"docid": name, "title": title, "text": text} for name, title, text in sample["passages"]}
        write_jsonl(corpora / name / "corpus.jsonl.gz", list(passages.values()))
        if not jsonl:
            files = queries / name / "ir-format-data"
            write_topics(files / "topics.test.txt", files / "qrels.test.txt", sample)
            continue
        records = []
        for query, text in sample["questions"].items():
            right = [passages[document] for other, document, value in sample["qrels"] if other == query and value]
            records.append({"query_id": query, "query": text, "positive_passages": right})
        write_jsonl(queries / name / "test.jsonl.gz", records)
    return root


@pytest.mark.parametrize("hub_has_jsonl", [None, True, False])
def test_every_layout_gives_the_scores_by_hand(tmp_path, hub_has_jsonl) -> None:
    folder = write_mr_tydi(tmp_path) if hub_has_jsonl is None else write_hub(tmp_path, jsonl=hub_has_jsonl)
    result = MrTyDiEvaluator.from_directory(folder, cache_dir=tmp_path / "cache").evaluate(tiny.static(features=64))
    # Of a question in Telugu, the passage that is right has one word, and another two.
    expected = {"sw": {"mrr_at_100": 1, "recall_at_100": 1}, "te": {"mrr_at_100": 0.75, "recall_at_100": 1}}
    assert result.scores == expected and result.average == {"mrr_at_100": 0.875, "recall_at_100": 1}
    assert result.protocol["split"] == "test" and result.protocol["corpus_size"] == "sw 3, te 3"


def test_from_the_hub(tmp_path, monkeypatch) -> None:
    write_hub(tmp_path, jsonl=False)

    def download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset" and allow_patterns == ["mrtydi-v1.1-telugu/*"]
        return str(tmp_path / repository.rpartition("/")[2])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert list(MrTyDiEvaluator.from_directory(None, ["te"]).pools) == ["te"]
    folder = write_mr_tydi(tmp_path) / "mrtydi-v1.1-telugu"  # of one language
    assert list(MrTyDiEvaluator.from_directory(folder).pools) == ["te"]
    with pytest.raises(ValueError, match="'fr'"):
        MrTyDiEvaluator.from_directory(None, ["fr"])
