"""What the studies measure of a model, and of its stored vectors, is what the evaluators measure."""

import json
import shutil
from pathlib import Path

import pytest

from st_xlret.evaluation import LAReQAEvaluator, RetrievalEvaluator, TatoebaEvaluator
from tests import tiny
from tests.data.files import write_jsonl, write_text
from training_scripts.studies import approximate_indexes, measure_search, stored_vectors
from training_scripts.studies.measure_search import FURTHER, TATOEBA
from training_scripts.studies.prepare import write_pool


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Each sentence in BEIR's layout; the first of each document is also a question."""
    corpus = []
    for number, row in enumerate(tiny.documents(count=160, sentences=2)):
        about = {"language": row["language"], "context": number // 2}
        corpus.append(
            {"_id": f"{row['language']}-{number}", "text": row["sentence"], "metadata": about}
        )
    judged = [(row["_id"], row["_id"], "1") for row in corpus[::2]]
    rows = {"corpus": corpus, "queries": corpus[::2]}
    write_pool(
        tmp_path / "pool", rows, dict.fromkeys(("test", "test-same-language", "train"), judged)
    )
    return tmp_path / "pool"


def write_tatoeba(folder: Path) -> Path:
    """Sentences of six words in each language, of which one, two or three are the translation's."""
    texts = tiny.texts(12)["sentence"][:]
    for place, code in enumerate([*TATOEBA, *FURTHER]):
        own = [" ".join([*text.split()[: 1 + place % 3], *tiny.WORDS[:3]]) for text in texts]
        write_text(folder / f"tatoeba.{code}-eng.{code}", "\n".join(own) + "\n")
        write_text(folder / f"tatoeba.{code}-eng.eng", "\n".join(texts) + "\n")
    return folder


@pytest.mark.parametrize("context", [False, True])
def test_the_figures_are_those_of_the_evaluators(context: bool, pool: Path, tmp_path: Path) -> None:
    model = tiny.static(features=16)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    model.save(str(tmp_path / "model"))
    queries = [json.loads(line) for line in (pool / "queries.jsonl").read_text().splitlines()]
    write_jsonl(
        pool / "queries.jsonl",
        [row for row in queries if row["metadata"]["language"] in ("en", "fr")],
    )
    words = [
        "--model",
        str(tmp_path / "model"),
        "--pool",
        str(pool),
        "--output",
        str(tmp_path / "figures.json"),
    ]
    words += [
        "--tatoeba",
        str(write_tatoeba(tmp_path / "tatoeba")),
        "--asked",
        str(pool),
        "--split",
        "test",
    ]
    figures = measure_search.main(
        [*words, "--held_out", str(pool), "--precision", "fp32", *["--context"] * context]
    )
    assert json.loads((tmp_path / "figures.json").read_text()) == figures
    (tmp_path / "mine.json").write_text('{"mine": 1}')
    with pytest.raises(FileExistsError, match=r"mine\.json"):
        measure_search.main([*words, "--output", str(tmp_path / "mine.json")])
    splits = ("test", "test-same-language")
    evaluators = [
        LAReQAEvaluator.from_directory(pool, split=split, context=context) for split in splits
    ]
    mixed, own = (evaluator.evaluate(model).average for evaluator in evaluators)
    accuracy = (
        TatoebaEvaluator.from_directory(tmp_path / "tatoeba").evaluate(model).average["accuracy"]
    )
    asked = RetrievalEvaluator.from_directory(pool).evaluate(model).scores
    expected = {
        "pool": mixed["map_at_20"],
        "own": own["map_at_20"],
        "preference": mixed["language_preference"],
        "whole ranking": mixed["map"],
        "Tatoeba of all": accuracy,
        "asked": asked["fr"]["success_at_10"],
        "asked share": asked["fr"]["same_language_at_10"],
        "English": asked["en"]["success_at_10"],
    }
    assert {name: figures[f"raw {name}"] for name in expected} == pytest.approx(expected)
    assert context or figures["raw held out"] == figures["raw pool"]
    ways = {
        f"{way} {name}" for way in ("queries", "calibrated") for name in ("pool", "own", "asked")
    }
    assert {*ways, "aligned whole ranking"} <= set(figures)


def test_figures_of_stored_vectors_are_those_of_the_evaluator(pool: Path, tmp_path: Path) -> None:
    model = tiny.transformer()
    model.save(str(tmp_path / "model"))
    words = [
        "--encoder",
        str(tmp_path / "model"),
        "--data",
        str(pool),
        "--output",
        str(tmp_path / "stored"),
    ]
    figures = stored_vectors.main(words)
    shutil.rmtree(tmp_path / "model")
    assert str(stored_vectors.main(words)) == str(figures)  # from the vectors that are stored
    average = LAReQAEvaluator.from_directory(pool).evaluate(model).average
    for column, metric in {"pool": "map_at_20", "recall@10": "recall_at_10"}.items():
        assert figures["as it is"][column] == pytest.approx(100 * average[metric], abs=0.051)
    assert min(figures["lsar, both sides"].values()) >= 0
    assert figures["lsar, queries alone"] != figures["as it is"] != figures["lsar, both sides"]

    indexes = approximate_indexes.main(words)
    assert [share for share, _ in indexes["exact search"]] == [1, 1]
    recall = [
        figures[name]["recall@10"] for name in ("as it is", "lsar, 0.4 of the mean, queries alone")
    ]
    assert [100 * each for _, each in indexes["exact search"]] == pytest.approx(recall, abs=0.051)
    assert all(
        0 < share <= 1 and 0 < each <= 1 for sides in indexes.values() for share, each in sides
    )
    assert min(share for share, _ in indexes["PQ, 4 bytes"]) < 1


def test_a_paragraph_is_all_sentences_whose_names_share_its_own(pool: Path) -> None:
    sentences, paragraphs = (
        stored_vectors.read(str(pool), kind, ["fr"]) for kind in ("sentences", "paragraphs")
    )
    assert sentences.corpus.unique("language") == paragraphs.queries.unique("language") == ["fr"]
    assert paragraphs.corpus["id"][:] == ["fr"]  # the pool's names are LANGUAGE-NUMBER
    assert paragraphs.corpus["text"][0].split() == " ".join(sentences.corpus["text"]).split()
