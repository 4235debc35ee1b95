"""Figures of results stand under their own names, however different the languages are."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import BenchmarkResult, RetrievalEvaluator, macro_average, result_text
from st_xlret.evaluation.results import write_comparison
from tests.data.files import write_jsonl, write_text


def columns_of(report: str, first: str) -> dict[str, dict[str, str]]:
    """First cell of each row to its cells by name, of the table that begins with `first`."""
    table = report[report.index(f"| {first}") :].partition("\n\n")[0]
    header, _, *lines = table.splitlines()
    names = cells(header)
    return {cells(line)[0]: dict(zip(names, cells(line), strict=True)) for line in lines}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_language_that_lacks_a_metric_has_a_dash_there() -> None:
    scores = {
        "en": {"success_at_10": 0.9, "mrr_at_10": 0.1},
        "sw": {"recall_at_10": 0.5, "mrr_at_10": 0.2},
        "th": {"mrr_at_10": 0.3},
    }
    result = BenchmarkResult("retrieval", scores, macro_average(scores))
    table = columns_of(result_text(result, "model"), "language")
    assert list(table) == ["en", "sw", "th", "average"]
    assert list(table["en"]) == ["language", "success_at_10", "mrr_at_10", "recall_at_10"]
    assert [row["mrr_at_10"] for row in table.values()] == ["10.0", "20.0", "30.0", "20.0"]
    assert [row["success_at_10"] for row in table.values()] == ["90.0", "-", "-", "-"]
    assert [row["recall_at_10"] for row in table.values()] == ["-", "50.0", "-", "-"]


@pytest.fixture
def natural_pool(tmp_path: Path) -> Path:
    """English has right answers in both languages, French in its own alone, German in none."""
    documents = [
        {"_id": "d0", "text": "taxi", "language": "en"},
        {"_id": "d1", "text": "voiture", "language": "fr"},
        {"_id": "d2", "text": "pain", "language": "fr"},
    ]
    queries = [
        {"_id": "q0", "text": "pain", "language": "fr"},
        {"_id": "q1", "text": "taxi", "language": "en"},
        {"_id": "q2", "text": "brot", "language": "de"},
    ]
    write_jsonl(tmp_path / "pool" / "corpus.jsonl", documents)
    write_jsonl(tmp_path / "pool" / "queries.jsonl", queries)
    judgements = "q0\td2\t1\nq1\td0\t1\nq1\td1\t1\nq2\td2\t1\n"
    write_text(tmp_path / "pool" / "qrels" / "test.tsv", judgements)
    return tmp_path / "pool"


def test_every_figure_of_a_natural_pool_is_under_its_name(
    natural_pool: Path, static_model: SentenceTransformer
) -> None:
    result = RetrievalEvaluator.from_directory(natural_pool).evaluate(static_model)
    table = columns_of(result_text(result, "model"), "language")
    metrics = {metric for values in result.scores.values() for metric in values}
    assert "recall_at_10_other_languages" not in result.scores["fr"]
    for code, values in [*result.scores.items(), ("average", result.average)]:
        assert set(table[code]) == {"language"} | metrics
        for metric in metrics:
            expected = f"{100 * values[metric]:.1f}" if metric in values else "-"
            assert table[code][metric] == expected


def write_result(file: Path, **average: float) -> None:
    result = BenchmarkResult("tatoeba", {"fr": average}, average)
    file.write_text(json.dumps(result.as_json("model")))


def test_a_comparison_has_the_metrics_of_all_systems(tmp_path: Path) -> None:
    write_result(tmp_path / "base.json", accuracy=0.5)
    write_result(tmp_path / "ours.json", f1=0.4, accuracy=0.75)
    files = [str(tmp_path / "base.json"), str(tmp_path / "ours.json")]
    table = columns_of(write_comparison(files, tmp_path / "table.md"), "system")
    assert table["base"] == {"system": "base", "accuracy": "50.0", "f1": "-", "seeds": "1"}
    assert table["ours"] == {"system": "ours", "accuracy": "75.0", "f1": "40.0", "seeds": "1"}
    with open(tmp_path / "table.csv", encoding="utf-8", newline="") as file:
        base, ours = csv.DictReader(file)
    assert (base["accuracy"], base["f1"]) == ("0.5", "")
    assert (ours["accuracy"], ours["f1"]) == ("0.75", "0.4")


def test_a_metric_that_a_seed_lacks_is_none_of_the_system(tmp_path: Path) -> None:
    write_result(tmp_path / "1.json", accuracy=0.5, f1=0.1)
    write_result(tmp_path / "2.json", accuracy=0.7)
    files = [f"ours={tmp_path / name}" for name in ("1.json", "2.json")]
    table = columns_of(write_comparison(files, tmp_path / "table.md"), "system")
    assert list(table["ours"]) == ["system", "accuracy", "seeds"]
    assert table["ours"]["accuracy"].startswith("60.0 ± ")


def test_the_csv_file_of_a_training_keeps_each_figure_under_its_name(
    natural_pool: Path, static_model: SentenceTransformer, tmp_path: Path
) -> None:
    for steps, chosen in enumerate([["fr"], ["en"], ["fr"]]):
        evaluator = RetrievalEvaluator.from_directory(natural_pool, chosen)
        evaluator(static_model, output_path=str(tmp_path), steps=steps)
    of_french, of_english = [
        list(csv.DictReader(file.read_text("utf-8").splitlines()))
        for file in sorted(tmp_path.glob("retrieval_evaluation_results*.csv"))
    ]
    assert [(row["steps"], row["fr_mrr_at_100"]) for row in of_french] == [
        ("0", "1.0"),
        ("2", "1.0"),
    ]
    assert [(row["steps"], row["en_mrr_at_100"]) for row in of_english] == [("1", "1.0")]


SCORES = "retrieval_evaluation_results.csv"
EDITS: dict[str, Callable[[bytes], bytes]] = {
    "a comment above": lambda content: b"# of Monday\r\n" + content,
    "a comment with as many cells": lambda content: b"#" + b",x" * 50 + b"\r\n" + content,
    "a comment below": lambda content: content + b"# of Monday\r\n",
    "two columns of one name": lambda content: content.replace(b"steps,", b"epoch,"),
    "another column first": lambda content: content.replace(b"epoch,", b"run,"),
    "a byte-order mark": lambda content: b"\xef\xbb\xbf" + content,
    "Latin-1": lambda content: content.replace(b"epoch,", b"\xe9poque,"),
    "semicolons": lambda content: content.replace(b",", b";"),
    "quotes": lambda content: content.replace(b"epoch", b'"epoch"'),
    "line ends": lambda content: content.replace(b"\r\n", b"\n"),
    "a cut": lambda content: content[:-9],
    "nothing": lambda content: b"",
    "UTF-16": lambda content: content.decode().encode("utf-16"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_csv_file_that_somebody_has_edited_stays_as_it_is(
    edit: Callable[[bytes], bytes],
    natural_pool: Path,
    static_model: SentenceTransformer,
    tmp_path: Path,
) -> None:
    evaluator = RetrievalEvaluator.from_directory(natural_pool)
    evaluator(static_model, output_path=str(tmp_path), steps=0)
    file = tmp_path / SCORES
    edited = edit(file.read_bytes())
    file.write_bytes(edited)
    for steps in (1, 2):
        evaluator(static_model, output_path=str(tmp_path), steps=steps)
    assert file.read_bytes().startswith(edited)
    logged = [line for log in tmp_path.glob("*.csv") for line in log.read_bytes().splitlines()]
    assert [line[:5] for line in logged if line[:5] in (b"-1,1,", b"-1,2,")] == [b"-1,1,", b"-1,2,"]
