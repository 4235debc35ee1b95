"""Questions with passages: what is trained on, and what is held out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import HfArgumentParser

from st_xlret.data import DataError
from st_xlret.training import data as data_module
from st_xlret.training.data import DataArguments, PairQuestionArguments, QuestionsAloneArguments
from tests import tiny
from tests.data.files import squad, write_jsonl
from tests.evaluation.samples import write_lareqa


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    source = squad(tmp_path / "squad.json")
    return lambda **options: QuestionsAloneArguments(**{"retrieval": [str(source)], **options})


def test_set(folder: Path, questions: list[str]) -> str:
    write_jsonl(folder / "corpus.jsonl", [{"_id": "p", "text": "p", "metadata": {"language": "en"}}])
    rows = [{"_id": str(i), "text": text, "metadata": {"language": "en"}} for i, text in enumerate(questions)]
    write_jsonl(folder / "queries.jsonl", rows)
    (folder / "qrels").mkdir()
    lines = "".join(f"{i}\tp\t1\n" for i in range(len(questions)))
    (folder / "qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    return str(folder)


test_set.__test__ = False  # type: ignore[attr-defined]


def test_questions_of_the_test_set_are_not_trained_on(arguments: Any, tmp_path: Path) -> None:
    assert len(arguments().load_questions(0)[0]) == 3
    others = [f"question {i}" for i in range(40)]
    few = test_set(tmp_path / "few", [*others, "who lives THERE"])
    assert "Who lives there?" not in arguments(test=few).load_questions(0)[0]["query"]
    wrong = test_set(tmp_path / "wrong", ["who lives there"])
    with pytest.raises(DataError, match="(?s)1 of the 1 questions of --test .*wrong.*SQuAD's dev"):
        arguments(test=wrong).load_questions(0)


def test_passages_have_titles_and_sentences_have_none(arguments: Any) -> None:
    assert arguments().load_questions(0)[0][1]["positive"] == "Zoo A wolf lives there. It eats fish."
    assert arguments(positives="sentence").load_questions(0)[0][1]["positive"] == "A wolf lives there."


def test_sentences_in_context_and_their_siblings(arguments: Any, tmp_path: Path) -> None:
    given = arguments(positives="sentence", context=True, hard_negatives=1)
    questions, _ = given.load_questions(0)
    assert questions[1]["positive"] == "A wolf lives there. A wolf lives there. It eats fish."
    assert questions[1]["negative_1"] == "It eats fish. A wolf lives there. It eats fish."
    # There is nothing to mine.
    assert given.add_hard_negatives(questions, None, SimpleNamespace()) is questions
    for context, candidate in ((True, "sentence followed by its paragraph"), (False, "sentence")):
        test = str(write_lareqa(tmp_path / str(context)))
        evaluator = arguments(positives="sentence", context=context, test=test).lareqa()
        assert evaluator is not None and evaluator.candidate == candidate


def test_negatives_are_those_of_the_file_or_mined_and_kept_for_a_resumed_run(
    arguments: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "triples.tsv").write_text("who\tme\tit\nwhat\tit\tme\n")
    given = arguments(retrieval=[str(tmp_path / "triples.tsv")], hard_negatives=1)
    found, _ = given.load_questions(0)
    assert found["negative_1"][:] == ["it", "me"]
    args: Any = SimpleNamespace(output_dir=str(tmp_path), resume=False)
    assert given.add_hard_negatives(found, None, args) is found

    asked: list[Any] = []

    def mine(questions: Any, model: str, count: int) -> Any:
        asked.append((model, count))
        return questions.add_column("negative_1", [f"wrong {len(asked)}"] * len(questions))

    monkeypatch.setattr(data_module, "mine_negatives", mine)
    data = arguments(hard_negatives=2)
    found, _ = data.load_questions(0)
    assert "negative_1" not in found.column_names
    for resume, expected in ((False, "wrong 1"), (True, "wrong 1"), (False, "wrong 2")):
        args.resume = resume
        assert data.add_hard_negatives(found, "m", args)[0]["negative_1"] == expected
    assert asked == [("m", 2)] * 2
    with pytest.raises(ValueError, match="--hard_negatives 2.*--model"):
        data.add_hard_negatives(found, None, args)


def test_questions_are_held_out(arguments: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = "".join(f"question {i}\tpassage {i}\tno\n" for i in range(200))
    (tmp_path / "many.tsv").write_text(lines)
    rest, evaluator = arguments(retrieval=[str(tmp_path / "many.tsv")], evaluation_questions=10).load_questions(0)
    assert len(rest) == 190 and len(evaluator.queries) == len(evaluator.corpus) == 10
    assert not set(evaluator.queries) & set(rest["query"])
    # Answers are looked for among the hard negatives too: those of a sentence are what it is hard to tell from.
    harder = arguments(retrieval=[str(tmp_path / "many.tsv")], evaluation_questions=10, hard_negatives=1)
    _, evaluator = harder.load_questions(0)
    assert len(evaluator.queries) == 10 and len(evaluator.corpus) == 11 and "no" in evaluator.corpus
    rest, evaluator = arguments(retrieval=[str(tmp_path / "many.tsv")], evaluation_questions=0).load_questions(0)
    assert len(rest) == 200 and evaluator is None and not caplog.text
    (tmp_path / "few.tsv").write_text("".join(lines.splitlines(keepends=True)[:3]))
    rest, evaluator = arguments(retrieval=[str(tmp_path / "few.tsv")]).load_questions(0)
    assert len(rest) == 3 and evaluator is None and "no questions are held out of 3" in caplog.text


def test_answers_are_no_more_than_the_run_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    data = PairQuestionArguments(retrieval=[str(squad(tmp_path / "squad.json"))])
    args: Any = SimpleNamespace(
        seed=0, max_steps=1, train_batch_size=1, world_size=1, gradient_accumulation_steps=1, output_dir=str(tmp_path)
    )
    questions, evaluator = data.load_answers(args, "en", 1)
    assert questions is not None and len(questions) == 1 and "negative_1" in questions.column_names
    assert evaluator is None and data.load_answers(args, "en", 0) == (None, None)
    data.context, args.max_steps = True, 9
    questions, _ = data.load_answers(args, "en", 1)
    sentences = {"The sun came out at seven.", "A wolf lives there."}
    assert questions is not None and {text[: text.index(".") + 1] for text in questions["positive"]} == sentences
    assert all(len(text.split(". ")) == 3 for name in ("positive", "negative_1") for text in questions[name])


def test_held_out_pairs_are_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = [{**row} for row in tiny.pairs(60)]
    file = str(write_jsonl(tmp_path / "pairs.jsonl", rows))
    rest, evaluator = DataArguments(pairs=[file], evaluation_pairs=5).load_pairs(0)
    assert rest is not None and evaluator is not None and 0 < len(rest) < 60
    assert DataArguments(pairs=[file], evaluation_pairs=0).load_pairs(0)[1] is None
    assert DataArguments().load_pairs(0) == (None, None)
    same = write_jsonl(tmp_path / "same.jsonl", [{**row, "source": f"one {i % 2}"} for i, row in enumerate(rows)])
    with pytest.raises(ValueError, match="--evaluation_pairs 5 leaves none of the"):
        DataArguments(pairs=[str(same)], evaluation_pairs=5).load_pairs(0)


def test_options_are_checked(arguments: Any) -> None:
    with pytest.raises(ValueError, match="--retrieval"):
        QuestionsAloneArguments()
    with pytest.raises(ValueError, match="--hard_negatives.*-1"):
        arguments(hard_negatives=-1)
    with pytest.raises(SystemExit):
        HfArgumentParser([QuestionsAloneArguments]).parse_args_into_dataclasses(["--positives", "paragraph"])
