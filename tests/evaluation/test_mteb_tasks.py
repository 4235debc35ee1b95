"""Our benchmarks by mteb's own front door have the scores of our evaluators."""

from pathlib import Path
from typing import Any

import mteb
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import BENCHMARKS
from st_xlret.evaluation.mteb_tasks import mteb_task
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer
from tests.evaluation.samples import SAMPLES, write_beir, write_lareqa, write_tatoeba, write_xor

WRITERS = {name: SAMPLES[name].write for name, kind in BENCHMARKS.items() if kind.title}
WRITERS["lareqa in BEIR's layout"] = write_beir
LANGUAGES_OF_SUBSETS = {"fra-eng": "fr", "deu-eng": "de", "de-en": "de"}
IN_NO_SUBSET = {"lareqa": "fr", "mewsli-x": "fr"}
"""Languages of the samples that the benchmark does not have."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:tokens are counted"),
    pytest.mark.filterwarnings("ignore:the model has no map"),
]


def evaluate(model: SentenceTransformer, task: Any) -> dict[str, dict[str, float]]:
    """Language to scores."""
    result = mteb.evaluate(
        model, task, cache=None, co2_tracker=False, show_progress_bar=False, public_only=None
    )
    assert not result.exceptions
    [task_result] = result.task_results
    [rows] = task_result.scores.values()
    scores = {}
    for row in rows:
        subset = row["hf_subset"]
        scores[LANGUAGES_OF_SUBSETS.get(subset, subset)] = row
    return scores


def turned_german() -> CalibrationLayer:
    """A map for each language; that of German turns it upside down."""
    codes = ["en", "fr", "de", "fi", "ko", "sw", "te"]
    calibration = CalibrationLayer(16, codes, pivot="en")
    calibration.matrix[codes.index("de")].fill_diagonal_(-2)  # x - 2 x
    return calibration


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("by_language", [False, True])
def test_scores_are_those_of_our_evaluators(
    name: str, by_language: bool, static_model: SentenceTransformer, tmp_path: Path
) -> None:
    benchmark = name.partition(" ")[0]
    kind = BENCHMARKS[benchmark]
    folder = WRITERS[name](tmp_path)
    options: dict[str, Any] = {"mteb_f1": True} if benchmark == "tatoeba" else {}
    model = static_model
    if by_language:
        options["calibration"] = turned_german()
        model = export(static_model, turned_german())
    expected = kind.from_directory(folder, **options).evaluate(static_model).scores
    expected.pop(IN_NO_SUBSET.get(benchmark, ""), None)

    scores = evaluate(model, mteb_task(benchmark, folder))

    assert set(scores) == set(expected)
    for code, values in expected.items():
        values.pop("map", None)  # of the whole ranking, which a rounding may change
        of_mteb = {metric: scores[code][metric] for metric in values}
        assert of_mteb == pytest.approx(values, abs=1e-5)
        assert scores[code]["main_score"] == pytest.approx(values[kind.primary], abs=1e-5)


def test_a_model_that_was_trained_since_is_measured_anew(
    static_model: SentenceTransformer, tmp_path: Path
) -> None:
    folder = write_tatoeba(tmp_path)
    task = mteb_task("tatoeba", folder, ["de"])
    before = evaluate(static_model, task)
    for weight in static_model.parameters():
        weight.data[::2] *= -1
    after = evaluate(static_model, task)
    assert after != before
    assert after == evaluate(static_model, mteb_task("tatoeba", folder, ["de"]))


def test_some_languages_alone(static_model: SentenceTransformer, tmp_path: Path) -> None:
    task = mteb_task("tatoeba", write_tatoeba(tmp_path), ["de"])
    assert list(evaluate(static_model, task)) == ["de"]


def test_scores_of_answers(static_model: SentenceTransformer, tmp_path: Path) -> None:
    scores = evaluate(static_model, mteb_task("xor-retrieve", write_xor(tmp_path)))
    assert scores["fi"]["main_score"] == 0.5
    assert scores["ko"]["main_score"] == 1.0


def test_an_unknown_language_and_an_unknown_benchmark_are_named(tmp_path: Path) -> None:
    write_lareqa(tmp_path)
    with pytest.raises(ValueError, match="XLRetLAReQA .*'sw'"):
        mteb_task("lareqa", tmp_path, ["sw"])
    with pytest.raises(ValueError, match="'retrieval'.*'lareqa'"):
        mteb_task("retrieval", tmp_path)


def test_languages_are_written_as_mteb_writes_them() -> None:
    metadata = mteb_task("mrtydi", "nowhere").metadata
    assert metadata.eval_langs["ko"] == ["kor-Hang"]
    assert metadata.eval_langs["ar"] == ["ara-Arab"]
    assert mteb_task("bucc", "nowhere").metadata.eval_langs["zh-en"] == ["zho-Hans", "eng-Latn"]
