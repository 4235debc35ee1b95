"""Mr.TyDi by its official layouts, against a naive reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

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


def naive_scores(model: SentenceTransformer, sample: Mapping[str, Any]) -> dict[str, float]:
    """The definition, with loops."""
    texts = [f"{title} {text}".strip() for _, title, text in sample["passages"]]
    passages = model.encode_document(texts, normalize_embeddings=True)
    reciprocal, recall = [], []
    for query, text in sample["questions"].items():
        gold = {document for q, document, value in sample["qrels"] if q == query and value > 0}
        if not gold:
            continue
        scores = passages @ model.encode_query(text, normalize_embeddings=True)
        ranked = [sample["passages"][row][0] for row in np.argsort(-scores, kind="stable")][:100]
        ranks = [rank for rank, document in enumerate(ranked, start=1) if document in gold]
        reciprocal.append(1 / ranks[0] if ranks else 0.0)
        recall.append(len(ranks) / len(gold))
    return {"mrr_at_100": float(np.mean(reciprocal)), "recall_at_100": float(np.mean(recall))}


LAYOUTS = {
    "official": write_mr_tydi,
    "hub": lambda root: write_hub(root, jsonl=True),
    "hub, two repositories": lambda root: write_hub(root, jsonl=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_scores_of_the_definition(tmp_path, layout) -> None:
    folder, model = LAYOUTS[layout](tmp_path), tiny.static()
    result = MrTyDiEvaluator.from_directory(folder, cache_dir=tmp_path / "cache").evaluate(model)
    expected = {code: naive_scores(model, MR_TYDI[name]) for code, name in (("sw", "swahili"), ("te", "telugu"))}
    assert {code: pytest.approx(values, abs=1e-9) for code, values in result.scores.items()} == expected
    means = {name: (expected["sw"][name] + expected["te"][name]) / 2 for name in ("mrr_at_100", "recall_at_100")}
    assert result.average == pytest.approx(means) and 0 < means["mrr_at_100"] < 1
    assert result.protocol["split"] == "test" and result.protocol["corpus_size"] == "sw 4, te 3"


def test_the_folder_of_one_language(tmp_path) -> None:
    folder = write_mr_tydi(tmp_path) / "mrtydi-v1.1-swahili"
    assert list(MrTyDiEvaluator.from_directory(folder).pools) == ["sw"]


def test_from_the_hub(tmp_path, monkeypatch) -> None:
    write_hub(tmp_path, jsonl=False)

    def download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset" and allow_patterns == ["mrtydi-v1.1-telugu/*"]
        return str(tmp_path / repository.rpartition("/")[2])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    result = MrTyDiEvaluator.from_directory(None, ["te"], cache_dir=tmp_path / "cache").evaluate(tiny.static())
    assert result.scores["te"] == pytest.approx(naive_scores(tiny.static(), MR_TYDI["telugu"]))
    with pytest.raises(ValueError, match="'fr'"):
        MrTyDiEvaluator.from_directory(None, ["fr"])
