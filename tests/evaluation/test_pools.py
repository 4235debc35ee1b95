"""Pools in BEIR's layout: judgements of translations, spellings of languages, what is missing."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.data import DataError
from st_xlret.evaluation import RetrievalData, RetrievalEvaluator, read_beir
from st_xlret.evaluation.pools import full_texts
from tests.data.files import write_jsonl, write_text
from tests.evaluation.samples import write_beir

WORDS = ["query", "passage", "taxi", "hotel", "bread", "water"]


@pytest.fixture
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def write_pool(
    folder: Path,
    documents: list[dict[str, Any]],
    queries: list[dict[str, Any]],
    judged: list[str],
) -> Path:
    """Records by number, each with a word as its text, and judgements such as `q0 d0 1`."""
    for name, prefix, records in (("corpus", "d", documents), ("queries", "q", queries)):
        rows = []
        for number, record in enumerate(records):
            rows.append({"_id": f"{prefix}{number}", "text": WORDS[number % 6], **record})
        write_jsonl(folder / f"{name}.jsonl", rows)
    lines = [line.replace(" ", "\t") for line in judged]
    write_text(folder / "qrels" / "test.tsv", "\n".join(lines) + "\n")
    return folder


def in_languages(*codes: str | None) -> list[dict[str, Any]]:
    return [{"language": code} for code in codes]


def test_titles_and_the_judgements_of_some_languages(tmp_path: Path) -> None:
    data = read_beir(write_beir(tmp_path, end=".gz")).select_languages(["fr"])
    assert len(data.corpus) == 6
    assert data.judged["id"][:] == ["fr-q1", "fr-q2"]
    assert full_texts(data.corpus)[0] == "Travel A taxi at night."
    assert data.qrels["fr-q2"] == {"en-00-0-1": 1, "fr-00-0-1": 1, "de-00-0-1": 1}


ORIGINALS = {"en0": None, "en1": None, "fr0": "en0", "fr1": "en1", "de0": "en0", "de1": "en1"}
"""Document -> what it is a translation of."""


@pytest.mark.parametrize(
    ("judged", "changed", "expected"),
    [
        pytest.param(
            ["q en0 1"],
            {},
            {"en0": 1, "fr0": 1, "de0": 1},
            id="of the original",
        ),
        pytest.param(
            ["q en0 1", "q fr0 0", "q de1 2", "q en1 1"],
            {},
            {"en0": 1, "fr0": 0, "de0": 1, "en1": 1, "de1": 2, "fr1": 2},
            id="a judgement of its own counts",
        ),
        pytest.param(
            ["q en0 1"],
            {"fr0": "de0"},
            {"en0": 1, "fr0": 1, "de0": 1},
            id="a translation of a translation",
        ),
        pytest.param(
            ["q de0 1"],
            {"fr0": "gone"},
            {"de0": 1, "en0": 1},
            id="of what is not there",
        ),
    ],
)
def test_judgements_hold_for_translations(
    tmp_path: Path,
    judged: list[str],
    changed: dict[str, str],
    expected: dict[str, int],
) -> None:
    documents = []
    for name, original in {**ORIGINALS, **changed}.items():
        record = {"_id": name, "language": "en", "translation_of": original}
        if name == "de0":  # in `metadata` too
            record = {"_id": name, "language": "en", "metadata": {"translation_of": original}}
        documents.append(record)
    queries = [{"_id": "q", "language": "en"}]
    assert read_beir(write_pool(tmp_path, documents, queries, judged)).qrels["q"] == expected


def test_languages_of_a_pool_have_one_spelling(model: SentenceTransformer, tmp_path: Path) -> None:
    documents = in_languages("fra_Latn", "en", "EN ")
    folder = write_pool(tmp_path, documents, in_languages("fr"), ["q0 d0 1"])
    assert read_beir(folder).corpus.unique("language") == ["fr", "en"]
    scores = RetrievalEvaluator.from_directory(folder, ["FRA"]).evaluate(model).scores
    assert list(scores) == ["fr"]
    assert scores["fr"]["right_same_language"] == 1


def test_what_is_no_language_is_named_with_its_line(tmp_path: Path) -> None:
    documents = in_languages("en", "tico19-8")
    folder = write_pool(tmp_path, documents, in_languages("en"), ["q0 d0 1"])
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 2: .*'tico19-8'"):
        read_beir(folder)


def test_texts_without_a_language_take_that_of_the_option(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    folder = write_pool(tmp_path, in_languages(None, " "), in_languages(None), ["q0 d0 1"])
    with pytest.raises(ValueError, match="--language"):
        read_beir(folder)
    scores = RetrievalEvaluator.from_directory(folder, language="eng").evaluate(model).scores
    assert list(scores) == ["en"]


def test_judged_documents_that_are_missing_are_said_and_not_found(
    model: SentenceTransformer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judged = ["q0 d0 1", "q0 d8 1", "q1 d9 1"]
    folder = write_pool(tmp_path, in_languages("en", "fr"), in_languages("en", "en"), judged)
    scores = RetrievalEvaluator.from_directory(folder).evaluate(model).scores["en"]
    assert scores["recall_at_100"] == 0.25
    assert scores["mrr_at_100"] == 0.5
    assert scores["right_same_language"] == 1
    assert "2 judged documents are not in the corpus" in caplog.text


@pytest.mark.parametrize("judged", ["q0 d8 1", "q0 d0 0", "q0 d0 -1"])
def test_a_pool_without_a_relevant_document_is_none(judged: str, tmp_path: Path) -> None:
    folder = write_pool(tmp_path, in_languages("en"), in_languages("en"), [judged])
    with pytest.raises(ValueError, match="no query has a relevant document"):
        read_beir(folder)


def test_an_empty_corpus_is_no_pool(tmp_path: Path) -> None:
    folder = write_pool(tmp_path, [], in_languages("en"), ["q0 d0 1"])
    with pytest.raises(ValueError, match="no query has a relevant document"):
        read_beir(folder)


@pytest.mark.parametrize("text", [None, 3])
@pytest.mark.parametrize("column", ["title", "text"])
@pytest.mark.parametrize("table", ["corpus", "queries"])
def test_texts_that_are_missing_are_named(table: str, column: str, text: object) -> None:
    rows = {"id": ["a", "b"], "title": ["A", "B"], "text": ["C", "D"], "language": ["en", "en"]}
    tables = {name: Dataset.from_dict(rows) for name in ("corpus", "queries")}
    changed = {**rows, column: ["E", None] if text is None else [text, text]}
    tables[table] = Dataset.from_dict(changed)
    with pytest.raises(DataError, match=f"the {table}: '{column}' has"):
        RetrievalData(tables["corpus"], tables["queries"], {"a": {"b": 1}})


@pytest.mark.parametrize("name", [None, 1.0, ["d1"]])
def test_what_is_no_id_is_named(name: object, tmp_path: Path) -> None:
    documents = [*in_languages("en"), {"_id": name, "language": "en"}]
    folder = write_pool(tmp_path, documents, in_languages("en"), ["q0 d0 1"])
    with pytest.raises(DataError, match=r"corpus\.jsonl, line 2: .*string"):
        read_beir(folder)


@pytest.mark.parametrize("file", ["corpus", "queries"])
def test_an_id_that_stands_twice_is_named(file: str, tmp_path: Path) -> None:
    twice = [{"_id": "d0", "language": "en"}, {"_id": "d0", "language": "en"}]
    asked_twice = [{"_id": "q0", "language": "en"}, {"_id": "q0", "language": "en"}]
    documents = twice if file == "corpus" else in_languages("en")
    queries = asked_twice if file == "queries" else in_languages("en")
    with pytest.raises(ValueError, match="'[dq]0' stands 2 times"):
        read_beir(write_pool(tmp_path, documents, queries, ["q0 d0 1"]))


def test_queries_without_judgements_do_not_count(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    queries = in_languages("en", "en", "fr")
    folder = write_pool(tmp_path, in_languages("en", "en"), queries, ["q0 d0 1", "q1 d1 0"])
    evaluator = RetrievalEvaluator.from_directory(folder)
    assert evaluator.pools["all"].judged["id"][:] == ["q0"]
    assert list(evaluator.evaluate(model).scores) == ["en"]


def test_numbers_as_ids_are_those_of_the_judgements(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    documents = [{"_id": 1, "language": "en"}, {"_id": 2, "language": "en"}]
    queries = [{"_id": 7, "language": "en"}]
    folder = write_pool(tmp_path, documents, queries, ["7 1 1"])
    assert RetrievalEvaluator.from_directory(folder).evaluate(model).average["mrr_at_10"] == 1
