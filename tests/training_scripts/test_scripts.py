"""What all scripts promise: a plain model, its scores and curves, exact resume, and a help."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.training import LOSS_STATE_FILE
from tests.training_scripts.scripts import SCRIPTS, Runner, equal_weights, figures, script

PAIRS = "pairs_average_accuracy"
QUESTIONS = "questions_cosine_mrr@10"


@dataclass(frozen=True)
class Case:
    """A script, options beside those of `SCRIPTS`, and what the run leaves behind."""

    name: str
    tag: str
    options: str = ""
    logged: set[str] = field(default_factory=set)
    held_out: set[str] = field(default_factory=set)


CASES = [
    Case("ccp", "ccp", "--from_scratch tiny", {"loss_ccp", "loss_mlm", "loss_pairs"}, {PAIRS}),
    Case("msm", "msm", "--sum_mlm", {"loss_msm", "loss_pairs"}, {PAIRS}),
    Case("ml-ctl", "ml-ctl", "", {"cz_nce", "mlm"}, {PAIRS}),
    Case(
        "language-agnostic-ir",
        "language-agnostic-retrieval",
        "--test {data}/xquad",
        {"loss_semantic", "loss_language", "loss_retrieval"},
        {PAIRS, QUESTIONS},
    ),
    Case(
        "retriever",
        "retrieval",
        "--hard_negatives 1 --language_mixing 0 --test {data}/xquad",
        held_out={QUESTIONS},
    ),
    Case(
        "search",
        "multilingual-knowledge-distillation",
        "--contrastive_ratio 0.4",
        {"loss_pairs", "loss_query", "loss_document", "loss_questions"},
        {PAIRS, QUESTIONS},
    ),
    Case("queries", "self-distillation", "--keep_trained 1"),
]


def check_results(results: dict[str, Any], case: Case, folder: Path) -> None:
    assert json.loads((folder / "results.json").read_text()) == results
    libraries = {"st-xlret", "sentence-transformers", "transformers", "torch"}
    assert libraries <= results["versions"].keys()
    assert results["steps"] == 12
    assert results["tokens"] > 0
    assert {"en", "fr"} <= set(results["languages"])
    before = results.get("held_out_before", {})
    after = results.get("held_out", {})
    assert before.keys() == after.keys()
    assert case.held_out <= after.keys()
    if "--test" in case.options:
        assert set(results["xquad_r"]["scores"]) == {"en", "fr"}
        assert results["xquad_r"]["average"]["mrr_at_100"] > 0


def check_model(folder: Path, case: Case) -> None:
    """The model is one of the host's, and its card has a tag and no path."""
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        assert module["type"].startswith("sentence_transformers.")
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.encode(["sun", "soleil"]).shape[0] == 2
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"- {case.tag}\n" in card
    assert str(folder.parents[1]) not in card


def check_log(folder: Path, case: Case) -> None:
    """What is logged of losses and of held-out texts; the search encoder measures at the end."""
    content = json.loads((folder / "checkpoint-12" / "trainer_state.json").read_text())
    logged = set()
    for line in content["log_history"]:
        logged |= line.keys()
    assert case.logged | {"loss", "learning_rate"} <= logged
    if case.name != "search":
        assert {f"eval_{score}" for score in case.held_out} <= logged
    assert (folder / "training.png").read_bytes().startswith(b"\x89PNG")


def case_of_tests(case: Case) -> Any:
    """One script runs in `make test`, the others in `make test-all`."""
    marks = [] if case.name == "ccp" else [pytest.mark.slow]
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", map(case_of_tests, CASES))
def test_what_a_run_leaves_and_a_resumed_run_ends_as_the_uninterrupted_one(
    case: Case, train: Runner, tmp_path: Path
) -> None:
    options = f"{case.options} --max_steps 12 --save_steps 4".format(data=train.data)
    folder = tmp_path / "run"

    results = train(case.name, options)

    check_results(results, case, folder)
    check_model(folder / "model", case)
    check_log(folder, case)

    # As if a power cut had cut the last checkpoint short.
    whole = (folder / "model").rename(tmp_path / "whole")
    (folder / "results.json").unlink()
    (folder / "checkpoint-12" / LOSS_STATE_FILE).unlink()
    with pytest.raises(FileExistsError, match="checkpoint-12"):
        train(case.name, options)
    torch.manual_seed(123)
    resumed = train(case.name, options, "--resume")

    assert equal_weights(folder / "model", whole)
    assert figures(resumed) == figures(results)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(str(script(name).__file__)).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    with pytest.raises(SystemExit, match="0"):
        script(name).main(["--help"])
    assert "--output_dir" in capsys.readouterr().out


def test_each_script_has_a_case() -> None:
    assert {case.name for case in CASES} == set(SCRIPTS)
