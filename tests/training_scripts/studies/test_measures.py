"""What the studies measure of a model and of its vectors is what the evaluators measure."""

import json
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import LAReQAEvaluator, RetrievalEvaluator, TatoebaEvaluator
from tests import tiny
from tests.data.files import write_jsonl, write_text
from training_scripts.studies import (
    approximate_indexes,
    measure_search,
    quantised_vectors,
    stored_vectors,
)
from training_scripts.studies.measure_search import FURTHER, TATOEBA
from training_scripts.studies.prepare import Pool, write_pool


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Each sentence in BEIR's layout; the first of each document is also a question."""
    corpus = []
    for number, row in enumerate(tiny.documents(count=160, sentences=2)):
        code = row["language"]
        about = {"language": code, "context": number // 2}
        corpus.append({"_id": f"{code}-{number}", "text": row["sentence"], "metadata": about})
    queries = corpus[::2]
    judged = [[row["_id"], row["_id"], "1"] for row in queries]
    splits = dict.fromkeys(("test", "test-same-language", "train"), judged)
    write_pool(tmp_path / "pool", Pool({"corpus": corpus, "queries": queries}, splits))
    return tmp_path / "pool"


def write_tatoeba(folder: Path) -> Path:
    """Sentences of six words in each language, of which one, two or three are the translation's."""
    texts = tiny.texts(12)["sentence"][:]
    for place, code in enumerate([*TATOEBA, *FURTHER]):
        shared = 1 + place % 3
        own = [" ".join([*text.split()[:shared], *tiny.WORDS[:3]]) for text in texts]
        write_text(folder / f"tatoeba.{code}-eng.{code}", "\n".join(own) + "\n")
        write_text(folder / f"tatoeba.{code}-eng.eng", "\n".join(texts) + "\n")
    return folder


def keep_questions_in(pool: Path, *codes: str) -> None:
    lines = (pool / "queries.jsonl").read_text().splitlines()
    queries = [json.loads(line) for line in lines]
    kept = [row for row in queries if row["metadata"]["language"] in codes]
    write_jsonl(pool / "queries.jsonl", kept)


def evaluators_figures(
    model: SentenceTransformer, pool: Path, tatoeba: Path, context: bool
) -> dict[str, float]:
    """What the evaluators say of the figures of a model as it is."""
    figures = {}
    for split in ("test", "test-same-language"):
        evaluator = LAReQAEvaluator.from_directory(pool, split=split, context=context)
        figures[split] = evaluator.evaluate(model).average
    mixed = figures["test"]
    asked = RetrievalEvaluator.from_directory(pool).evaluate(model).scores
    accuracy = TatoebaEvaluator.from_directory(tatoeba).evaluate(model).average["accuracy"]
    return {
        "raw pool": mixed["map_at_20"],
        "raw own": figures["test-same-language"]["map_at_20"],
        "raw preference": mixed["language_preference"],
        "raw whole ranking": mixed["map"],
        "raw Tatoeba of all": accuracy,
        "raw asked": asked["fr"]["success_at_10"],
        "raw asked share": asked["fr"]["same_language_at_10"],
        "raw English": asked["en"]["success_at_10"],
    }


@pytest.mark.parametrize("context", [False, True])
def test_the_figures_are_those_of_the_evaluators(context: bool, pool: Path, tmp_path: Path) -> None:
    model = tiny.static(features=16)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    model.save(str(tmp_path / "model"))
    keep_questions_in(pool, "en", "fr")
    tatoeba = write_tatoeba(tmp_path / "tatoeba")
    output = tmp_path / "figures.json"
    command = (
        f"--model {tmp_path}/model --pool {pool} --output {output} --tatoeba {tatoeba} "
        f"--asked {pool} --split test --held_out {pool} --precision fp32"
    ).split()
    if context:
        command.append("--context")

    figures = measure_search.main(command)

    assert json.loads(output.read_text()) == figures
    expected = evaluators_figures(model, pool, tatoeba, context)
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    if not context:
        assert figures["raw held out"] == figures["raw pool"]
    for way in ("queries", "calibrated"):
        assert {f"{way} pool", f"{way} own", f"{way} asked"} <= figures.keys()
    assert "aligned whole ranking" in figures


def test_a_file_of_other_figures_stays(pool: Path, tmp_path: Path) -> None:
    mine = write_text(tmp_path / "mine.json", '{"mine": 1}')
    with pytest.raises(FileExistsError, match=r"mine\.json"):
        measure_search.main(["--model", "m", "--pool", str(pool), "--output", str(mine)])
    assert mine.read_text() == '{"mine": 1}'


@pytest.fixture
def stored(pool: Path, tmp_path: Path) -> list[str]:
    """The options of the studies of stored vectors, with a model that is not needed again."""
    tiny.transformer().save(str(tmp_path / "model"))
    return f"--encoder {tmp_path}/model --data {pool} --output {tmp_path}/stored".split()


def test_figures_of_stored_vectors_are_those_of_the_evaluator(
    stored: list[str], pool: Path, tmp_path: Path
) -> None:
    figures = stored_vectors.main(stored)

    average = LAReQAEvaluator.from_directory(pool).evaluate(tiny.transformer()).average
    as_it_is = figures["as it is"]
    assert as_it_is["pool"] == pytest.approx(100 * average["map_at_20"], abs=0.051)
    assert as_it_is["recall@10"] == pytest.approx(100 * average["recall_at_10"], abs=0.051)
    assert min(figures["lsar, both sides"].values()) >= 0
    assert figures["lsar, queries alone"] != as_it_is
    assert figures["lsar, both sides"] != as_it_is


def test_vectors_that_are_stored_are_not_embedded_again(stored: list[str], tmp_path: Path) -> None:
    figures = stored_vectors.main(stored)
    shutil.rmtree(tmp_path / "model")
    assert str(stored_vectors.main(stored)) == str(figures)


def test_indexes_are_measured_against_the_exact_search(stored: list[str]) -> None:
    figures = stored_vectors.main(stored)
    indexes = approximate_indexes.main(stored)

    (raw_share, raw_recall), (mapped_share, mapped_recall) = indexes["exact search"]
    mapped = figures["lsar, 0.4 of the mean, queries alone"]
    assert [raw_share, mapped_share] == [1, 1]
    assert 100 * raw_recall == pytest.approx(figures["as it is"]["recall@10"], abs=0.051)
    assert 100 * mapped_recall == pytest.approx(mapped["recall@10"], abs=0.051)
    for sides in indexes.values():
        for share, recall in sides:
            assert 0 < share <= 1
            assert 0 < recall <= 1
    assert min(share for share, _ in indexes["PQ, 4 bytes"]) < 1


def test_a_paragraph_is_all_sentences_whose_names_share_its_own(pool: Path) -> None:
    sentences = stored_vectors.read(str(pool), "sentences", ["fr"])
    paragraphs = stored_vectors.read(str(pool), "paragraphs", ["fr"])

    assert sentences.corpus.unique("language") == ["fr"]
    assert paragraphs.queries.unique("language") == ["fr"]
    assert paragraphs.corpus["id"][:] == ["fr"]  # the pool's names are LANGUAGE-NUMBER
    assert paragraphs.corpus["text"][0].split() == " ".join(sentences.corpus["text"]).split()


def test_quantised_vectors_are_measured_against_those_that_are_not(stored: list[str]) -> None:
    figures = stored_vectors.main(stored)
    quantised = quantised_vectors.main(stored)

    expected = ["as it is", "lsar, 0.4 of the mean, queries alone", "lsar, both sides"]
    exact = [figures[row]["pool"] for row in expected]
    assert [100 * figure for figure in quantised["float32"]] == pytest.approx(exact, abs=0.051)
    assert quantised["int8"] == pytest.approx(quantised["float32"], abs=0.05)
    assert quantised["bits, the query in bits too"] != quantised["float32"]
