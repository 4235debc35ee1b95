"""Published rows have their sources, and stand beside results that they compare with."""

import pytest

from st_xlret.evaluation import BENCHMARKS, BenchmarkResult, macro_average
from st_xlret.evaluation.published import (
    NOT_COMPARABLE,
    PublishedRow,
    published_rows,
    results_table,
)
from st_xlret.evaluation.results import result_text

OF_PROGRAMS = {"xnli": 15, "paws-x": 7}
"""Benchmark of `evaluation/xtreme.py` to its number of languages."""

PUBLISHED = [name for name, kind in BENCHMARKS.items() if kind.published_metrics]
MISPRINTS = [
    ("XLM-R", "recall_at_2kt"),
    ("CCP", "recall_at_5kt"),
    ("GMT + PATH", "recall_at_2kt"),
]
"""System and metric of which the printed average is not the mean of the row."""


def rows_of(benchmark: str) -> list[PublishedRow]:
    rows = published_rows(benchmark)
    assert rows
    return rows


@pytest.mark.parametrize("benchmark", [*PUBLISHED, *OF_PROGRAMS])
def test_rows_have_their_source_and_say_how_they_were_measured(benchmark: str) -> None:
    names = set()
    for row in rows_of(benchmark):
        assert row.source
        assert row.table.startswith("Table ")
        assert row.protocol
        assert ("split" in row.measured_as) == (not benchmark.startswith("tatoeba"))
        name = (row.system, row.metric, row.label)
        assert name not in names
        names.add(name)


@pytest.mark.parametrize("benchmark", [*PUBLISHED, *OF_PROGRAMS])
def test_rows_are_fractions_of_the_languages_of_the_benchmark(benchmark: str) -> None:
    languages = OF_PROGRAMS.get(benchmark)
    if languages is None:
        languages = BENCHMARKS[benchmark].languages_in_all
    for row in rows_of(benchmark):
        for value in [*row.scores.values(), *row.average.values()]:
            assert 0 < value < 1
        if not benchmark.startswith("tatoeba"):
            assert len(row.scores) in (0, 9, languages)


@pytest.mark.parametrize("benchmark", PUBLISHED)
def test_printed_averages_are_the_means_of_their_rows(benchmark: str) -> None:
    checked = 0
    for row in rows_of(benchmark):
        average = row.average.get(f"average_{len(row.scores)}")
        if average is None or (row.system, row.metric) in MISPRINTS:
            continue
        mean = sum(row.scores.values()) / len(row.scores)
        assert mean == pytest.approx(average, abs=0.0012)
        checked += 1
    assert checked


def tatoeba_result() -> BenchmarkResult:
    scores = {"fr": {"accuracy": 0.5}, "sw": {"accuracy": 0.5}}
    return BenchmarkResult("tatoeba", scores, macro_average(scores))


def cells_by_system(table: str) -> dict[str, list[str]]:
    cells = {}
    for line in table.splitlines():
        system, *others = [cell.strip() for cell in line.split("|")[1:-1]]
        cells[system] = others
    return cells


def test_results_stand_beside_published_rows_and_are_told_apart() -> None:
    table = results_table(tatoeba_result(), model_name="ours", published=published_rows("tatoeba"))
    cells = cells_by_system(table)
    assert cells["ours"] == ["50.0", "50.0", "50.0", "measured here"]
    assert cells["CCP"] == ["93.8", "50.5", "72.2", "published: CCP paper, Table 1"]
    assert cells["CRISS"] == ["92.7", "-", "-", "published: CCP paper, Table 1"]
    assert "ML-CTL-CZ" not in cells


def test_the_published_average_of_all_languages_has_a_column() -> None:
    table = results_table(
        tatoeba_result(),
        model_name="ours",
        published=published_rows("tatoeba"),
        languages=["fr"],
        published_average="average_112",
    )
    cells = cells_by_system(table)
    assert cells["system"] == ["fr", "mean", "all 2", "source"]
    assert cells["LaBSE"][0] == "96.0"
    assert cells["LaBSE"][2] == "83.7"


def report(benchmark: str, languages: str, **protocol: str) -> str:
    """The report of a result of 0.5 everywhere."""
    scores = {}
    for code in languages.split():
        scores[code] = dict.fromkeys(BENCHMARKS[benchmark].published_metrics, 0.5)
    result = BenchmarkResult(benchmark, scores, macro_average(scores), protocol)
    return result_text(result, "runs/tiny")


def marked(printed: str) -> set[str]:
    """Tables of the papers, such as "MSM paper, Table 12", of which rows are marked."""
    places = set()
    for line in printed.splitlines():
        if line.startswith("|") and NOT_COMPARABLE in line:
            label = line.split("published: ")[1]
            places.add(label.split(" (")[0].rstrip(" |"))
    return places


PAPERS_PROTOCOL = {
    "tatoeba": {"sentences": "all"},
    "mrtydi": {"split": "test"},
    "lareqa": {
        "split": "test",
        "candidate": "sentence followed by its paragraph",
        "corpus_size": "13014",
    },
    "mewsli-x": {"split": "test", "corpus_size": "1003893"},
}


@pytest.mark.parametrize("benchmark", PAPERS_PROTOCOL)
def test_rows_are_comparable_where_the_protocol_is_the_papers(benchmark: str) -> None:
    printed = report(benchmark, "ar", **PAPERS_PROTOCOL[benchmark])
    assert "published: " in printed
    assert NOT_COMPARABLE not in printed


ENTRIES = [(name, entry) for name, protocol in PAPERS_PROTOCOL.items() for entry in protocol]


@pytest.mark.parametrize(("benchmark", "entry"), ENTRIES)
def test_rows_are_marked_where_one_entry_differs(benchmark: str, entry: str) -> None:
    protocol = PAPERS_PROTOCOL[benchmark]
    printed = report(benchmark, "ar", **{**protocol, entry: "another"})
    assert marked(printed) == {
        row.place for row in published_rows(benchmark) if row.has_any(["ar"])
    }
    assert "measured differently" in printed
    assert f"- {entry}: another here; {protocol[entry]} in " in printed


def test_of_xor_retrieve_the_split_decides() -> None:
    not_said = {"CCP paper, Table 4", "MSM paper, Table 15"}
    of_test = {"MSM paper, Table 3", "MSM paper, Table 10"}
    # Given the test set's answers, the rows of the paper that says so are comparable.
    assert marked(report("xor-retrieve", "ar ru", split="test")) == not_said
    assert marked(report("xor-retrieve", "ar ru", split="dev")) == not_said | of_test
    assert "published" not in report("xor-retrieve", "xx", split="dev")


@pytest.mark.parametrize(
    ("split", "threshold", "is_comparable"),
    [
        ("training", "best F1 on the sample split", True),
        ("test", "best F1 on the sample split", False),
        ("training", "another", False),
    ],
)
def test_of_bucc_the_split_and_the_threshold_decide(
    split: str, threshold: str, is_comparable: bool
) -> None:
    printed = report("bucc", "de fr ru zh", split=split, threshold=threshold)
    of_ml_ctl = [place for place in marked(printed) if place.startswith("ML-CTL paper")]
    assert (of_ml_ctl == []) == is_comparable
