from __future__ import annotations

import pytest

from st_xlret.evaluation import BENCHMARKS, BenchmarkResult, macro_average, published_rows, report, results_table
from st_xlret.evaluation.tables import NOT_COMPARABLE

LANGUAGES = {"tatoeba": 14, "mrtydi": 11, "xor-retrieve": 7, "lareqa": 11, "mewsli-x": 11, "bucc": 4, "xnli": 15}
# As printed: these averages are not the means of their rows.
MISPRINTS = {("XLM-R", "recall_at_2kt"), ("CCP", "recall_at_5kt"), ("GMT + PATH", "recall_at_2kt")}


def test_published_rows_are_those_of_the_paper() -> None:
    rows = {row.system: row for row in published_rows("tatoeba") if row.short_source == "CCP paper"}
    assert list(rows) == ["XLM-R", "CRISS", "InfoXLM", "LASER", "Unicoder", "LaBSE", "CCP", "CCP+Calibration"]
    assert rows["LaBSE"].scores["ur"] == 0.954 and rows["LaBSE"].average["average_112"] == 0.837
    assert rows["CRISS"].average == {} and "el" not in rows["CRISS"].scores
    assert all(row.table == "Table 1" and "2206.03281" in row.source for row in rows.values())
    ablations = {row.system: row for row in published_rows("tatoeba", ablations=True) if row.ablation}
    assert len(ablations) == 32 and ablations["CCP, window 2, batch 8"].scores == {"fr": 0.843}


@pytest.mark.parametrize("benchmark", [*LANGUAGES, "paws-x"])
def test_every_benchmark_has_rows_with_their_source(benchmark) -> None:
    rows = published_rows(benchmark, ablations=True)
    assert rows and all(row.source and row.table.startswith("Table ") and row.protocol for row in rows)
    assert len({(row.system, row.metric, row.label) for row in rows}) == len(rows)
    for row in rows:
        assert all(0 < value < 1 for value in [*row.scores.values(), *row.average.values()])
        assert len(row.scores) in (0, 9, LANGUAGES.get(benchmark, 7)) or row.ablation or benchmark == "tatoeba"
        for name, value in row.average.items():
            if name == f"average_{len(row.scores)}" and (row.system, row.metric) not in MISPRINTS:
                assert sum(row.scores.values()) / len(row.scores) == pytest.approx(value, abs=0.0012)
        split = row.measured_as.get("split", "")
        assert (benchmark == "tatoeba") == (not split)
        assert ("split not said" if split == "not said" else split) in row.label


def test_results_stand_beside_published_rows_and_are_told_apart() -> None:
    scores = {"fr": {"accuracy": 0.5}, "sw": {"accuracy": 0.5}}
    result, published = BenchmarkResult("tatoeba", scores, macro_average(scores)), published_rows("tatoeba")
    lines = results_table(result, model_name="ours", published=published).splitlines()
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines}
    assert cells["ours"] == ["50.0", "50.0", "50.0", "measured here"]
    assert cells["CCP"] == ["93.8", "50.5", "72.2", "published: CCP paper, Table 1"]
    assert cells["CRISS"] == ["92.7", "-", "-", "published: CCP paper, Table 1"]
    assert "ML-CTL-CZ" not in cells
    options = {"languages": ["fr"], "published_average": "average_112"}
    whole = results_table(result, model_name="ours", published=published, **options)
    (labse,) = (line for line in whole.splitlines() if "LaBSE" in line)
    assert "all 2" in whole.splitlines()[0] and "96.0" in labse and "83.7" in labse
    assert "published" not in text("xor-retrieve", {"split": "dev"}, languages=("xx",))


def text(benchmark: str, protocol: dict[str, str], *, languages: tuple[str, ...] = ("ar", "ru")) -> str:
    scores = {language: dict.fromkeys(BENCHMARKS[benchmark].published_metrics, 0.5) for language in languages}
    return report(BenchmarkResult(benchmark, scores, macro_average(scores), protocol), "runs/tiny")


def marked(printed: str) -> set[str]:
    """Tables of the papers, such as "MSM paper, Table 12", of which rows are marked."""
    lines = [line for line in printed.splitlines() if line.startswith("|") and NOT_COMPARABLE in line]
    return {line.split("published: ")[1].split(" (")[0].rstrip(" |") for line in lines}


@pytest.mark.parametrize(
    ("benchmark", "languages", "protocol"),
    [
        ("tatoeba", "ar ru", {"sentences": "all"}),
        ("mrtydi", "ar ru", {"split": "test"}),
        (
            "lareqa",
            "ar ru",
            {"split": "test", "candidate": "sentence followed by its paragraph", "corpus_size": "13014"},
        ),
        ("mewsli-x", "ar de", {"split": "test", "corpus_size": "1003893"}),
    ],
)
def test_rows_are_comparable_where_the_protocol_is_the_papers(benchmark, languages, protocol) -> None:
    codes = tuple(languages.split())
    printed = text(benchmark, protocol, languages=codes)
    assert "published: " in printed and NOT_COMPARABLE not in printed
    for name in protocol:
        other = text(benchmark, {**protocol, name: "another"}, languages=codes)
        shown = [row for row in published_rows(benchmark) if row.scores.keys() & set(codes)]
        assert marked(other) == {f"{row.short_source}, {row.table}" for row in shown}
        assert f"- {name}: another here; {protocol[name]} in " in other and "measured differently" in other


def test_of_xor_retrieve_and_bucc_the_split_and_the_threshold_decide() -> None:
    printed = text("xor-retrieve", {"split": "dev"})
    assert marked(printed) == {"CCP paper, Table 4", *(f"MSM paper, Table {number}" for number in (3, 10, 15))}
    assert "- split: dev here; not said in CCP paper, Table 4 and MSM paper, Table 15; test in MSM paper, " in printed
    # Given the test set's answers, the rows of the paper that says so are comparable.
    assert marked(text("xor-retrieve", {"split": "test"})) == {"CCP paper, Table 4", "MSM paper, Table 15"}
    setting = {"split": "training", "threshold": "best F1 on the sample split"}
    for changes, is_marked in (({}, False), ({"split": "test"}, True), ({"threshold": "another"}, True)):
        printed = text("bucc", {**setting, **changes}, languages=("de", "fr", "ru", "zh"))
        assert any(table.startswith("ML-CTL paper") for table in marked(printed)) is is_marked
