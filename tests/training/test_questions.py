"""Questions with passages: what is trained on, and what is held out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import HfArgumentParser

from st_xlret.data import DataError
from st_xlret.training import questions as questions_module
from st_xlret.training.arguments import RunArguments
from st_xlret.training.questions import RetrievalDataArguments
from tests.data.files import write_jsonl
from tests.data.retrieval.layouts import squad


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    source = squad(tmp_path / "squad.json")
    return lambda **options: RetrievalDataArguments(**{"retrieval": [str(source)], **options})


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
    assert len(arguments().load_questions()) == 3
    others = [f"question {i}" for i in range(40)]
    few = test_set(tmp_path / "few", [*others, "who lives THERE"])
    assert "Who lives there?" not in arguments(test=few).load_questions()["query"]
    wrong = test_set(tmp_path / "wrong", ["who lives there"])
    with pytest.raises(DataError, match="(?s)1 of the 1 questions of --test .*wrong.*SQuAD's dev"):
        arguments(test=wrong).load_questions()


def test_passages_have_titles_and_sentences_have_none(arguments: Any) -> None:
    assert arguments().load_questions()[1]["positive"] == "Zoo A wolf lives there. It eats fish."
    assert arguments(positives="sentence").load_questions()[1]["positive"] == "A wolf lives there."
    assert arguments().load_questions(language="de")[0]["language"] == "de"


def test_negatives_are_those_of_the_file_or_mined_later(arguments: Any, tmp_path: Path) -> None:
    (tmp_path / "triples.tsv").write_text("who\tme\tit\nwhat\tit\tme\n")
    given = arguments(retrieval=[str(tmp_path / "triples.tsv")], hard_negatives=1)
    found = given.load_questions()
    assert found["negative_1"][:] == ["it", "me"]
    assert given.add_hard_negatives(found, None, None, None) is found
    assert "negative_1" not in arguments(hard_negatives=1).load_questions().column_names


@pytest.mark.parametrize(("resume", "overwrite", "keep"), [(0, 0, True), (0, 1, False), (1, 0, True), (1, 1, True)])
def test_mined_negatives_are_kept_for_a_resumed_run(
    resume: int, overwrite: int, keep: bool, arguments: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(questions_module, "mine_negatives_once", lambda *a, **o: given.append((a, o)))
    data = arguments(hard_negatives=2)
    found = data.load_questions()
    args = SimpleNamespace(output_dir=str(tmp_path))
    data.add_hard_negatives(found, "m", args, RunArguments(resume=bool(resume), overwrite=bool(overwrite)))
    assert given == [((found, "m", 2, tmp_path / "negatives"), {"keep": keep})]
    with pytest.raises(ValueError, match="--hard_negatives 2.*--model"):
        data.add_hard_negatives(found, None, args, RunArguments())


def test_five_questions_are_held_out_for_each_pair(arguments: Any, tmp_path: Path) -> None:
    lines = "".join(f"question {i}\tpassage {i}\tno\n" for i in range(200))
    (tmp_path / "many.tsv").write_text(lines)
    given = arguments(retrieval=[str(tmp_path / "many.tsv")], evaluation_pairs=2)
    questions = given.load_questions()
    rest, evaluator = given.hold_out_questions(questions, seed=0)
    assert len(rest) == 190 and len(evaluator.queries) == len(evaluator.corpus) == 10
    assert not set(evaluator.queries) & set(rest["query"])
    none = arguments(retrieval=[str(tmp_path / "many.tsv")], evaluation_pairs=0)
    rest, evaluator = none.hold_out_questions(questions, seed=0)
    assert rest.to_list() == questions.to_list() and evaluator is None


def test_options_are_checked(arguments: Any) -> None:
    with pytest.raises(ValueError, match="--retrieval"):
        RetrievalDataArguments()
    with pytest.raises(ValueError, match="--hard_negatives.*-1"):
        arguments(hard_negatives=-1)
    with pytest.raises(SystemExit):
        HfArgumentParser([RetrievalDataArguments]).parse_args_into_dataclasses(["--positives", "paragraph"])
