"""Texts are embedded once for all measures, with the same result as by the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import LAReQAEvaluator
from tests import tiny
from tests.data.files import write_jsonl
from training_scripts.studies.measure_search import RememberingEmbedder, main


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    folder = tmp_path / "pool"
    (folder / "qrels").mkdir(parents=True)
    documents = tiny.documents(count=120, sentences=2)
    rows = [(row["language"], row["sentence"]) for row in documents]
    corpus = [
        {"_id": f"{code}-{number}", "text": text, "metadata": {"language": code}}
        for number, (code, text) in enumerate(rows)
    ]
    queries = [{**row, "_id": f"q-{row['_id']}"} for row in corpus[::2]]
    write_jsonl(folder / "corpus.jsonl", corpus)
    write_jsonl(folder / "queries.jsonl", queries)
    for split in ("test", "test-same-language"):
        lines = ["query-id\tcorpus-id\tscore", *(f"{row['_id']}\t{row['_id'][2:]}\t1" for row in queries)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_the_figures_are_those_of_the_evaluators(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny.static(features=16)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    model.save(str(tmp_path / "model"))
    embedded: list[str] = []
    encode = SentenceTransformer.encode

    def counting(self: SentenceTransformer, sentences: list[str], **given: Any) -> Any:
        embedded.extend(sentences)
        return encode(self, sentences, **given)

    monkeypatch.setattr(SentenceTransformer, "encode", counting)
    given = ["--model", str(tmp_path / "model"), "--pool", str(pool), "--output", str(tmp_path / "figures.json")]
    figures = main([*given, "--precision", "fp32"])
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    texts = [json.loads(line)["text"] for line in (pool / "corpus.jsonl").read_text().splitlines()]
    questions = [json.loads(line)["text"] for line in (pool / "queries.jsonl").read_text().splitlines()]
    assert len(embedded) == len(set(texts)) + len(set(questions))
    for name, split in (("pool", "test"), ("own", "test-same-language")):
        average = LAReQAEvaluator.from_directory(pool, split=split).evaluate(model).average  # type: ignore[arg-type]
        assert figures[f"raw {name}"] == pytest.approx(average["map_at_20"])
    assert figures["raw preference"] == pytest.approx(
        LAReQAEvaluator.from_directory(pool, split="test").evaluate(model).average["language_preference"]
    )
    assert {"calibrated pool", "calibrated own", "aligned pool", "aligned own"} <= set(figures)


def test_each_role_is_remembered_apart() -> None:
    model = tiny.static(features=8)
    model.prompts = {"query": f"{tiny.WORDS[1]} ", "document": ""}
    embedder = RememberingEmbedder()
    query = embedder.embed(model, [tiny.WORDS[0]], "en", role="query")
    document = embedder.embed(model, [tiny.WORDS[0]] * 2, "en", role="document")
    assert len(embedder.known) == 2 and len(document) == 2
    assert not query.allclose(document[:1])
