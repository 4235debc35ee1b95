"""What all six scripts promise: a plain model, its scores and curves; exact resume; options that reach the losses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.training import LOSS_STATE_FILE
from tests.training_scripts.scripts import SCRIPTS, Runner, checkpoints, equal_weights, figures, logged, script

PAIRS, QUESTIONS = "pairs_average_accuracy", "questions_cosine_mrr@10"
# Options beside those of `SCRIPTS`, what is logged of the losses, what is held out, and a tag of the card.
CASES: dict[str, tuple[str, set[str], set[str], str]] = {
    "ccp": ("--from_scratch tiny", {"loss_ccp", "loss_mlm", "loss_pairs"}, {PAIRS}, "ccp"),
    "ccp static": ("--token_dropout 0.2", {"loss_ccp", "loss_pairs"}, {PAIRS}, "ccp"),
    "msm": ("", {"loss_msm", "loss_mlm", "loss_pairs"}, {PAIRS}, "msm"),
    "msm summed": ("--sum_mlm --pairs_ratio 0", {"loss_msm"}, {PAIRS}, "msm"),
    "ml-ctl": ("", {"cz_nce", "mlm"}, {PAIRS}, "ml-ctl"),
    "language-agnostic-ir": (
        "--test {data}/xquad",
        {"loss_semantic", "loss_language", "loss_retrieval"},
        {PAIRS, QUESTIONS},
        "language-agnostic-retrieval",
    ),
    "retriever": ("--hard_negatives 1 --language_mixing 0 --test {data}/xquad", set(), {QUESTIONS}, "retrieval"),
    "search": (
        "--contrastive_ratio 0.4",
        {"loss_pairs", "loss_query", "loss_document", "loss_questions"},
        {PAIRS, QUESTIONS},
        "multilingual-knowledge-distillation",
    ),
}
STEPS = "--max_steps 12 --save_steps 4"


@pytest.fixture(scope="module")
def whole(script_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results and the folder of a run that nobody interrupts, for each case."""
    runs: dict[str, tuple[dict[str, Any], Path]] = {}

    def of(case: str) -> tuple[dict[str, Any], Path]:
        if case not in runs:
            train = Runner(script_data, tmp_path_factory.mktemp("whole"))
            results = train(case.split()[0], CASES[case][0].format(data=script_data), STEPS)
            runs[case] = results, train.folder / "run"
        return runs[case]

    return of


@pytest.mark.parametrize("case", CASES)
def test_a_plain_model_its_scores_and_curves(case: str, whole: Any) -> None:
    results, run = whole(case)
    options, losses, scores, tag = CASES[case]
    assert json.loads((run / "results.json").read_text()) == results
    assert results["versions"].keys() >= {"st-xlret", "sentence-transformers", "transformers", "torch"}
    assert results["steps"] == 12 and results["tokens"] > 0 and {"en", "fr"} <= set(results["languages"])
    assert results["held_out_before"].keys() == results["held_out"].keys() >= scores
    if "--test" in options:
        assert set(results["xquad_r"]["scores"]) == {"en", "fr"} and results["xquad_r"]["average"]["mrr_at_100"] > 0
    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert SentenceTransformer(str(run / "model"), device="cpu").encode(["sun", "soleil"]).shape[0] == 2
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"- {tag}\n" in card and str(run.parent) not in card
    assert (run / "training.png").read_bytes().startswith(b"\x89PNG")
    evaluated = {f"eval_{score}" for score in scores} if case != "search" else set()
    assert losses | evaluated | {"loss", "learning_rate"} <= logged(run / "checkpoint-12")


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_ends_as_the_uninterrupted_one(case: str, whole: Any, train: Runner, tmp_path: Path) -> None:
    results, folder = whole(case)
    name, given, run = case.split()[0], (CASES[case][0].format(data=train.data), STEPS), tmp_path / "run"
    with train.stopped(name, 6), pytest.raises(SystemExit, match=r"(?s)step 6: KeyboardInterrupt.*checkpoint-4"):
        train(name, *given)
    assert checkpoints(run) == ["checkpoint-4"] and not (run / "model").exists()
    with pytest.raises(FileExistsError, match="checkpoints"):
        train(name, *given)
    # As if the next checkpoint had been cut short by a power cut.
    shutil.copytree(run / "checkpoint-4", run / "checkpoint-8", ignore=shutil.ignore_patterns(LOSS_STATE_FILE))
    torch.manual_seed(123)
    resumed = train(name, *given, "--resume")
    assert equal_weights(run / "model", folder / "model") and figures(resumed) == figures(results)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Path(str(script(name).__file__)).read_text(encoding="utf-8").splitlines()) <= 130
    with pytest.raises(SystemExit, match="0"):
        script(name).main(["--help"])
    printed = capsys.readouterr().out
    assert "--output_dir" in printed and "--temperature" in printed or "--block_sentences" in printed


@pytest.mark.parametrize(
    ("name", "loss", "options", "expected"),
    [
        (
            *("ccp", "ccp", {"bank_size": 0, "head": {"normalization": "batch"}, "batches": {"window_size": 2}}),
            {"bank_size": 0, "normalization": "batch", "window_size": 2, "language_smoothing": 0.7},
        ),
        ("msm", "msm", {"mu": 0.3, "batches": {"block_size": 3}}, {"mu": 0.3, "block_size": 3}),
        (
            *("ml-ctl", "pairs", {"gather_across_devices": False, "batches": {"language_mixing": 0.5}}),
            {"gather_across_devices": False, "language_mixing": 0.5, "language_smoothing": 0.7},
        ),
        (
            *("language-agnostic-ir", "language", {"reduction": "mean", "batches": {"language_mixing": 0.5}}),
            {"reduction": "mean", "language_mixing": 0.5, "language_smoothing": 0.7},
        ),
        ("search", "query", {"cosine_weight": 0.0, "bank_size": 7}, {"cosine_weight": 0.0, "bank_size": 7}),
    ],
)
def test_loss_options_reach_the_losses(
    name: str, loss: str, options: dict[str, Any], expected: dict[str, Any], train: Runner
) -> None:
    file = train.folder / "losses.yaml"
    file.write_text(json.dumps({"loss_options": {loss: options}}))
    made = train.built(name, file, "--save_strategy no").loss
    made = made[loss] if isinstance(made, dict) else made
    settings = made.get_config_dict() | vars(made.batches)
    assert {key: settings[key] for key in expected} == expected
