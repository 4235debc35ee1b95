"""Mr.TyDi by its official layouts, against a naive reference."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.mr_tydi import LANGUAGES, MrTyDiEvaluator
from tests import tiny

# Passages: id, title, text. The question with id 3 has no judgement: it does not count.
SAMPLE: dict[str, dict[str, object]] = {
    "sw": {
        "passages": [
            ("10#0", "sun", "moon star rain"),
            ("10#1", "sun", "wind snow tree"),
            ("11#0", "leaf", "root fish"),
            ("12#0", "bird", "wolf bear bear"),
        ],
        "questions": {"1": "moon star", "2": "root fish bird", "3": "snow"},
        "qrels": [("1", "10#0", 1), ("2", "10#1", 1), ("2", "11#0", 1), ("2", "12#0", 0)],
    },
    "te": {
        "passages": [("7#0", "tree", "leaf root"), ("7#1", "", "fish bird"), ("8#0", "wolf", "bear sun")],
        "questions": {"5": "wolf", "6": "leaf leaf fish"},
        "qrels": [("5", "7#0", 1), ("6", "7#0", 1)],
    },
}


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def jsonl(records: Sequence[Mapping[str, object]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def write_topics(folder: Path, topics: str, qrels: str, sample: Mapping) -> None:
    write(folder / topics, "".join(f"{name}\t{text}\n" for name, text in sample["questions"].items()))
    write(folder / qrels, "".join(f"{q}\tQ0\t{d}\t{value}\n" for q, d, value in sample["qrels"]))


def official(root: Path) -> Path:
    for code, sample in SAMPLE.items():
        folder = root / f"mrtydi-v1.1-{LANGUAGES[code]}"
        documents = [{"id": name, "contents": f"{t}\n\n{text}" if t else text} for name, t, text in sample["passages"]]
        write(folder / "collection" / "docs.jsonl.gz", jsonl(documents))
        write_topics(folder, "topic.test.tsv", "qrels.test.txt", sample)
    return root


def hub(root: Path, *, trec: bool, side_by_side: bool = False) -> Path:
    corpus_root, query_root = (root / "mr-tydi-corpus", root / "mr-tydi") if side_by_side else (root, root)
    for code, sample in SAMPLE.items():
        name = f"mrtydi-v1.1-{LANGUAGES[code]}"
        passages = {name: {"docid": name, "title": title, "text": text} for name, title, text in sample["passages"]}
        write(corpus_root / name / "corpus.jsonl.gz", jsonl(list(passages.values())))
        if trec:
            write_topics(query_root / name, "ir-format-data/topics.test.txt", "ir-format-data/qrels.test.txt", sample)
            continue
        questions = [
            {
                "query_id": query,
                "query": text,
                "positive_passages": [passages[d] for q, d, value in sample["qrels"] if q == query and value],
                "negative_passages": [],
            }
            for query, text in sample["questions"].items()
        ]
        write(query_root / name / "test.jsonl.gz", jsonl(questions))
    return root


@pytest.fixture
def model() -> SentenceTransformer:
    return tiny.static()


def naive_scores(model: SentenceTransformer, sample: Mapping) -> dict[str, float]:
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
    "official": official,
    "hub": lambda root: hub(root, trec=True),
    "hub jsonl": lambda root: hub(root, trec=False),
    "hub, two repositories": lambda root: hub(root, trec=True, side_by_side=True),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_scores_of_the_definition(model, tmp_path, layout) -> None:
    LAYOUTS[layout](tmp_path)
    evaluator = MrTyDiEvaluator.from_directory(tmp_path, cache_dir=tmp_path / "cache")
    result = evaluator.evaluate(model)
    expected = {code: naive_scores(model, sample) for code, sample in SAMPLE.items()}
    assert set(result.scores) == {"sw", "te"}
    for code, values in expected.items():
        assert result.scores[code] == pytest.approx(values, abs=1e-9)
    for metric in ("mrr_at_100", "recall_at_100"):
        assert result.average[metric] == pytest.approx((expected["sw"][metric] + expected["te"][metric]) / 2)
    assert 0 < result.average["mrr_at_100"] < 1
    assert result.protocol["split"] == "test" and result.protocol["corpus_size"] == "sw 4, te 3"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("qrels.test.txt", "1\tQ0\t10#0\t1", "9\tQ0\t10#0\t1", "qrels.test.txt: .*'9'"),
        ("topic.test.tsv", "3\tsnow", "3 snow", "topic.test.tsv, line 3"),
        ("collection/docs.jsonl.gz", '"11#0"', '"10#0"', "'1[01]#0'"),
        ("collection/docs.jsonl.gz", '"contents"', '"content"', "docs.jsonl.gz, line 1"),
    ],
)
def test_bad_input_names_file_and_line(model, tmp_path, file, old, new, message) -> None:
    path = official(tmp_path) / "mrtydi-v1.1-swahili" / file
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    write(path, text.replace(old, new))
    evaluator = MrTyDiEvaluator.from_directory(tmp_path, ["sw"], cache_dir=tmp_path / "cache")
    with pytest.raises(ValueError, match=message):
        evaluator.evaluate(model)


def test_missing_files_are_named_before_any_is_read(tmp_path) -> None:
    official(tmp_path)
    with pytest.raises(ValueError, match="'th'"):
        MrTyDiEvaluator.from_directory(tmp_path, ["sw", "th"])
    (tmp_path / "mrtydi-v1.1-telugu" / "qrels.test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"telugu/qrels\.test\.txt|qrels\.test\.txt"):
        MrTyDiEvaluator.from_directory(tmp_path)
    assert list(MrTyDiEvaluator.from_directory(tmp_path / "mrtydi-v1.1-swahili").pools) == ["sw"]


def test_from_the_hub(model, tmp_path, monkeypatch) -> None:
    hub(tmp_path, trec=True, side_by_side=True)

    def download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset" and allow_patterns == ["mrtydi-v1.1-telugu/*"]
        return str(tmp_path / repository.rpartition("/")[2])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    evaluator = MrTyDiEvaluator.from_directory(None, ["te"], cache_dir=tmp_path / "cache")
    assert evaluator.evaluate(model).scores["te"] == pytest.approx(naive_scores(model, SAMPLE["te"]))
    with pytest.raises(ValueError, match="'fr'"):
        MrTyDiEvaluator.from_directory(None, ["fr"])
