"""From files of documents to a model by masked sentences, in one command."""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformer

from st_xlret.losses import MaskedLMLoss, MSMLoss, SemanticContrastiveLoss
from tests import tiny
from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import Stop, add_callback, assert_equal_weights, names, write_lines

SIZES = "--vocabulary 150 --per_device_train_batch_size 3 --block_sentences 4 --learning_rate 1e-2 --max_seq_length 16"


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a cache of its own for the data."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_msm", monkeypatch)


@pytest.fixture
def train(program: ModuleType, tmp_path: Path) -> Train:
    """Run the script on a tiny Transformer; further options, a string of several or paths, override."""
    return runner(program, tmp_path, f"{SIZES} --use_cpu", "--from_scratch tiny")


def logged(run: Path, step: int) -> set[str]:
    state = json.loads((run / f"checkpoint-{step}/trainer_state.json").read_text())
    return {key for line in state["log_history"] for key in line if key.startswith("loss_")}


def figures(results: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in results.items() if name not in ("command", "seconds")}


def test_documents_give_a_plain_model_results_and_curves(
    train: Train, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push = "--license mit --push_to_hub --hub_model_id me/msm --push_dry_run"
    results = train("--documents", documents, "--max_steps 12 --logging_steps 4 --pooling cls", push)
    run = tmp_path / "run"
    assert {"checkpoint-12", "model", "results.json", "tokenizer", "training.png"} <= {*names(run)}
    assert json.loads((run / "results.json").read_text()) == results
    assert (results["steps"], results["languages"]) == (12, ["en", "fr"])
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
    assert "msm" in card and "MSMLoss" in card and "license: mit\n" in card
    assert documents.name in card.split("## Data")[1].split("##")[0] and str(tmp_path) not in card
    printed = capsys.readouterr().out
    assert f'SentenceTransformer("{run / "model"}")' in printed
    assert "files for me/msm" in printed and 'SentenceTransformer("me/msm")' in printed


def test_packed_units_summed_losses_and_held_out_pairs(
    train: Train, documents: Path, pairs: Path, tmp_path: Path
) -> None:
    options = "--pack_tokens 60 --sum_mlm --pairs_ratio 0 --max_steps 4 --logging_steps 2 --save_steps 2"
    results = train("--documents", documents, "--pairs", pairs, options)
    # Some of these sentences share a unit.
    assert 0 < results["sentences"] < 96
    assert 0 <= results["held_out_pairs"]["average"]["accuracy"] <= 1
    assert logged(tmp_path / "run", 4) == {"loss_msm"}


@pytest.mark.parametrize("options", ["", "--sum_mlm --mini_batch_size 3"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    program: ModuleType, train: Train, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    given = ["--documents", documents, "--max_steps 12 --save_steps 4", options]
    whole = train(*given, output="whole")
    with monkeypatch.context() as patch:
        add_callback(program, patch, Stop(7))
        with pytest.raises(SystemExit, match=r"step 7(.|\n)*checkpoint-4"):
            train(*given)
    with pytest.raises(FileExistsError, match="--resume"):
        train(*given)
    torch.manual_seed(123)
    resumed = train(*given, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")
    assert figures(resumed) == figures(whole) and whole["tokens"] > 0
    # Once more, after it was finished: there is nothing left to do, and nothing is forgotten.
    again = train(*given, "--resume --overwrite")
    assert figures(again) == figures(whole) and again["blocks"]["documents"] == 24


def test_bad_input_is_named_before_anything_is_lost(
    train: Train, documents: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = documents.read_text()
    write_lines(documents, [{"language": "en", "sentences": ["the sun and the moon", "", " "]}] * 5)
    with pytest.raises(ValueError, match="two .*sentences"):
        train("--documents", documents, "--max_steps 1")
    with documents.open("a") as file:
        file.write(kept)
    with caplog.at_level(logging.INFO):
        blocks = train("--documents", documents, "--max_steps 2", output="second")["blocks"]
    assert blocks["one_sentence_documents"] == 5 and "5 of one sentence" in caplog.text
    for options, message in (
        ("--block_sentences 1", "--block_sentences.* 1$"),
        ("--negatives -1", "--negatives.* -1$"),
        ("--documents missing.jsonl", "missing.jsonl"),
        ("--pack_tokens 2", "2 special tokens"),
        ("--model x --from_scratch tiny", "--model"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            train("--documents", documents, options, output="third")
    assert not (tmp_path / "third" / "model").exists()


def test_sentences_that_are_all_alike_train_without_a_nan(train: Train, documents: Path) -> None:
    write_lines(documents, [{"language": "en", "sentences": ["the sun shone"] * 4}] * 8)
    assert train("--documents", documents, "--max_steps 4", "--vocabulary 60")["steps"] == 4


def test_a_checkpoint_is_trained_on(train: Train, documents: Path, tmp_path: Path) -> None:
    train("--documents", documents, "--max_steps 1 --save_strategy no --pooling mean")
    first = tmp_path / "run" / "model"
    train("--model", first, "--documents", documents, "--max_steps 2 --pooling cls", output="second")
    folders = (first, tmp_path / "second/model")
    before, after = [SentenceTransformer(str(folder), device="cpu") for folder in folders]
    assert (before[1].pooling_mode, after[1].pooling_mode) == ("mean", "cls")
    assert any(not torch.equal(v, after.state_dict()[k]) for k, v in before.state_dict().items())


def test_a_static_encoder_has_no_masked_words(train: Train, documents: Path, tmp_path: Path) -> None:
    options = "--from_scratch static --features 16 --sum_mlm --lazy_adam --max_grad_norm 0 --token_dropout 0.2"
    results = train("--documents", documents, "--max_steps 4 --logging_steps 2", options)
    assert results["tokens"] > 0 and logged(tmp_path / "run", 4) == {"loss_msm"}


def test_what_is_given_decides_what_is_trained(program: ModuleType) -> None:
    def kinds(model: Any, pairs: bool = False, documents: bool = True, **options: Any) -> list[str]:
        given = tiny.documents() if documents else None, tiny.pairs() if pairs else None
        return list(program.build_datasets(model, *given, program.MSMArguments(**options)))

    model = tiny.transformer()
    assert kinds(model, pairs=True) == ["msm", "mlm", "pairs"]
    assert kinds(model, sum_mlm=True) == kinds(model, mlm_ratio=0) == kinds(tiny.static()) == ["msm"]
    assert kinds(model, pairs=True, pairs_ratio=0) == ["msm", "mlm"]
    assert kinds(model, pairs=True, documents=False) == ["pairs"]
    assert kinds(model, documents=False) == []


def test_options_reach_the_losses(program: ModuleType) -> None:
    def losses(model: Any, **options: Any) -> dict[str, Any]:
        datasets = DatasetDict({name: tiny.documents() for name in ("msm", "mlm", "pairs")})
        return program.build_losses(model, datasets, program.MSMArguments(**options))

    by_default = losses(tiny.transformer())
    assert [type(loss) for loss in by_default.values()] == [MSMLoss, MaskedLMLoss, SemanticContrastiveLoss]
    loss = by_default["msm"]
    # The encoder reads a batch of 512 sentences in parts, so that it fits small memory; a static one need not.
    assert (loss.num_negatives, loss.mini_batch_size, loss.mlm) == (512, 128, None) and loss.uses_gradient_cache
    loss = losses(tiny.transformer(), negatives=0, mini_batch_size=7, sum_mlm=True, block_sentences=5)["msm"]
    assert (loss.num_negatives, loss.mini_batch_size) == (None, 7) and isinstance(loss.mlm, MaskedLMLoss)
    assert loss.networks.document_encoders[0].max_sentences == 5
    assert losses(tiny.transformer(), mini_batch_size=0)["msm"].mini_batch_size is None


def test_defaults_and_help(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    args = program.TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    assert (args.max_steps, args.per_device_train_batch_size, args.learning_rate) == (200_000, 16, 4e-5)
    assert args.get_warmup_steps(args.max_steps) == 10_000
    assert program.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, num_train_epochs=1).max_steps == -1
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    groups = (program.PretrainingEncoderArguments, program.DataArguments, program.MSMArguments, program.RunArguments)
    for option in (option for group in groups for option in fields(group) if option.init):
        assert f"--{option.name}" in printed
        assert " ".join(option.metadata["help"].split()) in printed, option.name
