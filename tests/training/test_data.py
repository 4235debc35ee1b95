"""Questions with passages and translations: what is trained on, and what is held out."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from st_xlret.data import DataError
from st_xlret.training.data import AnswerOptions, PairOptions, QuestionOptions
from tests import tiny
from tests.data.files import multilingual_pool, write_jsonl
from tests.evaluation.samples import write_lareqa

SUN = {
    "query": "When did the sun come out?",
    "title": "Sky",
    "positive": "The sun came out at seven. It was cold.",
}
WOLF = {
    "query": "Who lives there?",
    "title": "Zoo",
    "positive": "A wolf lives there. It eats fish.",
}
PASSAGES = [{**SUN, "answers": ["seven"]}, {**WOLF, "answers": ["wolf"]}]


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return write_jsonl(tmp_path / "questions.jsonl", PASSAGES)


def load(source: Path, *, model: str | None = None, resume: bool = False, **options: Any) -> Any:
    args: Any = SimpleNamespace(seed=0, output_dir=str(source.parent), resume=resume)
    return QuestionOptions(retrieval=[str(source)], **options).load_questions(model, args)


def test_questions_of_the_test_set_are_not_trained_on(questions: Path, tmp_path: Path) -> None:
    few = multilingual_pool(
        tmp_path / "few", {"en": [*(f"question {i}" for i in range(40)), "who lives THERE"]}
    )
    assert load(questions, test=str(few))[0]["query"][:] == ["When did the sun come out?"]
    with pytest.raises(DataError, match="(?s)1 of the 1 .*wrong"):
        load(
            questions, test=str(multilingual_pool(tmp_path / "wrong", {"en": ["who lives there"]}))
        )


def test_passages_sentences_and_sentences_in_context(questions: Path, tmp_path: Path) -> None:
    assert load(questions)[0][1]["positive"] == "Zoo A wolf lives there. It eats fish."
    rows, _ = load(questions, positives="sentence", context=True, hard_negatives=1)
    assert rows[1]["positive"] == "A wolf lives there. A wolf lives there. It eats fish."
    assert rows[1]["negative_1"] == "It eats fish. A wolf lives there. It eats fish."
    for context, candidate in ((True, "sentence followed by its paragraph"), (False, "sentence")):
        test = str(write_lareqa(tmp_path / str(context)))
        evaluator = QuestionOptions(retrieval=["q"], context=context, test=test).lareqa_evaluator()
        assert evaluator is not None and evaluator.notes["candidate"] == candidate


def test_negatives_are_those_of_the_file_or_mined_and_kept_for_a_resumed_run(
    questions: Path, tmp_path: Path
) -> None:
    own = write_jsonl(tmp_path / "own.jsonl", [{**row, "negatives": ["It."]} for row in PASSAGES])
    assert load(own, hard_negatives=1)[0]["negative_1"][:] == ["It."] * 2
    with pytest.raises(ValueError, match="--model"):
        load(questions, hard_negatives=2)
    texts, model = tiny.texts(60)["sentence"][:], str(tmp_path / "model")
    rows = [
        {"query": query, "positive": passage}
        for query, passage in zip(texts[:30], texts[30:], strict=True)
    ]
    source = write_jsonl(tmp_path / "many.jsonl", rows)
    tiny.static().save(model)
    mined, _ = load(source, model=model, hard_negatives=1)
    assert len(mined) and all(row["negative_1"] != row["positive"] for row in mined)
    assert set(mined["negative_1"]) <= set(texts[30:]) and set(mined["language"]) == {"en"}
    shutil.rmtree(model)
    assert load(source, model=model, hard_negatives=1, resume=True)[0].to_list() == mined.to_list()
    with pytest.raises(OSError, match="model"):  # mined anew
        load(source, model=model, hard_negatives=1)


def test_some_questions_and_pairs_are_held_out_or_excluded(tmp_path: Path, questions: Path) -> None:
    many = [
        {"query": f"question {i}", "positive": f"answer {i}", "negatives": ["no"]}
        for i in range(200)
    ]
    source = write_jsonl(tmp_path / "many.jsonl", many)
    rest, evaluator = load(source, evaluation_questions=10, hard_negatives=1)
    assert len(rest) == 190 and len(evaluator.queries) == 10
    assert len(evaluator.corpus) == 11 and not set(evaluator.queries) & set(rest["query"])
    (tmp_path / "test.txt").write_text("question 3\nanswer 5\n")
    rest, evaluator = load(source, evaluation_questions=0, exclude=[str(tmp_path / "test.txt")])
    assert {row["query"] for row in many} - set(rest["query"]) == {
        "question 3",
        "question 5",
    } and evaluator is None
    file = str(write_jsonl(tmp_path / "pairs.jsonl", tiny.pairs(60).to_list()))
    rest, of_pairs = PairOptions(pairs=[file], evaluation_pairs=5).load_pairs(0)
    assert rest is not None and of_pairs is not None and 0 < len(rest) < 60
    assert PairOptions(pairs=[file], evaluation_pairs=0).load_pairs(0)[1] is None
    assert PairOptions().load_pairs(0) == (None, None)


def test_answers_are_no_more_than_the_run_can_read(questions: Path) -> None:
    args: Any = SimpleNamespace(
        seed=0, max_steps=1, train_batch_size=1, world_size=1, gradient_accumulation_steps=1
    )
    data = AnswerOptions(retrieval=[str(questions)], context=True)
    for steps, count in ((1, 1), (-1, 2)):  # or whole epochs
        args.max_steps = steps
        rows, evaluator = data.load_answers(args, "en", 1, 0)
        assert rows is not None and len(rows) == count and evaluator is None
        assert all(text.count(". ") == 2 for text in rows["positive"])
    assert (
        data.load_answers(args, "en", 0, 0)
        == (None, None)
        == AnswerOptions().load_answers(args, "en", 1, 0)
    )
