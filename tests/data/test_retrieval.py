"""One data set from every layout of questions and passages; the files of BEIR's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import normalise_text
from st_xlret.data.beir import read_qrels, read_texts
from st_xlret.evaluation.lareqa import read_lareqa
from tests.data.files import PARAGRAPHS, QUESTIONS, SENTENCES, beir, dpr, squad, triplets, write_jsonl, write_text
from tests.evaluation.samples import write_lareqa


def made(make: Any, folder: Path) -> Path:
    return make(folder / "data" if make is beir else folder / "data.json")


@pytest.mark.parametrize("make", [beir, dpr, squad])
def test_passages_have_their_titles_before_them(make: Any, tmp_path: Path, questions: Any) -> None:
    dataset, report = questions(made(make, tmp_path))
    assert dataset.column_names == ["query", "positive", "language"]
    assert dataset["query"][:] == [text for text, _, _ in QUESTIONS.values()]
    assert dataset["positive"][:] == [" ".join(PARAGRAPHS[name]) for _, _, name in QUESTIONS.values()]
    assert set(dataset["language"]) == {"en"} and report.total("examples") == 3
    again, reused = questions(made(make, tmp_path), titles=False)
    assert again["positive"][:] == [PARAGRAPHS[name][1] for _, _, name in QUESTIONS.values()] and not reused.reused


@pytest.mark.parametrize("make", [beir, dpr, squad])
def test_sentences_with_the_answer(make: Any, tmp_path: Path, questions: Any) -> None:
    dataset, report = questions(made(make, tmp_path), positives="sentence", titles=False)
    # The answer of the last question stands nowhere: its whole passage is taken.
    assert dataset["positive"][:] == SENTENCES
    (counts,) = report.languages.values()
    assert counts["whole_passage"] == 1 and "whole" in str(report)


@pytest.mark.parametrize("make", [beir, dpr, squad])
def test_sentences_with_the_answer_and_their_siblings_are_followed_by_their_passage(
    make: Any, tmp_path: Path, questions: Any
) -> None:
    dataset, _ = questions(made(make, tmp_path), positives="sentence", context=True, negatives=3, titles=False)
    first, second = (PARAGRAPHS[name][1] for name in ("d1", "d2"))
    assert dataset[0]["positive"] == f"The sun came out at seven. {first}"
    assert dataset[1]["positive"] == f"A wolf lives there. {second}"
    # The negatives of the files are whole passages, and come first.
    for row, sibling in enumerate([f"It rained on Monday. {first}", f"It eats fish. {second}"]):
        assert sibling in [dataset[row][f"negative_{i}"] for i in (1, 2, 3)]
    assert questions(made(make, tmp_path), positives="sentence", titles=False)[0]["positive"][:] == SENTENCES


def test_a_sentence_in_its_passage_is_a_candidate_of_lareqa(tmp_path: Path, questions: Any) -> None:
    folder = write_lareqa(tmp_path)
    given = {"positives": "sentence", "context": True, "negatives": 1, "titles": False}
    dataset, _ = questions(folder / "xquad-r" / "en.json", **given)
    corpus = read_lareqa(folder, context=True).corpus
    candidates = [text for text, code in corpus if code == "en"]
    assert len(candidates) == 2 and dataset["positive"][:] == candidates
    assert dataset["negative_1"][:] == candidates[::-1]


def test_hard_negatives(tmp_path: Path, questions: Any) -> None:
    dataset, report = questions(dpr(tmp_path / "nq.json"), negatives=2, titles=False)
    assert dataset.column_names == ["query", "positive", "negative_1", "negative_2", "language"]
    # A gold passage among them is none, and the only one left stands twice.
    assert dataset[0]["negative_1"] == dataset[0]["negative_2"] == PARAGRAPHS["d2"][1]
    # Of the BEIR folder, one question has a passage that was judged 0.
    dataset, report = questions(beir(tmp_path / "beir"), negatives=1)
    assert dataset["negative_1"][:] == ["Nothing of interest."]
    assert [counts["no_negative"] for counts in report.languages.values()] == [2]


def test_easy_negatives_where_there_are_no_hard_ones(tmp_path: Path, questions: Any) -> None:
    dataset, _ = questions(dpr(tmp_path / "nq.json", hard_negative_ctxs=[]), negatives=1)
    assert dataset[0]["negative_1"] == "Nothing of interest."


@pytest.mark.parametrize("ids", [False, True])
def test_ms_marco_triplets(ids: bool, tmp_path: Path, questions: Any) -> None:
    dataset, _ = questions(triplets(tmp_path / "triples.tsv", ids=ids), negatives=1)
    assert dataset.to_list() == [
        {"query": "what weather", "positive": "sun and rain", "negative_1": "a wolf", "language": "en"},
        {"query": "what animal", "positive": "a wolf", "negative_1": "sun and rain", "language": "en"},
    ]


def test_gzipped_files_and_several_sources(tmp_path: Path, questions: Any) -> None:
    sources = [beir(tmp_path / "a", end=".gz"), squad(tmp_path / "b.json.gz"), dpr(tmp_path / "c.json.gz")]
    sources.append(triplets(tmp_path / "d.tsv"))
    dataset, report = questions(sources)
    assert len(dataset) == 5 and report.total("examples") == 5
    # What stands in several sources is taken once.
    assert [counts["duplicate"] for counts in report.languages.values()] == [0, 3, 3, 0]


def test_unchanged_files_are_read_once(tmp_path: Path, questions: Any) -> None:
    source = dpr(tmp_path / "nq.json")
    first, report = questions(source)
    second, again = questions(source)
    assert again.reused and not report.reused and first.to_list() == second.to_list()
    assert again.languages == report.languages
    assert not questions(source, negatives=1)[1].reused


def test_test_questions_and_passages_are_left_out(tmp_path: Path, questions: Any) -> None:
    test = write_text(tmp_path / "test.txt", "unknown\nwhen did the SUN come out\n")
    dataset, report = questions(squad(tmp_path / "squad.json"), exclude=[test])
    assert len(dataset) == 2
    (counts,) = report.languages.values()
    assert counts["excluded"] == 1 and counts["examples"] == 2


def test_unanswerable_questions_of_squad_2(tmp_path: Path, questions: Any) -> None:
    asked = [{"question": "Why?", "is_impossible": True, "answers": []}]
    source = squad(tmp_path / "squad.json", paragraphs=[{"context": "It rained.", "qas": asked}])
    dataset, report = questions(source, positives="sentence")
    assert "Why?" not in dataset["query"][:]
    assert [counts["no_positive"] for counts in report.languages.values()] == [1]


@pytest.mark.slow
@pytest.mark.real_data
def test_squad_has_nothing_of_xquad(real_data: Path, questions: Any) -> None:
    train = questions(real_data / "squad_v1.1" / "train", titles=False)[0]
    assert len(train) == 87_423
    test = read_lareqa(real_data / "xquad_r")
    english = {row for row in range(len(test.corpus)) if test.corpus.language_of(row) == "en"}
    passages = " ".join(normalise_text(text) for text in set(train["positive"]))
    sentences = [normalise_text(test.corpus.texts[row]) for row in english]
    assert not [text for text in sentences if len(text) > 30 and text in passages]


RECORDS = [
    {"_id": "a", "title": "T", "text": "One.", "metadata": {"language": "sw", "answers": ["x"]}},
    {"id": 7, "text": "Two.", "language": "en", "metadata": None},
    {"_id": "c", "text": ""},
]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_texts_have_titles_languages_and_metadata(name: str, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / name, RECORDS)
    texts = list(read_texts(file))
    assert [text[:4] for text in texts] == [("a", "One.", "T", "sw"), ("7", "Two.", "", "en"), ("c", "", "", None)]
    assert texts[0].metadata["answers"] == ["x"] and texts[1].metadata == {} and texts[2].line == 3
    assert [text.id for text in read_texts(file, only={"7"})] == ["7"]


def test_judgements_of_beir_and_trec(tmp_path: Path) -> None:
    expected = {"q1": {"d1": 1, "d2": 0}}
    tabs = write_text(tmp_path / "a.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n")
    trec = write_text(tmp_path / "b.txt.gz", "q1 0 d1 1\nq1\t0\td2\t0\n")
    assert read_qrels(tabs) == read_qrels(trec) == expected
