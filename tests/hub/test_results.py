"""Results on a card: tables in which the model's own row is marked, and the same row in the metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from st_xlret.hub import carry_card_data, check_card, set_card_data
from st_xlret.hub.results import ResultTable, set_results
from tests import tiny
from tests.hub.test_model_card import AccuracyEvaluator

ROWS = {"pairs only": {"fr": 0.512, "average": 0.3}, "+ CCP": {"fr": 0.512, "average": 0.381}}
PUBLISHED = {"CCP (XLM-R)": {"fr": 0.951, "el": 0.9}}


def card(folder: Path, *tables: ResultTable, **options: Any) -> str:
    model = tiny.static()
    set_card_data(model, languages=["en", "fr"])
    set_results(model, tables, **options)
    model.save_pretrained(str(folder))
    text = (folder / "README.md").read_text(encoding="utf-8")
    check_card(text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def values(text: str) -> dict[tuple[str, str], float]:
    found = ModelCard(text).data.eval_results or []
    return {(entry.dataset_name, entry.dataset_config): entry.metric_value for entry in found}


def test_the_models_own_row_is_marked_and_in_the_metadata(tmp_path: Path) -> None:
    table = ResultTable("tatoeba", "accuracy", ROWS, PUBLISHED, model_row="+ CCP", note="Both directions, averaged.")
    card(tmp_path, table, more="Commands: none.")
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert values(text) == {("tatoeba", "fr"): 0.512, ("tatoeba", "average"): 0.381}
    squeezed = "\n".join(" ".join(line.split()) for line in text.splitlines())
    for line in (
        "| system | fr | average | el |",
        "| pairs only | 51.2 | 30.0 | |",
        "| + CCP (this model) | 51.2 | 38.1 | |",
        "| CCP (XLM-R) (published) | 95.1 | | 90.0 |",
        "Both directions, averaged.",
        "Commands: none.",
    ):
        assert line in squeezed


def test_figures_of_others_are_never_the_models_own(tmp_path: Path) -> None:
    published = ResultTable("tatoeba", "accuracy", {}, PUBLISHED)
    tuned = ResultTable("tatoeba", "f1", ROWS, model_row="+ CCP", in_metadata=False)
    of_another = ResultTable("tatoeba", "recall", ROWS, in_metadata=False)
    text = card(tmp_path, published, tuned, of_another)
    assert values((tmp_path / "README.md").read_text(encoding="utf-8")) == {}
    assert "95.1" in text and text.count("(this model") == 1 and "| + CCP (this model, fine-tuned) |" in text
    assert text.count("### tatoeba") == 1


def test_scores_of_the_hosts_evaluators_stay(tmp_path: Path) -> None:
    model = tiny.static()
    set_results(model, [ResultTable("tatoeba", "accuracy", {"ours": {"fr": 0.5}})])
    AccuracyEvaluator()(model)
    derived = tiny.static()
    carry_card_data(model, derived)
    derived.save_pretrained(str(tmp_path))
    entries = ModelCard.load(tmp_path / "README.md").data.eval_results
    assert sorted(entry.metric_value for entry in entries) == [0.5, 0.625]


@pytest.mark.parametrize(("row", "named"), [("best", "'best'"), (None, "None")])
def test_a_table_must_say_which_row_is_the_models(row: str | None, named: str) -> None:
    with pytest.raises(ValueError, match=rf"{named} is not a row; the rows are \['pairs only', '\+ CCP'\]"):
        set_results(tiny.static(), [ResultTable("t", "accuracy", ROWS, model_row=row)])
