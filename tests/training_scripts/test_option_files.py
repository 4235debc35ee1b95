"""The option files reach the scripts, and the losses that they make are those of the papers."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from tests.data.files import write_text
from tests.training_scripts.scripts import SCRIPTS, Runner, script

FOLDER = Path(__file__).parents[2] / "training_scripts" / "recipes"


def script_of(option_file: str) -> str:
    if option_file in ("documents", "two-cores"):
        return "ccp"
    return next(name for name in SCRIPTS if option_file.startswith(name))


def parsed(name: str, *arguments: str) -> dict[str, Any]:
    """All options of a script, as it reads them."""
    with (
        patch.object(script(name), "Run", side_effect=InterruptedError) as run,
        pytest.raises(InterruptedError),
    ):
        script(name).main([*arguments, "--output_dir", "runs/x", "--use_cpu"])
    return {option: value for group in run.call_args.args for option, value in vars(group).items()}


@pytest.mark.parametrize("option_file", sorted(file.stem for file in FOLDER.glob("*.yaml")))
def test_every_option_of_a_file_reaches_its_script(option_file: str, repository: Path) -> None:
    file = FOLDER / f"{option_file}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    encoder = [] if {"model", "from_scratch"} & content.keys() else ["--model", "m"]
    options = parsed(script_of(option_file), str(file), *encoder, "--seed", "7")
    assert {name: options[name] for name in content} == content and options["seed"] == 7
    assert not (repository / "runs" / "x").exists()


# DPR's program (Karpukhin et al., EMNLP 2020), which the papers follow in what they do not state,
# divides by 1.
DPR = {"temperature": 1.0, "similarity": "dot", "gather_across_devices": True, "language_mixing": 1}
# Tables 4 to 8 of MSM; its temperature is not in Eq. 1, but in the authors' program.
MSM = {
    "mu": 0.5,
    "intra_document_negatives": True,
    "num_negatives": 512,
    "heads": "separate",
    "temperature": 0.1,
}


@pytest.mark.parametrize(
    ("option_file", "loss", "options", "expected"),
    [
        (
            "ccp",
            "ccp",
            None,
            {"normalization": "asymmetric", "bank_size": 32768, "temperature": 0.1},
        ),
        ("msm", "msm", None, MSM | {"document_encoder_layers": 2, "block_size": 32}),
        ("ml-ctl", None, None, {"objective": "cz_nce", "words": True, "temperature": 0.07}),
        # Eq. 3 has a scale of its own; batches mix the language pairs (section 3.1).
        ("language-agnostic-ir", "language", None, {"reduction": "paper", "weight": 0.001}),
        ("language-agnostic-ir", "semantic", None, {"weight": 0.01, "temperature": 0.07}),
        ("retriever-nq", None, None, DPR),
        # --loss_options change them; what they do not name stays.
        (
            *(
                "ccp",
                "ccp",
                {"bank_size": 0, "head": {"normalization": "batch"}, "batches": {"window_size": 2}},
            ),
            {"bank_size": 0, "normalization": "batch", "window_size": 2, "language_smoothing": 0.7},
        ),
        (
            "msm",
            "msm",
            {"mu": 0.3, "batches": {"block_size": 3}},
            {"mu": 0.3, "block_size": 3, "num_negatives": 512},
        ),
        (
            *(
                "language-agnostic-ir",
                "language",
                {"reduction": "mean", "batches": {"language_mixing": 0.5}},
            ),
            {"reduction": "mean", "language_mixing": 0.5, "language_smoothing": 0.7},
        ),
        (
            "search",
            "query",
            {"cosine_weight": 0.0, "bank_size": 7},
            {"cosine_weight": 0.0, "bank_size": 7},
        ),
    ],
)
def test_the_losses_are_those_of_the_papers_or_as_the_options_say(
    option_file: str,
    loss: str | None,
    options: dict[str, Any] | None,
    expected: dict[str, Any],
    train: Runner,
) -> None:
    name = script_of(option_file)
    file = FOLDER / f"{option_file}.yaml"
    if options is not None:
        file = write_text(
            train.folder / "losses.yaml", json.dumps({"loss_options": {loss: options}})
        )
    texts = [
        f"{option} {value}"
        for option, value in pairwise(SCRIPTS[name].split())
        if "{data}" in value
    ]
    words = " ".join(
        [*texts, "--model {data}/encoder --languages en fr --use_cpu --max_seq_length 16"]
    ).format(data=train.data)
    made = train.built(name, file, words, tiny=False).loss
    made = made[loss] if loss else made
    settings = made.get_config_dict() | (vars(made.batches) if hasattr(made, "batches") else {})
    assert {key: settings[key] for key in expected} == expected
