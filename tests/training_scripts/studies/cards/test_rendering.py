"""The cards of this repository hold what the runs gave."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from st_xlret.hub import check_card
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer
from tests import tiny
from tests.docs.blocks import python_blocks
from training_scripts.studies.cards.rendering import (
    DataSource,
    ResultTable,
    table_from_evaluations,
    write_model_card,
)

CITATION = "@article{ccp,\n  title = {Contrastive Context Prediction}\n}"
NUMBER = re.compile(r"-?[\d.]+")
RUN = {
    "benchmark": "tatoeba",
    "model": "runs/ccp/model",
    "scores": {"fr": {"accuracy": 0.512, "accuracy_to_en": 0.5}, "de": {"accuracy": 0.25}},
    "average": {"accuracy": 0.381},
}


def card(path: Path, **changes: Any) -> str:
    table = table_from_evaluations(
        {"pairs only": {**RUN, "average": {"accuracy": 0.3}}, "+ CCP": RUN},
        "accuracy",
        published={"CCP (XLM-R)": {"fr": 0.951, "el": 0.9}},
        note="Both directions, averaged.",
    )
    table = replace(table, model_row="+ CCP")
    options: dict[str, Any] = {
        "model_name": "me/ccp",
        "title": "CCP from scratch",
        "summary": "A retriever.",
        "languages": ["en", "fr", "de"],
        "data": [DataSource("Books | old", "public domain", "documents", url="books.example")],
        "training_command": "python training_scripts/train_ccp.py --output runs/ccp",
        "results": [table],
        "citations": [CITATION, CITATION + "\n"],
        "limits": ["Short sentences only."],
        "evaluation_commands": ["python evaluation/run.py --model runs/ccp/model --benchmark tatoeba"],
        "seconds": {"training": 1234.4},
        "hardware": "2 CPU cores",
        "license": "apache-2.0",
        "tags": ["ccp"],
    }
    return write_model_card(path, **{**options, **changes})


def test_the_card_holds_what_the_run_gave(tmp_path: Path) -> None:
    text = card(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == text
    for line in (
        "# CCP from scratch",
        'model = SentenceTransformer("me/ccp")',
        "| [Books \\| old](books.example) | public domain | documents |",
        "python training_scripts/train_ccp.py --output runs/ccp",
        "Hardware: 2 CPU cores.",
        "| training | 1,234 |",
        "| system | fr | de | average | el |",
        "| pairs only | 51.2 | 25.0 | 30.0 | |",
        "| + CCP | 51.2 | 25.0 | 38.1 | |",
        "| CCP (XLM-R) (published) | 95.1 | | | 90.0 |",
        "Both directions, averaged.",
        "- Short sentences only.",
    ):
        assert line in re.sub(" +", " ", text)
    assert text.count("@article{ccp") == 1


def test_the_metadata_is_what_the_hub_reads(tmp_path: Path) -> None:
    data = ModelCard(card(tmp_path)).data
    assert data.language == ["en", "fr", "de"]
    assert data.license == "apache-2.0"
    assert data.library_name == "sentence-transformers"
    assert {"st-xlret", "ccp"} <= set(data.tags)
    values = {result.dataset_config: result.metric_value for result in data.eval_results}
    assert values == {"fr": 0.512, "de": 0.25, "average": 0.381}
    assert data.eval_results[0].dataset_name == "tatoeba"


def test_published_figures_are_never_the_models_own(tmp_path: Path) -> None:
    text = card(tmp_path, results=[ResultTable("tatoeba", "accuracy", {}, {"CCP": {"fr": 0.951}})])
    assert "95.1" in text
    assert ModelCard(text).data.eval_results is None


def test_tables_of_one_benchmark_stand_together_and_may_be_of_another_model(tmp_path: Path) -> None:
    tables = [
        ResultTable("tatoeba", "accuracy", {"a": {"fr": 0.5}}),
        ResultTable("tatoeba", "f1", {"a": {"fr": 0.4}}, in_metadata=False),
    ]
    text = card(tmp_path, results=tables)
    assert text.count("### tatoeba") == 1 and "Metric: f1 (%)" in text
    assert [result.metric_type for result in ModelCard(text).data.eval_results] == ["accuracy"]


def test_a_file_name_is_taken_as_it_is(tmp_path: Path) -> None:
    card(tmp_path / "cards" / "ccp.md")
    assert [p.name for p in (tmp_path / "cards").iterdir()] == ["ccp.md"]


def run_usage(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the example of a card, on a tiny model under whatever name it loads."""
    model = tiny.static()
    if "task=" in text:
        model = export(model, CalibrationLayer(8, ["en", "fr"], pivot="en"))
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", lambda name: model)
    (block,) = python_blocks(text)
    names: dict[str, Any] = {}
    exec(compile(block.code, "card", "exec"), names)
    return names


@pytest.mark.parametrize("language", [None, "fr"])
def test_the_example_of_usage_runs(tmp_path: Path, language: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = card(tmp_path, task_language=language)
    assert ('task="fr"' in text) == (language is not None)
    assert len(run_usage(text, monkeypatch)["passages"]) == (1 if language else 2)


@pytest.mark.parametrize("name", ["ccp", "language-agnostic-ir", "ml-ctl", "msm"])
def test_the_cards_of_this_repository(name: str, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (repository / "model_cards" / f"{name}.md").read_text(encoding="utf-8")
    check_card(text)
    run_usage(text, monkeypatch)
    # The metadata is a row of a table, and with that of one system.
    values: dict[tuple[str, str], list[float]] = {}
    for entry in ModelCard(text).data.eval_results:
        values.setdefault((entry.dataset_name, entry.metric_type), []).append(100 * entry.metric_value)
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("|")]
    assert values
    for of_model in values.values():
        cells = [row[2 : 2 + len(of_model)] for row in rows]
        numbers = [[float(cell) for cell in row] for row in cells if all(map(NUMBER.fullmatch, row))]
        assert any(row == pytest.approx(of_model, abs=0.051) for row in numbers), of_model


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="languages is empty"):
        card(tmp_path, languages=[])
    with pytest.raises(ValueError, match="'best' is not a row"):
        card(tmp_path, results=[ResultTable("t", "accuracy", {"a": {"fr": 1.0}}, model_row="best")])
    with pytest.raises(ValueError, match=r"None is not a row; the rows are \['model', 'rival'\]"):
        card(tmp_path, results=[ResultTable("t", "accuracy", {"model": {"fr": 1.0}, "rival": {"fr": 0.5}})])
    with pytest.raises(ValueError, match="'f1'.*'accuracy'"):
        table_from_evaluations({"a": RUN}, "f1")
    with pytest.raises(ValueError, match=r"\['bucc', 'tatoeba'\]"):
        table_from_evaluations({"a": RUN, "b": {**RUN, "benchmark": "bucc"}}, "accuracy")
    assert list(tmp_path.iterdir()) == []
