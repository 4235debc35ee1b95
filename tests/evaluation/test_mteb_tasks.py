"""Our benchmarks by mteb's own front door have the scores of our evaluators."""

from __future__ import annotations

import json

import mteb
import pytest

from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.lareqa import LAReQAEvaluator
from st_xlret.evaluation.mteb_tasks import mteb_task
from st_xlret.evaluation.tatoeba import TatoebaEvaluator
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer
from tests.evaluation.samples import write_beir, write_bucc, write_lareqa

NAMES = {"fra-eng": "fr", "deu-eng": "de", "de-en": "de", "en": "en", "de": "de"}


def evaluate(model, task) -> dict[str, dict[str, float]]:
    """Language to scores."""
    result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False, public_only=None)
    assert not result.exceptions
    [task_result] = result.task_results
    [rows] = task_result.scores.values()
    return {NAMES.get(row["hf_subset"], row["hf_subset"]): row for row in rows}


@pytest.fixture
def folders(tatoeba_folder, tmp_path) -> dict:
    (tmp_path / "bucc").mkdir()
    return {
        "tatoeba": (TatoebaEvaluator, tatoeba_folder, {"mteb_f1": True}),
        "lareqa": (LAReQAEvaluator, write_lareqa(tmp_path / "lareqa"), {}),
        "lareqa in BEIR's layout": (LAReQAEvaluator, write_beir(tmp_path / "beir"), {}),
        "bucc": (BUCCEvaluator, write_bucc(tmp_path / "bucc"), {}),
    }


@pytest.mark.parametrize("name", ["tatoeba", "lareqa", "lareqa in BEIR's layout", "bucc"])
@pytest.mark.parametrize("by_language", [False, True])
def test_scores_are_those_of_our_evaluators(name, by_language, static_model, folders) -> None:
    """German is turned upside down before its map turns it back: scores are low where the map is not used."""
    kind, folder, options = folders[name]
    model, calibration = static_model, None
    if by_language:
        calibration = CalibrationLayer(16, ["en", "fr", "de"], pivot="en")
        calibration.matrix[2].fill_diagonal_(-2)  # x - 2 x
        model = export(static_model, calibration)
    found = evaluate(model, mteb_task(name.partition(" ")[0], folder))
    expected = kind.from_directory(folder, calibration=calibration, **options).evaluate(static_model).scores
    assert set(found) == set(expected) - (
        {"fr"} if kind is LAReQAEvaluator else set()
    )  # LAReQA has no French questions
    for code, scores in found.items():
        mine = {metric: value for metric, value in expected[code].items() if metric in scores and metric != "map"}
        assert len(mine) >= 3 and {metric: scores[metric] for metric in mine} == pytest.approx(mine, abs=1e-5)
        assert scores["main_score"] == pytest.approx(expected[code][kind.primary or "map_at_20"], abs=1e-5)


@pytest.mark.filterwarnings("ignore:tokens are counted")
def test_xor_retrieve_scores_answers(static_model, tmp_path) -> None:
    asked = [("a", "taxi", "fi", "Helsinki"), ("b", "hotel", "fi", "Oslo"), ("c", "bread", "ko", "1905")]
    records = [dict(zip(("id", "question", "lang", "answers"), (*one[:3], [one[3]]), strict=True)) for one in asked]
    (tmp_path / "xor_dev_retrieve_eng_span_v1_1.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    (tmp_path / "psgs_w100.tsv").write_text("id\ttext\ttitle\n1\ttaxi in Helsinki\tA\n2\tbread since 1905\tB\n")
    scores = evaluate(static_model, mteb_task("xor-retrieve", tmp_path, cache_dir=tmp_path / "cache"))
    assert {code: row["main_score"] for code, row in scores.items()} == {"fi": 0.5, "ko": 1.0}


def test_languages_splits_and_what_is_unknown(static_model, folders) -> None:
    _, tatoeba, _ = folders["tatoeba"]
    assert list(evaluate(static_model, mteb_task("tatoeba", tatoeba, ["de"]))) == ["de"]
    _, bucc, _ = folders["bucc"]
    expected = evaluate(static_model, mteb_task("bucc", bucc, ["de"]))["de"]["f1"]
    (bucc / "de-en.test.gold").unlink()
    with pytest.raises(KeyError, match="de"):
        evaluate(static_model, mteb_task("bucc", bucc, ["de"]))
    assert evaluate(static_model, mteb_task("bucc", bucc, ["de"], split="training"))["de"]["f1"] == expected
    with pytest.raises(ValueError, match="XLRetLAReQA .*'sw'"):
        mteb_task("lareqa", bucc, ["sw"])
