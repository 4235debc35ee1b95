"""What is said of a result beside the papers' figures, and which of them are comparable with it."""

from __future__ import annotations

import pytest

from st_xlret.evaluation.base import BenchmarkResult, macro_average
from st_xlret.evaluation.benchmarks import BENCHMARKS
from st_xlret.evaluation.tables import NOT_COMPARABLE, published_rows, report

AS_THE_PAPERS = {
    "tatoeba": {"sentences": "all"},
    "mrtydi": {"split": "test"},
    "lareqa": {"split": "test", "candidate": "sentence followed by its paragraph", "corpus_size": "13014"},
    "mewsli-x": {"split": "test", "corpus_size": "1003893"},
}


def text(benchmark: str, protocol: dict[str, str], *, languages: tuple[str, ...] = ("ar", "ru")) -> str:
    scores = {language: dict.fromkeys(BENCHMARKS[benchmark].published_metrics, 0.5) for language in languages}
    return report(BenchmarkResult(benchmark, scores, macro_average(scores), protocol), "runs/tiny")


def marked(printed: str) -> set[str]:
    """Tables of the papers, such as "MSM paper, Table 12", of which rows are marked."""
    lines = [line for line in printed.splitlines() if line.startswith("|") and NOT_COMPARABLE in line]
    return {line.split("published: ")[1].split(" (")[0].rstrip(" |") for line in lines}


@pytest.mark.parametrize("benchmark", AS_THE_PAPERS)
def test_rows_are_comparable_where_the_protocol_is_the_papers(benchmark: str) -> None:
    languages = ("ar", "de") if benchmark == "mewsli-x" else ("ar", "ru")
    printed = text(benchmark, AS_THE_PAPERS[benchmark], languages=languages)
    assert "published: " in printed and NOT_COMPARABLE not in printed
    for name in AS_THE_PAPERS[benchmark]:
        other = text(benchmark, {**AS_THE_PAPERS[benchmark], name: "another"}, languages=languages)
        shown = [row for row in published_rows(benchmark) if row.scores.keys() & set(languages)]
        assert marked(other) == {f"{row.short_source}, {row.table}" for row in shown}
        assert f"- {name}: another here; {AS_THE_PAPERS[benchmark][name]} in " in other
        assert "measured differently" in other


def test_of_xor_retrieve_the_dev_split_alone_can_be_measured() -> None:
    printed = text("xor-retrieve", {"split": "dev"})
    assert marked(printed) == {"CCP paper, Table 4", *(f"MSM paper, Table {number}" for number in (3, 10, 15))}
    assert " measured here, dev split |" in printed and "fine-tuned on NQ; test split)" in printed
    assert "- split: dev here; not said in CCP paper, Table 4 and MSM paper, Table 15; test in MSM paper, " in printed
    # Given the test set's answers, the rows of the paper that says so are comparable.
    assert marked(text("xor-retrieve", {"split": "test"})) == {"CCP paper, Table 4", "MSM paper, Table 15"}


def test_of_bucc_the_setting_of_the_ml_ctl_paper_is_comparable() -> None:
    setting = {"split": "training", "threshold": "best F1 on the sample split"}
    for changes, is_marked in (({}, False), ({"split": "test"}, True), ({"threshold": "another"}, True)):
        printed = text("bucc", {**setting, **changes}, languages=("de", "fr", "ru", "zh"))
        assert "published: ML-CTL paper" in printed
        assert any(table.startswith("ML-CTL paper") for table in marked(printed)) is is_marked


def test_a_result_beside_nothing_published_stands_alone() -> None:
    assert "published" not in text("xor-retrieve", {"split": "dev"}, languages=("xx",))
    scores = {"fr": {"accuracy": 0.5}}
    assert "published" not in report(BenchmarkResult("own", scores, scores["fr"]), "tiny")
