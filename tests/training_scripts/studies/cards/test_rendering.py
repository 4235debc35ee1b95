"""The cards of this repository hold what the runs gave."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from training_scripts.studies.cards.rendering import (
    DataSource,
    ResultTable,
    table_from_evaluations,
    write_model_card,
)

CITATION = "@article{ccp,\n  title = {Contrastive Context Prediction}\n}"
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


def test_a_calibrated_models_usage_names_the_language(tmp_path: Path) -> None:
    assert 'model.encode(texts, task="fr")' in card(tmp_path, task_language="fr")


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="languages is empty"):
        card(tmp_path, languages=[])
    with pytest.raises(ValueError, match="'best' is not a row"):
        card(tmp_path, results=[ResultTable("t", "accuracy", {"a": {"fr": 1.0}}, model_row="best")])
    with pytest.raises(ValueError, match="'f1'.*'accuracy'"):
        table_from_evaluations({"a": RUN}, "f1")
    with pytest.raises(ValueError, match=r"\['bucc', 'tatoeba'\]"):
        table_from_evaluations({"a": RUN, "b": {**RUN, "benchmark": "bucc"}}, "accuracy")
    assert list(tmp_path.iterdir()) == []
