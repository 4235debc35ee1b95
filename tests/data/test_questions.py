"""Questions with passages, of BEIR folders and of rows."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError
from tests.data.files import (
    PARAGRAPHS,
    QUESTIONS,
    beir,
    question_rows,
    questions,
    rows,
    write_jsonl,
    write_text,
)

SENTENCES = [
    "The sun came out at seven.",
    "A wolf lives there.",
    "A wolf lives there. It eats fish.",
]
PASSAGES = [PARAGRAPHS[name] for _, _, name in QUESTIONS.values()]


@pytest.fixture(params=["beir", "rows"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "beir":
        return beir(tmp_path / "data")
    return question_rows(tmp_path / "data.jsonl")


def test_passages_have_their_titles_before_them(source: Path) -> None:
    table, counts = questions(source)
    assert table.column_names == ["query", "positive", "language"]
    assert table["query"][:] == [text for text, _, _ in QUESTIONS.values()]
    assert table["positive"][:] == [f"{title} {text}" for title, text in PASSAGES]
    assert table["language"][:] == ["en"] * 3
    assert counts[str(source), "examples"] == 3


def test_passages_without_titles_and_another_default_language(source: Path) -> None:
    table, _ = questions(source, titles=False, language="sw")
    assert table["positive"][:] == [text for _, text in PASSAGES]
    assert table["language"][:] == ["sw"] * 3


def test_the_sentence_with_the_answer_is_taken(source: Path) -> None:
    # The answer of the last question stands nowhere: its whole passage is taken.
    table, _ = questions(source, positives="sentence", titles=False)
    assert table["positive"][:] == SENTENCES
    # Sentences without the answer are negatives, under the title too.
    table, _ = questions(source, positives="sentence", negatives=3)
    assert table["positive"][:2] == [f"Weather {SENTENCES[0]}", f"Zoo {SENTENCES[1]}"]
    assert "Weather It rained on Monday." in negatives_of(table, 0)


def test_a_sentence_has_its_passage_after_it(source: Path) -> None:
    table, _ = questions(source, positives="sentence", context=True, negatives=3, titles=False)
    (_, first), (_, second), _ = PASSAGES
    assert table["positive"][:2] == [f"{SENTENCES[0]} {first}", f"{SENTENCES[1]} {second}"]
    assert f"It rained on Monday. {first}" in negatives_of(table, 0)
    assert f"It eats fish. {second}" in negatives_of(table, 1)
    with pytest.raises(ValueError, match="'passage'"):
        questions(source, context=True)
    with pytest.raises(ValueError, match="negatives=-1"):
        questions(source, negatives=-1)


def negatives_of(table: Dataset, row: int) -> list[str]:
    names = [name for name in table.column_names if name.startswith("negative_")]
    return [table[row][name] for name in names]


def test_an_answer_is_taken_where_it_stands(tmp_path: Path) -> None:
    text = "At  seven it rained.\n\nThe sun came out at seven.  A\tdog slept."
    row = {"query": "When?", "positive": text, "answers": ["seven"]}
    # Another answer at the position of the first one is none.
    other = {"query": "Who?", "positive": text, "answers": ["dog"], "answer_start": 0}
    asked = [{**row, "answer_start": text.rindex("seven")}, other]
    table, _ = questions(write_jsonl(tmp_path / "a.jsonl", asked), positives="sentence")
    assert table["positive"][:] == ["The sun came out at seven.", " ".join(text.split())]


@pytest.mark.parametrize("titles", [True, False])
def test_hard_negatives_of_rows(tmp_path: Path, titles: bool) -> None:
    file = question_rows(tmp_path / "a.jsonl")
    table, _ = questions(file, negatives=2, titles=titles)
    assert table.column_names == ["query", "positive", "negative_1", "negative_2", "language"]
    # One is the passage that answers, without its title; the only one left stands twice.
    assert negatives_of(table, 0) == [PARAGRAPHS["d2"][1]] * 2


def test_passages_that_are_judged_0_are_hard_negatives(tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    table, counts = questions(folder, negatives=1)
    assert table["negative_1"][:] == ["Nothing of interest."]
    assert counts[str(folder), "no_negative"] == 2


@pytest.mark.parametrize("end", [".gz", ".xz"])
def test_compressed_files_and_several_sources(end: str, tmp_path: Path) -> None:
    file = question_rows(tmp_path / "rows" / f"b.jsonl{end}")
    table, counts = questions(
        [beir(tmp_path / "a", end=".gz", split="dev"), file.parent], split="dev"
    )
    # What stands in several sources is taken once.
    assert len(table) == 3 and counts[str(file), "duplicate"] == 3


def test_languages_of_questions(tmp_path: Path) -> None:
    queries = [
        {"_id": "q1", "text": "Lini?", "metadata": {"language": "swa"}},
        {"_id": "q2", "text": "Quando?", "language": "pt-BR"},
        {"_id": "q3", "text": "Quand?", "language": "fr"},
    ]
    folder = beir(tmp_path / "beir", queries=queries)
    table, counts = questions(folder, languages=["sw", "pt"])
    assert table["language"][:] == ["sw", "pt"]
    assert counts[str(folder), "other_languages"] == 1


def test_the_metadata_of_a_query_may_be_a_text_of_json(tmp_path: Path) -> None:
    queries = [
        {"_id": "q1", "text": "Lini?", "metadata": '{"language": "swa"}'},
        {"_id": "q2", "text": "Who?", "metadata": "null"},
        {"_id": "q3", "text": "What?", "metadata": ""},
    ]
    table, _ = questions(beir(tmp_path / "beir", queries=queries))
    assert table["language"][:] == ["sw", "en", "en"]


def test_the_language_of_a_row_counts_before_the_default(tmp_path: Path) -> None:
    file = question_rows(tmp_path / "a.jsonl", language="FR")
    table, _ = questions(file, language="de")
    assert table["language"][:] == ["fr", "de", "de"]


def test_fields_are_known_whatever_their_case(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = {"Query": "When?", "POSITIVE": "At seven.", "Title": "T", "Language": "fr"}
    write_jsonl(tmp_path / "in" / "a.jsonl", [record])
    table, _ = questions(tmp_path / "in")
    assert rows(table) == [("When?", "T At seven.", "fr")] and not caplog.records
    # A label under another name is not read, and said.
    file = write_jsonl(tmp_path / "b.jsonl", [{**record, "Language": None, "Langue": "fr"}])
    assert questions(file)[0]["language"][:] == ["en"] and "'Langue' looks like" in caplog.text


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("corpus.jsonl", {"_id": "d1", "title": "T"}),
        ("corpus.jsonl", {"_id": "d1", "text": "T", "title": 3}),
        ("corpus.jsonl", {"_id": "d1", "text": "T", "title": False}),
        ("corpus.jsonl", {"_id": "d1", "text": "T", "Text": "U"}),
        ("queries.jsonl", {"_id": "q1", "text": "T", "metadata": {"language": "xx1"}}),
        ("queries.jsonl", {"_id": "q1", "text": "T", "metadata": [3]}),
        ("queries.jsonl", {"_id": "q1", "text": "T", "answers": {"text": ["A"]}}),
        ("queries.jsonl", {"_id": "q1", "text": "T", "language": "en", "Language": "de"}),
        ("queries.jsonl", {"_id": "q1", "text": "another question"}),
        ("corpus.jsonl", {"_id": "d1", "text": "another passage"}),
        ("qrels/train.tsv", "q1\td9\tmuch"),
    ],
)
def test_a_bad_line_of_beir_is_named_or_skipped(name: str, line: Any, tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    write_jsonl(folder / name, [*lines, line])
    with pytest.raises(DataError, match=f"{name}, line {len(lines) + 1}"):
        questions(folder)
    assert len(questions(folder, skip_bad_lines=True)[0]) == 3


def test_ids_that_are_nowhere_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = beir(tmp_path / "beir")
    write_text(folder / "qrels" / "train.tsv", "q1\td1\t1\nq2\td9\t1\nq9\td1\t1\n")
    with pytest.raises(DataError, match="q9"):
        questions(folder)
    assert "1 judged passages are not in corpus.jsonl and left out, such as 'd9'" in caplog.text
    assert questions(folder, skip_bad_lines=True)[0]["query"][:] == [QUESTIONS["q1"][0]]
    with pytest.raises(FileNotFoundError, match=r"dev\.tsv.*train\.tsv"):
        questions(folder, split="dev")
