"""Questions with passages and translations: what is trained on, and what is held out."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError
from st_xlret.training.data import PairOptions
from st_xlret.training.questions import AnswerOptions, QuestionOptions, question_evaluator
from st_xlret.training.teacher import distillation_data
from tests import tiny
from tests.data.files import multilingual_pool, write_jsonl
from tests.evaluation.samples import write_lareqa

SUN = {
    "query": "When did the sun come out?",
    "title": "Sky",
    "positive": "The sun came out at seven. It was cold.",
    "answers": ["seven"],
}
WOLF = {
    "query": "Who lives there?",
    "title": "Zoo",
    "positive": "A wolf lives there. It eats fish.",
    "answers": ["wolf"],
}


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return write_jsonl(tmp_path / "questions.jsonl", [SUN, WOLF])


def load(
    source: Path,
    *,
    model: str | None = None,
    resume: bool = False,
    **options: Any,
) -> tuple[Dataset, Any]:
    args: Any = SimpleNamespace(seed=0, output_dir=str(source.parent), resume=resume)
    return QuestionOptions(retrieval=[str(source)], **options).questions_and_evaluator(model, args)


# Questions


def test_questions_of_the_test_set_are_not_trained_on(questions: Path, tmp_path: Path) -> None:
    tested = [f"question {number}" for number in range(40)]
    pool = multilingual_pool(tmp_path / "few", {"en": [*tested, "who lives THERE"]})
    rows, _ = load(questions, test=str(pool))
    assert rows["query"][:] == ["When did the sun come out?"]


def test_a_test_set_that_is_among_the_questions_is_refused(
    questions: Path,
    tmp_path: Path,
) -> None:
    pool = multilingual_pool(tmp_path / "wrong", {"en": ["who lives there"]})
    with pytest.raises(DataError, match="(?s)1 of the 1 .*wrong"):
        load(questions, test=str(pool))


def test_passages_sentences_and_sentences_in_context(questions: Path) -> None:
    rows, _ = load(questions)
    assert rows[1]["positive"] == "Zoo A wolf lives there. It eats fish."
    rows, _ = load(questions, positives="sentence", context=True, hard_negatives=1)
    assert rows[1]["positive"] == "A wolf lives there. A wolf lives there. It eats fish."
    assert rows[1]["negative_1"] == "It eats fish. A wolf lives there. It eats fish."


@pytest.mark.parametrize(
    ("context", "candidate"),
    [
        (True, "sentence followed by its paragraph"),
        (False, "sentence"),
    ],
)
def test_the_test_has_the_same_candidates(context: bool, candidate: str, tmp_path: Path) -> None:
    test = str(write_lareqa(tmp_path / "test"))
    evaluator = QuestionOptions(retrieval=["q"], context=context, test=test).lareqa_evaluator()
    assert evaluator is not None
    assert evaluator.notes["candidate"] == candidate


def test_negatives_are_those_of_the_file(questions: Path, tmp_path: Path) -> None:
    rows = [{**SUN, "negatives": ["It."]}, {**WOLF, "negatives": ["It."]}]
    own = write_jsonl(tmp_path / "own.jsonl", rows)
    loaded, _ = load(own, hard_negatives=1)
    assert loaded["negative_1"][:] == ["It.", "It."]
    with pytest.raises(ValueError, match="--model"):
        load(questions, hard_negatives=2)


def test_negatives_are_mined_and_kept_for_a_resumed_run(questions: Path, tmp_path: Path) -> None:
    texts = tiny.texts(60)["sentence"][:]
    passages = texts[30:]
    rows = []
    for query, passage in zip(texts[:30], passages, strict=True):
        rows.append({"query": query, "positive": passage})
    source = write_jsonl(tmp_path / "many.jsonl", rows)
    model = str(tmp_path / "model")
    tiny.static().save(model)
    mined, _ = load(source, model=model, hard_negatives=1)
    assert len(mined) > 0
    assert set(mined["negative_1"]) <= set(passages)
    assert set(mined["language"]) == {"en"}
    for row in mined:
        assert row["negative_1"] != row["positive"]
    shutil.rmtree(model)
    kept, _ = load(source, model=model, hard_negatives=1, resume=True)
    assert kept.to_list() == mined.to_list()
    with pytest.raises(OSError, match="model"):  # mined anew
        load(source, model=model, hard_negatives=1)


@pytest.fixture
def many(questions: Path) -> Path:
    """200 questions, each with a negative."""
    rows = []
    for number in range(200):
        row = {"query": f"question {number}", "positive": f"answer {number}", "negatives": ["no"]}
        rows.append(row)
    return write_jsonl(questions.parent / "many.jsonl", rows)


def test_some_questions_are_held_out(many: Path) -> None:
    rest, evaluator = load(many, evaluation_questions=10, hard_negatives=1)
    assert len(rest) == 190
    assert len(evaluator.queries) == 10
    assert len(evaluator.corpus) == 11
    assert not set(evaluator.queries) & set(rest["query"])


def test_questions_and_answers_of_a_file_are_excluded(many: Path, tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("question 3\nanswer 5\n")
    rest, evaluator = load(many, evaluation_questions=0, exclude=[str(tmp_path / "test.txt")])
    assert evaluator is None
    asked = {f"question {number}" for number in range(200)}
    assert asked - set(rest["query"]) == {"question 3", "question 5"}


@pytest.mark.parametrize(("steps", "count"), [(1, 1), (-1, 2)])  # or whole epochs
def test_answers_are_no_more_than_the_run_can_read(
    steps: int,
    count: int,
    questions: Path,
) -> None:
    args: Any = SimpleNamespace(
        seed=0, max_steps=steps, train_batch_size=1, world_size=1, gradient_accumulation_steps=1
    )
    data = AnswerOptions(retrieval=[str(questions)], context=True)
    rows, evaluator = data.answers_and_evaluator(args, "en", 1, 0)
    assert rows is not None
    assert evaluator is None
    assert [text.count(". ") for text in rows["positive"]] == [2] * count


def test_no_answers_are_asked_for(questions: Path) -> None:
    args: Any = None
    data = AnswerOptions(retrieval=[str(questions)])
    assert data.answers_and_evaluator(args, "en", 0, 0) == (None, None)
    assert AnswerOptions().answers_and_evaluator(args, "en", 1, 0) == (None, None)


# Translations


def test_some_pairs_are_held_out(questions: Path, tmp_path: Path) -> None:
    file = str(write_jsonl(tmp_path / "pairs.jsonl", tiny.pairs(60).to_list()))
    rest, evaluator = PairOptions(pairs=[file], evaluation_pairs=5).pairs_and_evaluator(0)
    assert rest is not None
    assert evaluator is not None
    assert 0 < len(rest) < 60
    _, without = PairOptions(pairs=[file], evaluation_pairs=0).pairs_and_evaluator(0)
    assert without is None
    assert PairOptions().pairs_and_evaluator(0) == (None, None)


def test_pairs_that_are_held_out_measure_what_is_the_goal(tmp_path: Path) -> None:
    pairs = tiny.pairs(60).to_list()
    german = [{**pair, "target_language": "de"} for pair in pairs[40:]]
    file = str(write_jsonl(tmp_path / "pairs.jsonl", [*pairs[:40], *german]))
    options = PairOptions(pairs=[file], evaluation_pairs=2)
    _, evaluator = options.pairs_and_evaluator(0, pivot="de")
    assert evaluator is not None
    french, goals = evaluator.sentences["fr"]
    assert len(french) == 2
    assert set(goals) <= {pair["target"] for pair in german}
    _, without = options.pairs_and_evaluator(0, pivot="sw")
    assert without is None


def test_all_passages_of_a_question_are_its_answers() -> None:
    passages = ["sun", "sun moon", "moon", "star"]
    queries = ["day", "day", "night", "night"]
    evaluator = question_evaluator(Dataset.from_dict({"query": queries, "positive": passages}))
    assert evaluator is not None
    assert evaluator.queries == ["day", "night"]
    found = []
    for query in evaluator.queries_ids:
        answers = evaluator.relevant_docs[query]
        found.append({evaluator.corpus[int(answer[1:])] for answer in answers})
    assert found == [{"sun", "sun moon"}, {"moon", "star"}]


def test_answers_are_in_the_languages_to_keep_and_the_pivot(questions: Path) -> None:
    args: Any = SimpleNamespace(
        seed=0, max_steps=-1, train_batch_size=1, world_size=1, gradient_accumulation_steps=1
    )
    rows = [{**SUN, "language": code, "query": f"{code}?"} for code in ("en", "fr", "sw")]
    data = AnswerOptions(retrieval=[str(write_jsonl(questions, rows))], languages=["fr"])
    kept, _ = data.answers_and_evaluator(args, "en", 1, 0)
    assert kept is not None
    assert set(kept["language"]) == {"en", "fr"}


def test_further_texts_of_the_pivot_are_those_of_its_questions() -> None:
    pairs = Dataset.from_dict(
        {
            "source": ["one"] * 4,
            "target": [f"un {number}" for number in range(4)],
            "source_language": ["en"] * 4,
            "target_language": ["fr"] * 4,
        }
    )
    questions = Dataset.from_dict(
        {"query": ["sun?", "jua?"], "positive": ["Sun.", "Jua."], "language": ["en", "sw"]}
    )
    data = distillation_data(pairs, questions, query_share=0.5)
    assert {text for texts in data.texts.values() for text in texts} == {"one", "sun?", "Sun."}
