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
from training_scripts.studies.prepare import Pool, main, read_pool, row_of_text, write_pool


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def prepare(kind: str, output: Path, *options: str | Path) -> Path:
    main(["--kind", kind, "--output", str(output), *map(str, options)])
    return output


def given_pool(
    folder: Path,
    corpus: list[dict[str, Any]],
    queries: list[dict[str, Any]],
    judged: list[tuple[str, str]],
    splits: tuple[str, ...] = ("test",),
) -> Path:
    lines = [[*pair, "1"] for pair in judged]
    pool = Pool({"corpus": corpus, "queries": queries}, {split: lines for split in splits})
    write_pool(folder / "given", pool)
    return folder / "given"


def judged_pairs(pool: Pool, split: str = "test") -> list[tuple[str, str]]:
    return [(query, candidate) for query, candidate, _ in pool.judged[split]]


def texts_of(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["_id"]: row["text"] for row in rows}


def test_no_sentence_of_a_test_set_is_trained_on(tmp_path: Path) -> None:
    corpus = [{"_id": "a", "text": "An  answer."}]
    queries = [{"_id": "q", "text": "A question?"}]
    pool = given_pool(tmp_path, corpus, queries, [])
    write_text(tmp_path / "tatoeba.fra-eng.eng", "Good  morning.\n")
    output = tmp_path / "sentences.txt"

    prepare("sentences", output, "--pools", pool, "--tatoeba", tmp_path)

    assert output.read_text().splitlines() == ["A question?", "An answer.", "Good morning."]
    with pytest.raises(FileExistsError, match=r"sentences\.txt"):
        prepare("sentences", output, "--pools", pool)


def test_each_sentence_asks_once_and_its_translations_answer(tmp_path: Path) -> None:
    pool = read_pool(str(prepare("held-out", tmp_path / "pool")), "test")
    assert len(pool.rows["corpus"]) == 5000
    assert len(pool.rows["queries"]) == 500
    assert len(pool.judged["test"]) == 5000


def test_pairs_without_languages_and_a_third_of_them(tmp_path: Path) -> None:
    pairs = [("en", "fr", "yes", "oui"), ("en", "de", "yes", "ja"), ("en", "de", "no", "nein")]
    names = ("source_language", "target_language", "source", "target")
    rows = [dict(zip(names, pair, strict=True)) for pair in pairs]
    file = write_jsonl(tmp_path / "pairs.jsonl", rows)

    without_french = prepare(
        "pairs", tmp_path / "without.jsonl", "--pairs", file, "--without", "fr"
    )
    last_third = prepare("pairs", tmp_path / "third.jsonl", "--pairs", file, "--third", "2")

    assert lines(without_french) == rows[1:]
    assert lines(last_third) == rows[2:]


def test_the_first_sentences_of_some_languages(tmp_path: Path) -> None:
    rows = []
    for code in ("de", "el", "fr") * 2:
        rows.append({"language": code, "sentences": [f"{code} {n}." for n in range(3)]})
    file = write_jsonl(tmp_path / "all.jsonl", rows)

    options = ["--languages", "de", "el", "--per_language", "4"]
    output = prepare("documents", tmp_path / "some.jsonl", "--documents", file, *options)

    assert sorted(row["language"] for row in lines(output)) == ["de"] * 4 + ["el"] * 4


def test_english_questions_among_the_sentences_of_their_paragraphs(tmp_path: Path) -> None:
    passage = "Anna won. Bert lost! Carl slept? Dora sang."
    asked = []
    for name in ("Anna", "Bert"):
        asked.append({"query": f"{name}?", "positive": passage, "answers": [name]})
    file = write_jsonl(tmp_path / "questions.jsonl", asked)

    pool = read_pool(str(prepare("questions", tmp_path / "pool", "--retrieval", file)), "test")

    texts = texts_of(pool.rows["corpus"])
    questions = texts_of(pool.rows["queries"])
    answers = {questions[query]: texts[answer] for query, answer in judged_pairs(pool)}
    assert answers == {"Anna?": "Anna won.", "Bert?": "Bert lost!"}
    assert len(texts) == 4


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
    corpus = []
    queries = []
    judged = []
    for n in range(6):
        queries.append(row_of_text(f"q{n}", "?", "en" if n else "de"))
        for code in ("de", "en"):
            about = {"document": n, "language": code}
            corpus.append({"_id": f"{code}{n}", "title": "T", "text": "-", "metadata": about})
            judged.append((f"q{n}", f"{code}{n}"))
    pool = given_pool(tmp_path, corpus, queries, judged, ("test", "test-same-language"))

    output = prepare(kind, tmp_path / "part", "--pools", pool, *options.split())

    part = read_pool(str(output), "test")
    pairs = judged_pairs(part)
    assert [row["_id"] for row in part.rows["corpus"]] == candidates.split()
    assert {row["title"] for row in part.rows["corpus"]} == {""}
    assert len(pairs) == judgements
    assert texts_of(part.rows["queries"]).keys() == {query for query, _ in pairs}


@pytest.fixture
def afriqa(tmp_path: Path) -> Path:
    """What `prepare` makes of two questions, a passage, three articles and a topic."""
    asked = []
    for n in (0, 1):
        about = {"language": "ha", "english": "When?"}
        asked.append({"_id": f"ha-{n}", "text": "?", "metadata": about})
    passage = {"_id": "p", "text": "It rains in May."}
    pool = given_pool(tmp_path, [passage], asked, [("ha-1", "p")], ("train", "dev"))
    articles = []
    for n in range(3):
        articles.append({"language": "ig", "title": f"{n}?", "sentences": ["123456789"] * 5})
    news = write_jsonl(tmp_path / "news.jsonl", articles)
    topics = write_text(tmp_path / "topics.miracl-v1.0-yo-dev.tsv", "1\tNígbà wo?\n")
    options = ["--documents", news, "--per_language", "3", "--topics", topics]
    return prepare("afriqa", tmp_path / "pool", "--pools", pool, *options)


def test_passages_of_news_are_as_long_as_those_that_answer(afriqa: Path) -> None:
    _, *news = read_pool(str(afriqa), "dev").rows["corpus"]
    found = [(row["title"], row["text"]) for row in news]
    assert found == [(f"{n}?", "123456789 123456789") for n in range(3)]


def test_questions_stand_as_asked_and_in_english(afriqa: Path) -> None:
    pool = read_pool(str(afriqa), "dev")
    questions = {"ha-0": "?", "ha-1": "?", "ha-0-en": "When?", "ha-1-en": "When?"}
    assert texts_of(pool.rows["queries"]) == questions
    assert judged_pairs(pool, "dev") == [("ha-1", "p"), ("ha-1-en", "p")]


def test_what_can_be_learned_from_stands_beside_the_pool(afriqa: Path) -> None:
    (pair,) = lines(afriqa / "pairs.jsonl")
    assert list(pair.values()) == ["?", "ha", "When?", "en"]
    assert lines(afriqa / "log.jsonl") == [{"text": "?", "language": "ha"}]
    assert lines(afriqa / "questions.jsonl")[2] == {"text": "2?", "language": "ig"}
    assert lines(afriqa / "topics.jsonl") == [{"text": "Nígbà wo?", "language": "yo"}]


def test_an_encoder_gets_a_head_and_stays_as_it_is(encoder: Path, tmp_path: Path) -> None:
    texts = tiny.texts(60)["sentence"][:]
    file = write_jsonl(tmp_path / "texts.jsonl", [{"language": "en", "sentences": texts}])

    folder = prepare("head", tmp_path / "with-head", "--model", encoder, "--documents", file)

    before = SentenceTransformer(str(encoder), device="cpu")
    model = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_array_equal(model.encode(["sun moon"]), before.encode(["sun moon"]))
    curve = json.loads((folder / "held_out_losses.json").read_text())
    with torch.no_grad():
        loss = MaskedLMLoss(model, seed=0)  # finds the head: no NoHeadError
        value = float(loss([model.preprocess(texts)]))
    assert curve[-1] < 0.99 * curve[0]
    assert value == pytest.approx(curve[-1], rel=0.025)


def test_parallel_sentences_in_their_contexts(tmp_path: Path) -> None:
    texts = [("a:1", "One"), ("a:2", "Two"), ("b:1", "Alone"), ("c:1", "Three"), ("c:2", "Hidden")]
    codes = {"source_language": "en", "target_language": "zh"}
    rows = []
    for name, text in texts:
        rows.append({**codes, "source": f"{text}.", "target": f"{text}。", "id": name})
    pairs = write_jsonl(tmp_path / "pairs.jsonl", rows)
    test = write_text(tmp_path / "test.txt", "hidden\n")

    output = prepare("contexts", tmp_path / "contexts.jsonl", "--pairs", pairs, "--exclude", test)

    (row,) = lines(output)
    assert row == {**codes, "source": "One. One. Two.", "target": "One。 One。Two。"}
