"""One dataset from every layout of questions and passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import RetrievalReport, load_retrieval, normalise_text
from tests.data.files import write_text
from tests.data.retrieval.layouts import PARAGRAPHS, QUESTIONS, SENTENCES, beir, dpr, squad, triplets


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def run(sources: Any, **options: Any) -> tuple[Dataset, RetrievalReport]:
        report = RetrievalReport()
        options = {"cache_dir": tmp_path / "cache", "show_progress": False, "report": report, **options}
        return load_retrieval(sources, **options), report

    return run


def made(make: Any, folder: Path) -> Path:
    return make(folder / "data" if make is beir else folder / "data.json")


@pytest.mark.parametrize("make", [beir, dpr, squad])
def test_passages_have_their_titles_before_them(make: Any, tmp_path: Path, load: Any) -> None:
    dataset, report = load(made(make, tmp_path))
    assert dataset.column_names == ["query", "positive", "language"]
    assert dataset["query"][:] == [text for text, _, _ in QUESTIONS.values()]
    assert dataset["positive"][:] == [" ".join(PARAGRAPHS[name]) for _, _, name in QUESTIONS.values()]
    assert set(dataset["language"]) == {"en"} and report.examples == 3
    again, reused = load(made(make, tmp_path), titles=False)
    assert again["positive"][:] == [PARAGRAPHS[name][1] for _, _, name in QUESTIONS.values()] and not reused.reused


@pytest.mark.parametrize("make", [beir, dpr, squad])
def test_sentences_with_the_answer(make: Any, tmp_path: Path, load: Any) -> None:
    dataset, report = load(made(make, tmp_path), positives="sentence", titles=False)
    # The answer of the last question stands nowhere: its whole passage is taken.
    assert dataset["positive"][:] == SENTENCES
    (counts,) = report.sources.values()
    assert counts.whole_passage == 1 and "whole" in str(report)


def test_hard_negatives(tmp_path: Path, load: Any) -> None:
    dataset, report = load(dpr(tmp_path / "nq.json"), negatives=2, titles=False)
    assert dataset.column_names == ["query", "positive", "negative_1", "negative_2", "language"]
    # A gold passage among them is none, and the only one left stands twice.
    assert dataset[0]["negative_1"] == dataset[0]["negative_2"] == PARAGRAPHS["d2"][1]
    # Of the BEIR folder, one question has a passage that was judged 0.
    dataset, report = load(beir(tmp_path / "beir"), negatives=1)
    assert dataset["negative_1"][:] == ["Nothing of interest."]
    assert [counts.no_negative for counts in report.sources.values()] == [2]


def test_easy_negatives_where_there_are_no_hard_ones(tmp_path: Path, load: Any) -> None:
    dataset, _ = load(dpr(tmp_path / "nq.json", hard_negative_ctxs=[]), negatives=1)
    assert dataset[0]["negative_1"] == "Nothing of interest."


@pytest.mark.parametrize("ids", [False, True])
def test_ms_marco_triplets(ids: bool, tmp_path: Path, load: Any) -> None:
    dataset, _ = load(triplets(tmp_path / "triples.tsv", ids=ids), negatives=1)
    assert dataset.to_list() == [
        {"query": "what weather", "positive": "sun and rain", "negative_1": "a wolf", "language": "en"},
        {"query": "what animal", "positive": "a wolf", "negative_1": "sun and rain", "language": "en"},
    ]


def test_gzipped_files_and_several_sources(tmp_path: Path, load: Any) -> None:
    sources = [beir(tmp_path / "a", end=".gz"), squad(tmp_path / "b.json.gz"), dpr(tmp_path / "c.json.gz")]
    sources.append(triplets(tmp_path / "d.tsv"))
    dataset, report = load(sources)
    assert len(dataset) == 5 and report.examples == 5
    # What stands in several sources is taken once.
    assert [counts.duplicate for counts in report.sources.values()] == [0, 3, 3, 0]


def test_unchanged_files_are_read_once(tmp_path: Path, load: Any) -> None:
    source = dpr(tmp_path / "nq.json")
    first, report = load(source)
    second, again = load(source)
    assert again.reused and not report.reused and first.to_list() == second.to_list()
    assert again.sources == report.sources
    assert not load(source, negatives=1)[1].reused


def test_test_questions_and_passages_are_left_out(tmp_path: Path, load: Any) -> None:
    test = write_text(tmp_path / "test.txt", "unknown\nwhen did the SUN come out\n")
    dataset, report = load(squad(tmp_path / "squad.json"), exclude=[test])
    assert len(dataset) == 2
    (counts,) = report.sources.values()
    assert counts.excluded == 1 and counts.examples == 2


def test_unanswerable_questions_of_squad_2(tmp_path: Path, load: Any) -> None:
    questions = [{"question": "Why?", "is_impossible": True, "answers": []}]
    source = squad(tmp_path / "squad.json", paragraphs=[{"context": "It rained.", "qas": questions}])
    dataset, report = load(source, positives="sentence")
    assert "Why?" not in dataset["query"][:]
    assert [counts.no_positive for counts in report.sources.values()] == [1]


@pytest.mark.slow
@pytest.mark.real_data
def test_squad_has_nothing_of_xquad(real_data: Path, load: Any) -> None:
    from st_xlret.evaluation.lareqa import read_lareqa

    train = load(real_data / "squad_v1.1" / "train", titles=False)[0]
    assert len(train) == 87_423
    test = read_lareqa(real_data / "xquad_r")
    english = {row for row in range(len(test.corpus)) if test.corpus.language_of(row) == "en"}
    passages = " ".join(normalise_text(text) for text in set(train["positive"]))
    sentences = [normalise_text(test.corpus.texts[row]) for row in english]
    assert not [text for text in sentences if len(text) > 30 and text in passages]
