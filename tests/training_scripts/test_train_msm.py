"""From files of documents to a model, by masked sentences or by a rival, in one command."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.training_scripts.scripts import load_script
from tests.training_scripts.train_ccp_runs import Stop, assert_equal_weights, names, write_lines

Train = Callable[..., dict[str, Any]]
SIZES = "--vocabulary 150 --batch-size 3 --block-sentences 4 --span-sentences 3 --bank-size 8 --learning-rate 1e-2"


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a cache of its own for the data."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_msm", monkeypatch)


@pytest.fixture
def train(program: ModuleType, tmp_path: Path) -> Train:
    """Run the script on a tiny Transformer; further options, a string of several or paths, override."""

    def run(*options: str | Path, output: str = "run") -> dict[str, Any]:
        given = [*SIZES.split(), "--max-seq-length", "16", "--output", str(tmp_path / output)]
        given += ["--training-arguments", '{"use_cpu": true}']
        for option in options:
            given += option.split() if isinstance(option, str) else [str(option)]
        if not {"--model", "--from-scratch"} & set(given):
            given += ["--from-scratch", "tiny"]
        return program.main(given)

    return run


def logged(run: Path, step: int) -> set[str]:
    state = json.loads((run / f"checkpoints/checkpoint-{step}/trainer_state.json").read_text())
    return {key for line in state["log_history"] for key in line if key.startswith("loss_")}


def test_documents_give_a_plain_model_results_and_curves(
    train: Train, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = train("--documents", documents, "--max-steps 12 --logging-steps 4")
    run = tmp_path / "run"
    assert names(run) == ["checkpoints", "model", "results.json", "tokenizer", "training.png"]
    assert json.loads((run / "results.json").read_text()) == results
    assert (results["steps"], results["objective"], results["languages"]) == (12, "msm", ["en", "fr"])
    # 12 steps of 12 sentences, of at most 16 tokens.
    assert 12 * 12 * 3 < results["tokens"] <= 12 * 12 * 16
    assert results["blocks"]["documents"] == 24 and results["blocks"]["one_sentence_documents"] == 0
    assert logged(run, 12) == {"loss_msm", "loss_mlm"}
    modules = json.loads((run / "model" / "modules.json").read_text())
    assert [module["type"].rsplit(".", 1)[1] for module in modules] == ["Transformer", "Pooling"]
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    model = SentenceTransformer(str(run / "model"), device="cpu")
    assert model[1].pooling_mode == "cls" and model.encode(["the sun"]).shape == (1, 32)
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert "msm" in card and "MSMLoss" in card
    assert f'SentenceTransformer("{run / "model"}")' in capsys.readouterr().out


@pytest.mark.parametrize("objective", ["crop", "ict", "ccp", "mlm"])
def test_the_rivals_learn_of_the_same_documents(train: Train, documents: Path, tmp_path: Path, objective: str) -> None:
    results = train("--documents", documents, "--max-steps 6 --logging-steps 6 --pooling mean --objective", objective)
    assert results["objective"] == objective and (results["blocks"] is None) == (objective in ("ccp", "mlm"))
    assert logged(tmp_path / "run", 6) == {f"loss_{objective}", "loss_mlm"}


def test_packed_units_summed_losses_and_held_out_pairs(
    train: Train, documents: Path, pairs: Path, tmp_path: Path
) -> None:
    options = "--pack-tokens 60 --mlm sum --pairs-weight 0 --max-steps 4 --logging-steps 2 --eval-steps 2"
    results = train("--documents", documents, "--pairs", pairs, options, "--projection shared --document-layers 1")
    # Some of these sentences share a unit.
    assert 0 < results["sentences"] < 96
    assert 0 <= results["held_out_pairs"]["average"]["accuracy"] <= 1
    assert logged(tmp_path / "run", 4) == {"loss_msm"}


def test_an_interrupted_run_goes_on_and_ends_as_an_uninterrupted_one(
    program: ModuleType, train: Train, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--documents", documents, "--max-steps 12 --save-steps 4"]
    train(*options, output="whole")
    build = program.build_msm_trainer
    stop = Stop(7)
    monkeypatch.setattr(program, "build_msm_trainer", lambda *a, **o: build(*a, **o, callbacks=(stop,)))
    with pytest.raises(SystemExit, match=r"stopped at step 7: KeyboardInterrupt\n.*checkpoint-4 is whole"):
        train(*options)
    with pytest.raises(FileExistsError, match="use --resume"):
        train(*options)
    assert train(*options, "--resume")["steps"] == 12
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")
    # Once more, after it was done: there is nothing left to do.
    assert train(*options, "--resume --overwrite")["steps"] == 12


def test_bad_input_is_named_before_anything_is_lost(
    train: Train, documents: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "the sun and the moon"
    kept = documents.read_text()
    write_lines(documents, [{"language": "en", "sentences": [text, "", " "]}] * 5)
    with pytest.raises(ValueError, match="no language has 1 documents of two sentences"):
        train("--documents", documents, "--max-steps 1")
    with documents.open("a") as file:
        file.write(kept)
    with caplog.at_level(logging.INFO):
        blocks = train("--documents", documents, "--max-steps 2", output="second")["blocks"]
    assert blocks["one_sentence_documents"] == 5 and "5 of one sentence" in caplog.text
    for options, message in (
        ("--objective ict --mlm sum", "--mlm sum goes with --objective msm alone"),
        ("--block-sentences 1", "--block-sentences must be at least 2, got 1"),
        ("--documents missing.jsonl", "no such file or directory: 'missing.jsonl'"),
        ("--pack-tokens 2", "max_tokens must be above the 2 special tokens"),
        ("--push-to-hub a/b/c", "'a/b/c' is not a repository"),
        ("--model x --from-scratch tiny", "give either --model"),
    ):
        with pytest.raises(ValueError, match=message):
            train("--documents", documents, options, output="third")
    assert not names(tmp_path / "third" / "model")


def test_sentences_that_are_all_alike_train_without_a_nan(train: Train, documents: Path) -> None:
    write_lines(documents, [{"language": "en", "sentences": ["the sun shone"] * 4}] * 8)
    results = train("--documents", documents, "--max-steps 4", "--vocabulary 60")
    assert results["steps"] == 4


def test_a_checkpoint_is_trained_on_with_its_pooling_set(train: Train, documents: Path, tmp_path: Path) -> None:
    train("--documents", documents, "--max-steps 1 --save-steps 0 --pooling mean")
    first = tmp_path / "run" / "model"
    train("--model", first, "--documents", documents, "--max-steps 2", output="second")
    before, after = (SentenceTransformer(str(folder), device="cpu") for folder in (first, tmp_path / "second/model"))
    assert (before[1].pooling_mode, after[1].pooling_mode) == ("mean", "cls")
    assert any(not torch.equal(v, after.state_dict()[k]) for k, v in before.state_dict().items())


def test_defaults_are_the_papers_and_help_explains_every_option(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = program.MSMRunArguments(output="x")
    assert (run.max_steps, run.batch_size, run.learning_rate) == (200_000, 16, 4e-5)
    assert run.warmup_ratio * run.max_steps == 10_000
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    groups = (program.EncoderArguments, program.DataArguments, program.MSMOptions, program.MSMRunArguments)
    for option in (option for group in groups for option in fields(group)):
        assert f"--{option.name.replace('_', '-')}" in printed
        assert " ".join(option.metadata["help"].split()) in printed, option.name
    assert "--resume goes on from the last checkpoint" in printed
