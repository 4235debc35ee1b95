from __future__ import annotations

import pytest

from st_xlret.evaluation import BenchmarkResult, markdown_table, published_rows, results_table, scores_table
from st_xlret.evaluation.reporting.published import published_benchmarks
from st_xlret.evaluation.reporting.tables import macro_average

FOURTEEN = ["fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "ur"]


def result(languages: list[str]) -> BenchmarkResult:
    scores = {language: {"accuracy": 0.5, "accuracy_to_en": 0.25} for language in languages}
    return BenchmarkResult("tatoeba", scores, macro_average(scores))


def test_published_rows_are_those_of_the_paper() -> None:
    rows = {row.system: row for row in published_rows("tatoeba") if row.short_source == "CCP paper"}
    assert list(rows) == ["XLM-R", "CRISS", "InfoXLM", "LASER", "Unicoder", "LaBSE", "CCP", "CCP+Calibration"]
    assert rows["LaBSE"].scores["ur"] == 0.954 and rows["LaBSE"].average["average_112"] == 0.837
    assert rows["CCP+Calibration"].average == {"average_14": 0.922, "average_112": 0.788}
    assert rows["CRISS"].average == {} and "el" not in rows["CRISS"].scores
    assert all(row.table == "Table 1" and "2206.03281" in row.source for row in rows.values())


def test_rows_agree_with_their_printed_averages() -> None:
    for row in published_rows("tatoeba"):
        if "average_14" in row.average:
            assert sorted(row.scores) == sorted(FOURTEEN)
            mean = sum(row.scores.values()) / 14
            assert mean == pytest.approx(row.average["average_14"], abs=0.0006)
        assert all(0 < value < 1 for value in [*row.scores.values(), *row.average.values()])


def test_rows_without_languages_can_be_left_out() -> None:
    with_averages = {row.system for row in published_rows("tatoeba")}
    assert "ML-CTL-CZ" in with_averages
    assert all(row.scores for row in published_rows("tatoeba", with_languages_only=True))


LANGUAGES = {
    "mrtydi": 11,
    "xor-retrieve": 7,
    "lareqa": 11,
    "mewsli-x": 11,
    "bucc": 4,
    "nq": 1,
    "xnli": 15,
    "paws-x": 7,
}
# As printed: these averages are not the means of their rows.
MISPRINTS = {("XLM-R", "recall_at_2kt"), ("CCP", "recall_at_5kt"), ("GMT + PATH", "recall_at_2kt")}


@pytest.mark.parametrize("benchmark", LANGUAGES)
def test_every_benchmark_has_rows_with_their_source(benchmark) -> None:
    rows = published_rows(benchmark, ablations=True)
    assert rows and all(row.source and row.table.startswith("Table ") and row.protocol for row in rows)
    assert len({(row.system, row.metric, row.label) for row in rows}) == len(rows)
    whole = LANGUAGES[benchmark]
    for row in rows:
        assert all(0 < value < 1 for value in [*row.scores.values(), *row.average.values()])
        assert len(row.scores) in (0, 9, whole) or row.ablation
        for name, value in row.average.items():
            if row.scores and (row.system, row.metric) not in MISPRINTS:
                assert name == f"average_{len(row.scores)}"
                assert sum(row.scores.values()) / len(row.scores) == pytest.approx(value, abs=0.0012)


# Every table of the papers with figures that an evaluator of this package can produce, and where they are.
TABLES = {
    "CCP paper": {
        1: {"tatoeba"},
        2: {"tatoeba-pairs"},
        3: {"mrtydi"},
        4: {"xor-retrieve"},
        5: {"tatoeba"},
        6: {"tatoeba"},
    },
    "MSM paper": {
        1: {"mrtydi", "xor-retrieve", "mewsli-x", "lareqa"},
        2: {"mrtydi"},
        3: {"xor-retrieve"},
        4: {"mrtydi"},
        **{number: {"mrtydi", "xor-retrieve"} for number in (5, 6, 7, 8)},
        9: {"mrtydi"},
        10: {"xor-retrieve"},
        11: {"mewsli-x"},
        12: {"lareqa"},
        # 13 compares training data.
        14: {"mrtydi"},
        15: {"xor-retrieve"},
        16: {"nq"},
    },
    "lang-contrastive paper": {
        # 1 compares batch sizes.
        **{number: {"mrtydi"} for number in (2, 3, 4, 5, 7, 8, 9, 10)},
        6: {"bucc"},
    },
    "ML-CTL paper": {1: {"xnli", "paws-x", "bucc", "tatoeba"}},  # its tagging tasks have no evaluator here
}


def test_every_table_of_the_papers_is_there() -> None:
    found: dict[str, dict[int, set[str]]] = {}
    for benchmark in published_benchmarks():
        for row in published_rows(benchmark, ablations=True):
            number = int(row.table.removeprefix("Table "))
            found.setdefault(row.short_source, {}).setdefault(number, set()).add(benchmark)
    assert found == TABLES


def test_ablations_are_left_out_unless_they_are_asked_for() -> None:
    assert not any(row.ablation for row in published_rows("tatoeba"))
    rows = {row.system: row for row in published_rows("tatoeba", ablations=True) if row.ablation}
    assert len(rows) == 20 + 12 and all(list(row.scores) == ["fr"] for row in rows.values())
    assert rows["CCP, memory bank, L2 norm, asymmetric BN, temperature 0.1"].scores["fr"] == 0.913
    assert rows["CCP, window 2, batch 8"].scores["fr"] == 0.843
    connections = [
        row
        for row in published_rows("mrtydi", metric="mrr_at_100", ablations=True)
        if (row.short_source, row.table) == ("lang-contrastive paper", "Table 4")
    ]
    assert len(connections) == 6 and connections[3].system == "XLM-R + semaCL, en-ko ja-fi"
    assert connections[3].scores["ko"] == 0.365 and connections[3].average == {"average_4": 0.343}


def test_pairs_of_languages() -> None:
    rows = {row.system: row for row in published_rows("tatoeba-pairs")}
    assert list(rows) == ["XLM-R", "CRISS", "Unicoder", "LaBSE", "CCP", "CCP+Calibration"]
    assert rows["CCP"].scores["ur-ru"] == 0.921 and rows["CRISS"].average == {} and len(rows["CRISS"].scores) == 8
    for row in rows.values():
        if row.average:
            assert sum(row.scores.values()) / 15 == pytest.approx(row.average["average_15"], abs=0.0006)


def test_published_rows_of_retrieval() -> None:
    def of(benchmark, system, table, metric):
        [row] = [r for r in published_rows(benchmark, metric=metric) if (r.system, r.table) == (system, table)]
        return row

    assert of("mrtydi", "CCP", "Table 3", "mrr_at_100").scores["sw"] == 0.392
    assert of("mrtydi", "MSM", "Table 2", "recall_at_100").average == {"average_11": 0.786}
    assert of("mrtydi", "XLM-R + semaCL", "Table 2", "mrr_at_100").scores["te"] == 0.55
    assert of("mrtydi", "DistilmBERT", "Table 2", "mrr_at_100").average == {"average_9": 0.305}
    assert of("mewsli-x", "MSM", "Table 11", "map_at_20").scores["de"] == 0.68
    assert of("lareqa", "XLMR", "Table 12", "map_at_20").scores["th"] == 0.278
    assert of("nq", "MSM", "Table 16", "recall_at_20").scores == {"en": 0.803}
    assert of("xor-retrieve", "ICT", "Table 3", "recall_at_5kt").scores["bn"] == 0.461
    assert of("xor-retrieve", "White-MT + DPR", "Table 15", "recall_at_2kt").average == {"average_7": 0.427}
    assert of("xnli", "ML-CTL-CZ", "Table 1", "accuracy").average == {"average_15": 0.6775}
    assert of("bucc", "LaBSE + semaCL", "Table 6", "f1").average == {"average_4": 0.9051}
    settings = {r.setting for r in published_rows("xor-retrieve") if (r.system, r.table) == ("MSM", "Table 10")}
    assert settings == {"zero-shot, fine-tuned on NQ", "multi-lingual fine-tune"}


def test_every_row_of_a_benchmark_with_splits_says_its_split() -> None:
    for benchmark in LANGUAGES:
        for row in published_rows(benchmark):
            split = row.measured_as["split"]
            assert ("split not said" if split == "not said" else f"{split} split") in row.label
    splits = {(row.short_source, row.table): row.measured_as["split"] for row in published_rows("xor-retrieve")}
    assert splits["MSM paper", "Table 10"] == "test" and splits["CCP paper", "Table 4"] == "not said"
    assert all("split" not in row.label for row in published_rows("tatoeba"))


def test_unknown_benchmark_lists_what_is_there() -> None:
    with pytest.raises(ValueError, match=r"'mkqa'.*'tatoeba'"):
        published_rows("mkqa")
    assert "tatoeba" in published_benchmarks()


def test_table_cells_line_up() -> None:
    lines = markdown_table(["a", "long header"], [["longer cell", "1"], ["b", "22"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    with pytest.raises(ValueError, match="2 cells and this row 1"):
        markdown_table(["a", "b"], [["1"]])


def test_results_stand_beside_published_rows_and_are_told_apart() -> None:
    lines = results_table(result(["fr", "sw"]), model_name="ours", published=published_rows("tatoeba")).splitlines()
    cells = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines}
    assert cells["ours"] == ["50.0", "50.0", "50.0", "measured here"]
    assert cells["CCP"] == ["93.8", "50.5", "72.2", "published: CCP paper, Table 1"]
    assert cells["CRISS"] == ["92.7", "-", "-", "published: CCP paper, Table 1"]
    assert "ML-CTL-CZ" not in cells


def test_published_average_over_the_whole_benchmark() -> None:
    table = results_table(
        result(["fr", "xh"]),
        model_name="ours",
        published=published_rows("tatoeba"),
        languages=["fr"],
        published_average="average_112",
    )
    assert "all 2" in table.splitlines()[0]
    (labse,) = (line for line in table.splitlines() if "LaBSE" in line)
    assert "96.0" in labse and "83.7" in labse


def test_languages_of_the_table_must_have_been_evaluated() -> None:
    with pytest.raises(ValueError, match=r"\['xx'\] were not evaluated"):
        results_table(result(["fr"]), model_name="ours", languages=["xx"])


def test_scores_table_ends_with_the_average() -> None:
    lines = scores_table(result(["fr", "de"])).splitlines()
    assert lines[-1].split("|")[1].strip() == "average" and "25.0" in lines[-1]
