"""What all scripts promise: a plain model, its scores and curves; exact resume; options that reach the losses."""

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.training import LOSS_STATE_FILE
from tests.training_scripts.scripts import SCRIPTS, Runner, equal_weights, figures, script

PAIRS, QUESTIONS = "pairs_average_accuracy", "questions_cosine_mrr@10"
# Options beside those of `SCRIPTS`, what is logged of the losses, what is held out, and a tag of the card.
CASES: dict[str, tuple[str, set[str], set[str], str]] = {
    "ccp": ("--from_scratch tiny", {"loss_ccp", "loss_mlm", "loss_pairs"}, {PAIRS}, "ccp"),
    "msm": ("--sum_mlm", {"loss_msm", "loss_pairs"}, {PAIRS}, "msm"),
    "ml-ctl": ("", {"cz_nce", "mlm"}, {PAIRS}, "ml-ctl"),
    "language-agnostic-ir": (
        "--test {data}/xquad",
        {"loss_semantic", "loss_language", "loss_retrieval"},
        {PAIRS, QUESTIONS},
        "language-agnostic-retrieval",
    ),
    "retriever": (
        "--hard_negatives 1 --language_mixing 0 --test {data}/xquad",
        set(),
        {QUESTIONS},
        "retrieval",
    ),
    "search": (
        "--contrastive_ratio 0.4",
        {"loss_pairs", "loss_query", "loss_document", "loss_questions"},
        {PAIRS, QUESTIONS},
        "multilingual-knowledge-distillation",
    ),
    "queries": ("--keep_trained 1", set(), set(), "self-distillation"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plain_model_its_scores_and_curves_and_a_resumed_run_ends_as_the_uninterrupted_one(
    name: str, train: Runner, tmp_path: Path
) -> None:
    options, losses, scores, tag = CASES[name]
    words, run = (
        (options.format(data=train.data), "--max_steps 12 --save_steps 4"),
        tmp_path / "run",
    )
    results = train(name, *words)
    assert json.loads((run / "results.json").read_text()) == results
    assert results["versions"].keys() >= {
        "st-xlret",
        "sentence-transformers",
        "transformers",
        "torch",
    }
    assert (
        results["steps"] == 12
        and results["tokens"] > 0
        and {"en", "fr"} <= set(results["languages"])
    )
    assert results.get("held_out_before", {}).keys() == results.get("held_out", {}).keys() >= scores
    if "--test" in options:
        assert (
            set(results["xquad_r"]["scores"]) == {"en", "fr"}
            and results["xquad_r"]["average"]["mrr_at_100"] > 0
        )
    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert (
        SentenceTransformer(str(run / "model"), device="cpu").encode(["sun", "soleil"]).shape[0]
        == 2
    )
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"- {tag}\n" in card and str(run.parent) not in card
    assert (run / "training.png").read_bytes().startswith(b"\x89PNG")
    evaluated = {f"eval_{score}" for score in scores} if name != "search" else set()
    history = json.loads((run / "checkpoint-12" / "trainer_state.json").read_text())["log_history"]
    assert losses | evaluated | {"loss", "learning_rate"} <= {
        name for line in history for name in line
    }

    # As if a power cut had cut the last checkpoint short.
    whole = (run / "model").rename(tmp_path / "whole")
    (run / "results.json").unlink()
    (run / "checkpoint-12" / LOSS_STATE_FILE).unlink()
    with pytest.raises(FileExistsError, match="checkpoint-12"):
        train(name, *words)
    torch.manual_seed(123)
    resumed = train(name, *words, "--resume")
    assert equal_weights(run / "model", whole) and figures(resumed) == figures(results)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Path(str(script(name).__file__)).read_text(encoding="utf-8").splitlines()) <= 210
    with pytest.raises(SystemExit, match="0"):
        script(name).main(["--help"])
    assert "--output_dir" in capsys.readouterr().out
