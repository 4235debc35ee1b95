"""The files of options for fine-tuning train what the papers do, held against a table taken from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.options import own_options, parse
from tests import tiny
from training_scripts import train_retriever as program

GROUPS = [
    program.EncoderArguments,
    program.QuestionArguments,
    program.RetrieverArguments,
    program.LazyAdamArguments,
    program.RunArguments,
    program.TrainingArguments,
]
# DPR's program (Karpukhin et al., EMNLP 2020, section 5, and its option file for Natural Questions): the papers follow
# it in what they do not state.
DPR = {
    "similarity": "dot",
    "temperature": 1.0,
    "hard_negatives": 1,
    "max_seq_length": 256,
    "warmup_steps": 1237,
    "lr_scheduler_type": "linear",
    "weight_decay": 0,
    "max_grad_norm": 2.0,
    "optim": "adamw_torch",
}
TWO = {"two_encoders": True, "pooling": "cls"}
# A second stage has the encoders of the first.
SECOND = {"two_encoders": False, "pooling": None, "language_smoothing": 1, "language_mixing": 1}
# Epochs, mini-batch and learning rate: MSM, appendix A.1; CCP, section 4.3.
PAPERS: dict[str, tuple[tuple[float, int, float], dict[str, Any]]] = {
    "nq": ((40, 128, 2e-5), DPR | TWO),
    "nq-ccp": ((20, 48, 1e-5), DPR | TWO),
    "ms-marco": ((3, 64, 2e-5), DPR | TWO),
    "mr-tydi": ((40, 128, 1e-5), DPR | SECOND),
    "xor": ((40, 128, 2e-5), DPR | SECOND),
    "mewsli-x": ((2, 16, 2e-5), {"pooling": "cls"}),
    "squad": ((3, 4, 2e-5), {"pooling": "cls", "positives": "sentence"}),
}


@pytest.mark.parametrize("name", PAPERS)
def test_the_recipe_is_the_papers(name: str, repository: Path, tmp_path: Path) -> None:
    file = repository / "training_scripts" / "recipes" / f"retriever-{name}.yaml"
    given = ["--output_dir", str(tmp_path), "--use_cpu", "--model", "runs/msm/model", "--retrieval", "data"]
    found: dict[str, Any] = {}
    for group in parse(GROUPS, [str(file), *given]):
        found |= vars(group)
    (epochs, batch, rate), others = PAPERS[name]
    assert (found["num_train_epochs"], found["per_device_train_batch_size"]) == (epochs, batch)
    assert found["learning_rate"] == rate and found["max_steps"] == -1
    assert {option: found[option] for option in others} == others


def test_every_recipe_is_held_against_a_paper(repository: Path) -> None:
    files = (repository / "training_scripts" / "recipes").glob("retriever-*.yaml")
    assert {file.stem.removeprefix("retriever-") for file in files} == set(PAPERS)


def test_the_loss_is_dprs() -> None:
    loss: Any = program.build_loss(tiny.static(), program.RetrieverArguments(similarity="dot", temperature=1.0))
    settings = loss.get_config_dict()
    assert (settings["scale"], settings["similarity_fct"], settings["gather_across_devices"]) == (
        1.0,
        "dot_score",
        True,
    )
    assert settings["directions"] == ("query_to_doc",)


def test_the_script_has_few_options_of_its_own() -> None:
    assert len(own_options(GROUPS)) <= 30
