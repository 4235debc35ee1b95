"""LAReQA: both layouts, both splits, candidates with their paragraphs."""

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import BenchmarkResult, LAReQAEvaluator, read_lareqa
from st_xlret.evaluation.pools import full_texts
from tests.data.files import write_jsonl
from tests.evaluation.samples import PARAGRAPH, write_beir, write_lareqa

WRITERS = {"release": write_lareqa, "beir": write_beir}
SENTENCES = sorted(sentence for sentences in PARAGRAPH.values() for sentence in sentences)


def measure(folder: Path, split: str, model: SentenceTransformer) -> BenchmarkResult:
    return LAReQAEvaluator.from_directory(folder, split=split).evaluate(model)


@pytest.mark.parametrize("split", ["test", "test-same-language"])
@pytest.mark.parametrize("metric", ["map_at_20", "map", "mrr_at_100", "recall_at_100"])
def test_both_layouts_have_the_same_scores(
    split: str, metric: str, static_model: SentenceTransformer, tmp_path: Path
) -> None:
    release = measure(write_lareqa(tmp_path / "release"), split, static_model)
    beir = measure(write_beir(tmp_path / "beir"), split, static_model)
    assert beir.average[metric] == pytest.approx(release.average[metric])


def test_one_pool_has_all_languages(static_model: SentenceTransformer, tmp_path: Path) -> None:
    result = measure(write_lareqa(tmp_path), "test", static_model)
    assert "one pool in all languages" in result.protocol["task"]
    assert result.protocol["corpus_size"] == "6"
    assert "language_preference" in result.average


def test_the_pool_stays_whole_whatever_the_languages_of_the_questions(
    static_model: SentenceTransformer, tmp_path: Path
) -> None:
    result = measure(write_lareqa(tmp_path), "test", static_model)
    evaluator = LAReQAEvaluator.from_directory(tmp_path, ["fr"])
    assert evaluator.evaluate(static_model).scores == {"fr": result.scores["fr"]}
    assert evaluator.sizes == {"all": 6}


@pytest.mark.parametrize("language", ["en", "fr", "de"])
def test_a_language_by_itself_is_as_if_alone(
    language: str, static_model: SentenceTransformer, tmp_path: Path
) -> None:
    together = measure(write_lareqa(tmp_path / "all"), "test-same-language", static_model)
    alone = measure(write_lareqa(tmp_path / "one", (language,)), "test", static_model)
    expected = alone.average["map_at_20"]
    assert together.scores[language]["map_at_20"] == pytest.approx(expected)
    assert together.protocol["corpus_size"] == "de 2, en 2, fr 2"
    assert "language_preference" not in together.average


@pytest.mark.parametrize("layout", WRITERS)
def test_titles_are_not_read(layout: str, tmp_path: Path) -> None:
    corpus = read_lareqa(WRITERS[layout](tmp_path)).corpus
    assert sorted(full_texts(corpus)) == SENTENCES


@pytest.mark.parametrize("layout", WRITERS)
def test_a_candidate_may_be_followed_by_its_paragraph(layout: str, tmp_path: Path) -> None:
    corpus = read_lareqa(WRITERS[layout](tmp_path), context=True).corpus
    texts = dict(zip(corpus["id"], corpus["text"], strict=True))
    first, second = PARAGRAPH["en"]
    assert texts["en-00-0-1"] == f"{second} {first} {second}"


def test_numbers_as_ids_have_their_paragraphs(tmp_path: Path) -> None:
    folder = write_beir(tmp_path)
    about = {"language": "en", "context": "one"}
    documents = [{"_id": number, "text": f"t{number}", "metadata": about} for number in (1, 2)]
    write_jsonl(folder / "corpus.jsonl", documents)
    write_jsonl(folder / "queries.jsonl", [{"_id": 7, "text": "q", "language": "en"}])
    (folder / "qrels" / "test.tsv").write_text("7\t1\t1\n")
    assert read_lareqa(folder, context=True).corpus["text"][:] == ["t1 t1 t2", "t2 t1 t2"]


def test_an_answer_between_sentences_has_no_candidate(tmp_path: Path) -> None:
    file = write_lareqa(tmp_path) / "xquad-r" / "en.json"
    end_of_first = len(PARAGRAPH["en"][0])
    text = file.read_text()
    file.write_text(text.replace('"answer_start": 2,', f'"answer_start": {end_of_first},'))
    data = read_lareqa(tmp_path)
    assert "en-q1" not in data.queries["id"][:]
    assert sorted(data.qrels["fr-q1"]) == ["de-00-0-0", "fr-00-0-0"]


@pytest.mark.real_data("xquad_r")
def test_the_real_files_have_the_published_counts(real_data: Path) -> None:
    data = read_lareqa(real_data)
    assert len(data.corpus) == 13_014
    assert len(data.judged) == 13_090
    assert len(data.corpus.unique("language")) == 11
    assert {len(rows) for rows in data.relevant} == {11}
