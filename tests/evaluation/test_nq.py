"""Recall at k on Natural Questions by DPR's string match, against a port of its definition."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
import regex

from st_xlret.evaluation.answers import AnsweredQuestions, NQEvaluator, first_hits
from st_xlret.evaluation.retrieval import texts_table
from tests import tiny


@pytest.mark.parametrize(
    ("answers", "text", "expected"),
    [
        (["Art"], "State of the art", True),
        (["art"], "Bonaparte and party", False),  # whole tokens alone
        (["new york"], "In New-York", False),  # the hyphen is a token
        (["New-York"], "In new - york", True),
        (["New York"], "In New York.", True),
        (["york city"], "New York, City", False),
        (["3.88"], "It cost $3.88", True),
        (["3.8"], "It cost $3.88", False),
        (["1905", "twelve"], "in twelve", True),
        (["1905", "twelve"], "nothing", False),
        (["Beyonc\u00e9"], "BEYONCE\u0301 sang", True),
        (["Beyonce"], "Beyonc\u00e9 sang", False),  # marks are kept
        ([""], "anything", False),
        (["\u200b"], "anything", False),
        ([], "anything", False),
        (["one"], "", False),
        (["a b a"], "a b b a b a", True),
    ],
)
def test_whether_a_passage_has_an_answer(answers: list[str], text: str, expected: bool) -> None:
    data = AnsweredQuestions(texts_table([("a", "", text, "en")]), texts_table([("0", "", "who", "en")]), [answers])
    assert (first_hits([[0]], data) == [0.0]) is expected
    assert dpr_has_answer([answer for answer in answers if answer.strip("\u200b")], text) is expected


def dpr_has_answer(answers: list[str], text: str) -> bool:
    """DPR's `has_answer` with `match_type="string"`, written out."""

    def words(string: str) -> list[str]:
        pattern = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE)
        return [match.group().lower() for match in pattern.finditer(unicodedata.normalize("NFD", string))]

    tokens = words(text)
    for wanted in map(words, answers):
        for start in range(len(tokens) - len(wanted) + 1):
            if tokens[start : start + len(wanted)] == wanted:
                return True
    return False


PASSAGES = [f"{tiny.WORDS[i % 13]} {tiny.WORDS[(i * 5) % 13]} number {i}" for i in range(150)]
QUESTIONS = [
    ("sun moon", ["number 13"]),
    ("what\u2019s rain", ["Number 3", "number 16"]),
    ("fish wolf", ["no such answer"]),
    ("bear", ["bear"]),
]


def write_dpr(folder: Path) -> Path:
    lines = [f"{question}\t{answers!r}\n" for question, answers in QUESTIONS]
    (folder / "nq-test.csv").write_text("".join(lines), encoding="utf-8")
    rows = [f"{row}\t{text}\tTitle {row}\n" for row, text in enumerate(PASSAGES, start=1)]
    (folder / "psgs_w100.tsv").write_text("id\ttext\ttitle\n" + "".join(rows), encoding="utf-8")
    return folder


def test_scores_are_those_of_the_definition(tmp_path: Path) -> None:
    model = tiny.static()
    result = NQEvaluator.from_directory(write_dpr(tmp_path), cache_dir=tmp_path / "cache").evaluate(model)
    passages = model.encode_document(
        [f"Title {row} {text}" for row, text in enumerate(PASSAGES, start=1)], normalize_embeddings=True
    )
    hits: dict[int, list[bool]] = {5: [], 20: [], 100: []}
    for question, answers in QUESTIONS:
        scores = passages @ model.encode_query(question.replace("\u2019", "'"), normalize_embeddings=True)
        best = np.argsort(-scores, kind="stable")
        for k, found in hits.items():
            found.append(any(dpr_has_answer(answers, PASSAGES[row]) for row in best[:k]))
    expected = {f"recall_at_{k}": float(np.mean(found)) for k, found in hits.items()}
    assert result.scores == {"en": expected} and result.average == expected
    assert 0 < expected["recall_at_5"] <= expected["recall_at_100"] < 1
    assert result.protocol["split"] == "test"
    assert result.protocol["corpus_size"] == "150"


def test_fewer_passages_than_the_depth_and_no_hit() -> None:
    corpus = texts_table([("a", "", "sun moon", "en"), ("b", "snow", "rain", "en")])
    questions = texts_table([("0", "", "sun", "en"), ("1", "", "snow", "en")])
    data = AnsweredQuestions(corpus, questions, [["moon"], ["snow"]])  # the title is not searched
    assert NQEvaluator({"english": data}).evaluate(tiny.static()).scores["en"]["recall_at_100"] == 0.5
    assert first_hits([[1, 0], [0, 1]], data) == [1.0, float("inf")]


@pytest.mark.parametrize("line", ["who", "who\t['a']\tmore", "who\t'a'", "who\t[1]", "who\tgetcwd()"])
def test_questions_are_read_as_they_stand_and_bad_lines_are_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "nq-dev.qa.csv"
    file.write_text('who\t[\'a\']\nwho\t["b\'s"]\n"say ""hi"""\t[\'c\']\n')
    rows = list(NQEvaluator.read_questions(file))
    assert rows == [("0", "who", "en", ["a"]), ("1", "who", "en", ["b's"]), ("2", 'say "hi"', "en", ["c"])]
    file.write_text(f"first\t['a']\n{line}\n")
    with pytest.raises(ValueError, match="line 2"):
        list(NQEvaluator.read_questions(file))
