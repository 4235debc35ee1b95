"""What rows of a study share: sentences not to train on, and parts of the texts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import MaskedLMLoss
from tests import tiny
from training_scripts.studies.prepare import main


def lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_no_sentence_of_a_test_set_is_trained_on(tmp_path: Path) -> None:
    pool, tatoeba = tmp_path / "pool", tmp_path / "tatoeba"
    for folder in (pool, tatoeba):
        folder.mkdir(parents=True)
    (pool / "corpus.jsonl.gz").write_bytes(gzip.compress(json.dumps({"_id": "a", "text": "An  answer."}).encode()))
    (pool / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "A question?"}))
    (tatoeba / "tatoeba.fra-eng.eng").write_text("Good  morning.\n")
    given = ["--kind", "sentences", "--pools", str(pool), "--tatoeba", str(tatoeba)]
    main([*given, "--output", str(tmp_path / "sentences.txt")])
    sentences = (tmp_path / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert sentences == sorted(["An answer.", "A question?", "Good morning."])


def test_the_held_out_pool(tmp_path: Path) -> None:
    main(["--kind", "held-out", "--output", str(tmp_path / "pool")])
    corpus, queries = (lines(tmp_path / "pool" / f"{name}.jsonl") for name in ("corpus", "queries"))
    assert len(queries) == 500 and len(corpus) == 500 * 10
    assert len((tmp_path / "pool/qrels/test.tsv").read_text().splitlines()) == 1 + len(corpus)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ("--without fr", {("en", "de")}),
        ("--third 2", {("en", "de")}),
    ],
)
def test_pairs_of_some_languages(tmp_path: Path, options: str, kept: set[tuple[str, str]]) -> None:
    names = ("source_language", "target_language", "source", "target")
    rows = [("en", "fr", "yes", "oui"), ("en", "de", "yes", "ja"), ("en", "de", "no", "nein")]
    text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    (tmp_path / "pairs.jsonl").write_text(text)
    given = ["--kind", "pairs", "--pairs", str(tmp_path / "pairs.jsonl"), *options.split()]
    main([*given, "--output", str(tmp_path / "some.jsonl")])
    assert {(row["source_language"], row["target_language"]) for row in lines(tmp_path / "some.jsonl")} == kept


def test_some_sentences_of_some_languages(tmp_path: Path) -> None:
    rows = [{"language": code, "sentences": [f"{code} {n}." for n in range(3)]} for code in ("de", "el", "fr") * 2]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--kind", "documents", "--documents", str(tmp_path / "documents.jsonl"), "--languages", "de", "el"]
    main([*given, "--per_language", "4", "--output", str(tmp_path / "some.jsonl")])
    assert sorted(row["language"] for row in lines(tmp_path / "some.jsonl")) == ["de"] * 4 + ["el"] * 4


def test_english_questions_among_the_sentences_of_their_paragraphs(tmp_path: Path) -> None:
    passage = "Anna won. Bert lost! Carl slept? Dora sang."
    rows = [("Who won?", "Anna"), ("Who lost?", "Bert")]
    asked = [{"query": question, "positive": passage, "answers": [answer]} for question, answer in rows]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    main(["--kind", "questions", "--retrieval", str(tmp_path / "questions.jsonl"), "--output", str(tmp_path / "pool")])
    texts = {
        row["_id"]: row["text"] for name in ("corpus", "queries") for row in lines(tmp_path / f"pool/{name}.jsonl")
    }
    _, *judged = (tmp_path / "pool/qrels/test.tsv").read_text().splitlines()
    found = {texts[line.split("\t")[0]]: texts[line.split("\t")[1]] for line in judged}
    assert found == {"Who won?": "Anna won.", "Who lost?": "Bert lost!"} and len(texts) == 2 + 4


def test_every_fourth_paragraph(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    (pool / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": f"{code}{n}", "text": "-", "metadata": {"document": n, "language": code}}
        for n in range(6)
        for code in ("de", "en")
    ]
    queries = [{"_id": f"q{n}", "text": "?", "metadata": {"language": "en" if n else "de"}} for n in range(6)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (pool / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"q{n}\t{code}{n}\t1\n" for n in range(6) for code in ("de", "en"))
    for split in ("test", "test-same-language"):
        (pool / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    main(["--kind", "part", "--pools", str(pool), "--output", str(tmp_path / "part")])
    kept = [row["_id"] for name in ("corpus", "queries") for row in lines(tmp_path / f"part/{name}.jsonl")]
    assert kept == ["de0", "en0", "de4", "en4", "q0", "q4"]
    assert len((tmp_path / "part/qrels/test.tsv").read_text().splitlines()) == 1 + 4
    given = ["--kind", "part", "--pools", str(pool), "--languages", "en", "--output", str(tmp_path / "english")]
    main(given)
    kept = [row["_id"] for name in ("corpus", "queries") for row in lines(tmp_path / f"english/{name}.jsonl")]
    assert kept == ["en0", "en4", "q4"]
    main(["--kind", "apart", "--pools", str(pool), "--output", str(tmp_path / "apart")])
    kept = [row["_id"] for row in lines(tmp_path / "apart/corpus.jsonl")]
    assert kept == ["de0", "en1", "de2", "en3", "de4", "en5"]
    assert len((tmp_path / "apart/qrels/test.tsv").read_text().splitlines()) == 1 + 6


def test_questions_as_asked_and_in_english_among_passages_of_news_as_long(tmp_path: Path) -> None:
    pool = tmp_path / "afriqa"
    (pool / "qrels").mkdir(parents=True)
    (pool / "corpus.jsonl").write_text(json.dumps({"_id": "p", "text": "It rains in May.", "metadata": {}}) + "\n")
    asked = [{"_id": f"ha-{split}", "text": "?", "metadata": {"english": "When?"}} for split in ("train", "dev")]
    (pool / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    for split in ("train", "dev"):
        (pool / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\nha-{split}\tp\t1\n")
    articles = [{"language": "ig", "title": f"{n}", "sentences": ["123456789"] * 5} for n in range(3)]
    (tmp_path / "news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in articles))
    given = ["--kind", "afriqa", "--pools", str(pool), "--documents", str(tmp_path / "news.jsonl")]
    main([*given, "--per_language", "3", "--output", str(tmp_path / "out")])
    news = [row for row in lines(tmp_path / "out/corpus.jsonl") if row["_id"] != "p"]
    assert [(row["title"], row["text"]) for row in news] == [(f"{n}", "123456789 123456789") for n in range(3)]
    queries = {row["_id"]: row["text"] for row in lines(tmp_path / "out/queries.jsonl")}
    assert queries == {"ha-train": "?", "ha-dev": "?", "ha-train-en": "When?", "ha-dev-en": "When?"}
    judged = (tmp_path / "out/qrels/dev.tsv").read_text().splitlines()[1:]
    assert judged == ["ha-dev\tp\t1", "ha-dev-en\tp\t1"]


def test_an_encoder_gets_a_head_and_stays_as_it_is(tmp_path: Path) -> None:
    tiny.transformer().save(str(tmp_path / "encoder"))
    rows = [{"language": "en", "sentences": tiny.texts(60)["sentence"][:]}]
    (tmp_path / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--kind", "head", "--model", str(tmp_path / "encoder"), "--documents", str(tmp_path / "documents.jsonl")]
    main([*given, "--output", str(tmp_path / "with-head")])
    model, before = (SentenceTransformer(str(tmp_path / name), device="cpu") for name in ("with-head", "encoder"))
    np.testing.assert_array_equal(model.encode(["sun moon"]), before.encode(["sun moon"]))
    curve = json.loads((tmp_path / "with-head/held_out_losses.json").read_text())
    loss = MaskedLMLoss(model, seed=0)  # finds the head: no NoHeadError
    found = loss([model.preprocess(rows[0]["sentences"])])
    assert curve[-1] < 0.99 * curve[0] and float(found) == pytest.approx(curve[-1], rel=0.025)


def test_parallel_sentences_in_their_contexts(tmp_path: Path) -> None:
    def row(name: str, text: str) -> str:
        pair = {"source_language": "en", "target_language": "zh", "source": f"{text}.", "target": f"{text}。"}
        return json.dumps({**pair, "id": name}, ensure_ascii=False) + "\n"

    texts = [row("a:1", "One"), row("a:2", "Two"), row("b:1", "Alone"), row("c:1", "Three"), row("c:2", "Hidden")]
    (tmp_path / "pairs.jsonl").write_text("".join(texts), encoding="utf-8")
    (tmp_path / "test.txt").write_text("hidden\n")
    given = ["--kind", "contexts", "--pairs", str(tmp_path / "pairs.jsonl"), "--exclude", str(tmp_path / "test.txt")]
    main([*given, "--output", str(tmp_path / "contexts.jsonl")])
    (found,) = lines(tmp_path / "contexts.jsonl")
    assert (found["source"], found["target"]) == ("One. One. Two.", "One。 One。Two。")
