"""Our benchmarks by mteb's own front door have the scores of our evaluators."""

import mteb
import pytest

from st_xlret.evaluation import BENCHMARKS
from st_xlret.evaluation.mteb_tasks import mteb_task
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer
from tests.evaluation.samples import write_beir, write_bucc, write_lareqa, write_tatoeba, write_xor

NAMES = {"fra-eng": "fr", "deu-eng": "de", "de-en": "de"}
WRITERS = {
    "tatoeba": write_tatoeba,
    "lareqa": write_lareqa,
    "lareqa in BEIR's layout": write_beir,
    "bucc": write_bucc,
}


def evaluate(model, task) -> dict[str, dict[str, float]]:
    """Language to scores."""
    result = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, show_progress_bar=False, public_only=None
    )
    assert not result.exceptions
    [task_result] = result.task_results
    [rows] = task_result.scores.values()
    return {NAMES.get(row["hf_subset"], row["hf_subset"]): row for row in rows}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("by_language", [False, True])
def test_scores_are_those_of_our_evaluators(name, by_language, static_model, tmp_path) -> None:
    """German is turned upside down before its map turns it back: scores are low where the map is not used."""
    benchmark, folder = name.partition(" ")[0], WRITERS[name](tmp_path)
    kind, model, calibration = BENCHMARKS[benchmark], static_model, None
    if by_language:
        calibration = CalibrationLayer(16, ["en", "fr", "de"], pivot="en")
        calibration.matrix[2].fill_diagonal_(-2)  # x - 2 x
        model = export(static_model, calibration)
    scores = evaluate(model, mteb_task(benchmark, folder))
    options = {"mteb_f1": True} if benchmark == "tatoeba" else {}
    expected = (
        kind.from_directory(folder, calibration=calibration, **options)
        .evaluate(static_model)
        .scores
    )
    without = {"fr"} if benchmark == "lareqa" else set()  # mteb's LAReQA has no French questions
    assert set(scores) == set(expected) - without
    for code, values in scores.items():
        ours = {
            metric: value
            for metric, value in expected[code].items()
            if metric in values and metric != "map"
        }
        assert len(ours) >= 3 and {metric: values[metric] for metric in ours} == pytest.approx(
            ours, abs=1e-5
        )
        assert values["main_score"] == pytest.approx(
            expected[code][kind.primary or "map_at_20"], abs=1e-5
        )


@pytest.mark.filterwarnings("ignore:tokens are counted")
def test_answers_languages_and_what_is_unknown(static_model, tmp_path) -> None:
    scores = evaluate(
        static_model, mteb_task("xor-retrieve", write_xor(tmp_path), cache_dir=tmp_path / "cache")
    )
    assert {code: row["main_score"] for code, row in scores.items()} == {"fi": 0.5, "ko": 1.0}
    assert list(evaluate(static_model, mteb_task("tatoeba", write_tatoeba(tmp_path), ["de"]))) == [
        "de"
    ]
    with pytest.raises(ValueError, match="XLRetLAReQA .*'sw'"):
        mteb_task("lareqa", tmp_path, ["sw"])
