"""What rows of a study share: sentences not to train on, and parts of the texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret import MaskedLMLoss
from tests import tiny
from tests.data.files import write_jsonl, write_text
from training_scripts.studies.prepare import main, read_pool, write_pool


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def pool_at(
    folder: Path, split: str = "test"
) -> tuple[list[dict[str, Any]], dict[str, str], list[list[str]]]:
    """The candidates, the texts of the questions, and the judged pairs."""
    rows, judged = read_pool(str(folder), split)
    return (
        rows["corpus"],
        {row["_id"]: row["text"] for row in rows["queries"]},
        [pair for *pair, _ in judged[split]],
    )


def prepare(kind: str, output: Path, *options: str | Path) -> Path:
    main(["--kind", kind, "--output", str(output), *map(str, options)])
    return output


def pool_of(
    folder: Path, corpus: Any, queries: Any, *judged: tuple[str, str], splits: str = "test"
) -> Path:
    lines = {split: [(*pair, "1") for pair in judged] for split in splits.split()}
    write_pool(folder / "given", {"corpus": corpus, "queries": queries}, lines)
    return folder / "given"


def test_no_sentence_of_a_test_set_is_trained_on(tmp_path: Path) -> None:
    pool = pool_of(
        tmp_path, [{"_id": "a", "text": "An  answer."}], [{"_id": "q", "text": "A question?"}]
    )
    write_text(tmp_path / "tatoeba.fra-eng.eng", "Good  morning.\n")
    sentences = prepare(
        "sentences", tmp_path / "sentences.txt", "--pools", pool, "--tatoeba", tmp_path
    )
    assert sentences.read_text().splitlines() == ["A question?", "An answer.", "Good morning."]
    with pytest.raises(FileExistsError, match=r"sentences\.txt"):
        prepare("sentences", sentences, "--pools", pool)
    assert [len(part) for part in pool_at(prepare("held-out", tmp_path / "pool"))] == [
        5000,
        500,
        5000,
    ]


def test_pairs_and_sentences_of_some_languages(tmp_path: Path) -> None:
    names = ("source_language", "target_language", "source", "target")
    pairs = [("en", "fr", "yes", "oui"), ("en", "de", "yes", "ja"), ("en", "de", "no", "nein")]
    file = write_jsonl(
        tmp_path / "pairs.jsonl", [dict(zip(names, row, strict=True)) for row in pairs]
    )
    for options in (["--without", "fr"], ["--third", "2"]):
        some = prepare("pairs", tmp_path / f"{options[0]}.jsonl", "--pairs", file, *options)
        assert {row["target_language"] for row in lines(some)} == {"de"}
    rows = [
        {"language": code, "sentences": [f"{code} {n}." for n in range(3)]}
        for code in ("de", "el", "fr") * 2
    ]
    words = [
        "--documents",
        write_jsonl(tmp_path / "all.jsonl", rows),
        "--languages",
        "de",
        "el",
        "--per_language",
        "4",
    ]
    some = lines(prepare("documents", tmp_path / "some.jsonl", *words))
    assert sorted(row["language"] for row in some) == ["de"] * 4 + ["el"] * 4


def test_english_questions_among_the_sentences_of_their_paragraphs(tmp_path: Path) -> None:
    passage = "Anna won. Bert lost! Carl slept? Dora sang."
    asked = [
        {"query": f"{name}?", "positive": passage, "answers": [name]} for name in ("Anna", "Bert")
    ]
    file = write_jsonl(tmp_path / "questions.jsonl", asked)
    corpus, queries, judged = pool_at(prepare("questions", tmp_path / "pool", "--retrieval", file))
    texts = {row["_id"]: row["text"] for row in corpus}
    answers = {queries[question]: texts[answer] for question, answer in judged}
    assert answers == {"Anna?": "Anna won.", "Bert?": "Bert lost!"} and len(texts) == 4


@pytest.mark.parametrize(
    ("kind", "options", "candidates", "judgements"),
    [
        ("part", "", "de0 en0 de4 en4", 4),
        ("part", "--languages en", "en0 en4", 1),
        ("apart", "", "de0 en1 de2 en3 de4 en5", 6),
        ("apart", "--english_share 0.67", "de0 en1 en2 de3 en4 en5", 6),
    ],
)
def test_parts_of_a_pool(
    kind: str, options: str, candidates: str, judgements: int, tmp_path: Path
) -> None:
    both = [(code, n) for n in range(6) for code in ("de", "en")]
    corpus = [
        {"_id": f"{code}{n}", "text": "-", "metadata": {"document": n, "language": code}}
        for code, n in both
    ]
    queries = [
        {"_id": f"q{n}", "text": "?", "metadata": {"language": "en" if n else "de"}}
        for n in range(6)
    ]
    judged = [(f"q{n}", f"{code}{n}") for code, n in both]
    pool = pool_of(tmp_path, corpus, queries, *judged, splits="test test-same-language")
    part, asked, pairs = pool_at(
        prepare(kind, tmp_path / "part", "--pools", pool, *options.split())
    )
    assert [row["_id"] for row in part] == candidates.split() and len(pairs) == judgements
    assert asked.keys() == {question for question, _ in pairs}


def test_questions_as_asked_and_in_english_among_passages_of_news_as_long(tmp_path: Path) -> None:
    asked = [
        {"_id": f"ha-{n}", "text": "?", "metadata": {"language": "ha", "english": "When?"}}
        for n in (0, 1)
    ]
    afriqa = pool_of(
        tmp_path,
        [{"_id": "p", "text": "It rains in May."}],
        asked,
        ("ha-1", "p"),
        splits="train dev",
    )
    articles = [
        {"language": "ig", "title": f"{n}?", "sentences": ["123456789"] * 5} for n in range(3)
    ]
    words = [
        "--pools",
        afriqa,
        "--documents",
        write_jsonl(tmp_path / "news.jsonl", articles),
        "--per_language",
        "3",
    ]
    words += ["--topics", write_text(tmp_path / "topics.miracl-v1.0-yo-dev.tsv", "1\tNígbà wo?\n")]
    (_, *news), queries, judged = pool_at(prepare("afriqa", tmp_path / "pool", *words), "dev")
    assert [(row["title"], row["text"]) for row in news] == [
        (f"{n}?", "123456789 123456789") for n in range(3)
    ]
    assert lines(tmp_path / "pool" / "questions.jsonl")[2] == {"text": "2?", "language": "ig"}
    assert lines(tmp_path / "pool" / "topics.jsonl") == [{"text": "Nígbà wo?", "language": "yo"}]
    assert queries == {"ha-0": "?", "ha-1": "?", "ha-0-en": "When?", "ha-1-en": "When?"}
    assert judged == [["ha-1", "p"], ["ha-1-en", "p"]]
    assert [list(pair.values()) for pair in lines(tmp_path / "pool" / "pairs.jsonl")] == [
        ["?", "ha", "When?", "en"]
    ]


def test_an_encoder_gets_a_head_and_stays_as_it_is(encoder: Path, tmp_path: Path) -> None:
    texts = tiny.texts(60)["sentence"][:]
    file = write_jsonl(tmp_path / "texts.jsonl", [{"language": "en", "sentences": texts}])
    folder = prepare("head", tmp_path / "with-head", "--model", encoder, "--documents", file)
    model, before = (SentenceTransformer(str(path), device="cpu") for path in (folder, encoder))
    np.testing.assert_array_equal(model.encode(["sun moon"]), before.encode(["sun moon"]))
    curve = json.loads((folder / "held_out_losses.json").read_text())
    with torch.no_grad():
        loss = MaskedLMLoss(model, seed=0)(
            [model.preprocess(texts)]
        )  # finds the head: no NoHeadError
    assert curve[-1] < 0.99 * curve[0] and float(loss) == pytest.approx(curve[-1], rel=0.025)


def test_parallel_sentences_in_their_contexts(tmp_path: Path) -> None:
    texts = [("a:1", "One"), ("a:2", "Two"), ("b:1", "Alone"), ("c:1", "Three"), ("c:2", "Hidden")]
    codes = {"source_language": "en", "target_language": "zh"}
    rows = [
        {**codes, "source": f"{text}.", "target": f"{text}。", "id": name} for name, text in texts
    ]
    test = write_text(tmp_path / "test.txt", "hidden\n")
    words = ["--pairs", write_jsonl(tmp_path / "pairs.jsonl", rows), "--exclude", test]
    (row,) = lines(prepare("contexts", tmp_path / "contexts.jsonl", *words))
    assert row == {**codes, "source": "One. One. Two.", "target": "One。 One。Two。"}
