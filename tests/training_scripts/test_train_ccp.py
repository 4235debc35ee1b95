"""From files of text to a model, in one command."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import TatoebaEvaluator
from tests import tiny
from tests.training_scripts.scripts import Train
from tests.training_scripts.train_ccp_runs import (
    WORDS,
    assert_equal_weights,
    checkpoints,
    names,
    weights,
    write_lines,
)


def test_documents_and_pairs_give_a_model_scores_and_curves(
    train: Train, documents: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--max_steps 60 --save_steps 20 --logging_steps 10 --max_grad_norm 0 --learning_rate 5e-2"
    results = train("--documents", documents, "--pairs", pairs, options)
    run = tmp_path / "run"
    assert {"model", "results.json", "tokenizer", "training.png"} < {*names(run)}
    assert json.loads((run / "results.json").read_text()) == results
    assert results["steps"] == 60 and results["languages"] == ["en", "fr"] and results["sentences"] == 96
    # A tenth of the pairs is put aside; pairs that share a sentence with it are left out.
    assert 100 <= results["pairs"] <= 108
    accuracy = results["held_out_pairs"]["scores"]["fr"]["accuracy"]
    assert accuracy == results["held_out_pairs"]["average"]["accuracy"] > 0.5
    assert 0 <= results["held_out_before"]["pairs_average_accuracy"] < accuracy
    assert (run / "training.png").read_bytes().startswith(b"\x89PNG")

    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    model = SentenceTransformer(str(run / "model"), device="cpu")
    assert model.encode(["the sun", "le soleil"]).shape == (2, 16)
    assert f'SentenceTransformer("{run / "model"}")' in capsys.readouterr().out
    state = json.loads((run / "checkpoint-60" / "trainer_state.json").read_text())
    assert {"loss_ccp", "loss_pairs"} <= {key for line in state["log_history"] for key in line}
    # The command that is noted can be given again.
    assert "--learning_rate 5e-2" in results["command"] and "--use_cpu" in results["command"]


def test_a_transformer_learns_masked_words_and_a_checkpoint_is_trained_on(
    train: Train, documents: Path, pairs: Path, tmp_path: Path
) -> None:
    train("--from_scratch", "tiny", "--documents", documents, "--max_steps", "8", "--logging_steps", "8")
    state = json.loads((tmp_path / "run/checkpoint-8/trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"loss_ccp", "loss_mlm"} <= logged and "loss_pairs" not in logged

    first = tmp_path / "run" / "model"
    train("--model", first, "--pairs", pairs, "--max_steps", "2", "--max_seq_length", "8", output="second")
    model = SentenceTransformer(str(tmp_path / "second" / "model"), device="cpu")
    assert model.max_seq_length == 8
    assert {"model", "results.json", "training.png"} < {*names(tmp_path / "second")}
    before, after = weights(first), model.state_dict()
    assert before.keys() == after.keys() and not all(torch.equal(before[k], after[k]) for k in before)

    train("--model", first, "--pairs", pairs, "--max_steps", "2", "--keep_trained", "0", output="third")
    assert_equal_weights(tmp_path / "third" / "model", first)


@pytest.mark.parametrize("option", ["--lora_rank 4", "--freeze_embeddings"])
def test_some_weights_of_a_checkpoint_are_trained(
    train: Train, documents: Path, pairs: Path, tmp_path: Path, option: str
) -> None:
    first = tmp_path / "first"
    tiny.transformer().save(str(first))
    shorter = "--train_seq_length 6 --precision fp32 --max_steps 4 --save_steps 2"
    train("--model", first, "--documents", documents, "--pairs", pairs, option, shorter, "--max_seq_length", "12")
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    before, after = weights(first), model.state_dict()
    assert before.keys() == after.keys() and model.max_seq_length == 12
    trained = {name for name in before if not torch.equal(before[name], after[name])}
    assert trained and not any("word_embeddings" in name for name in trained)
    assert not list((tmp_path / "run" / "model").rglob("adapter_*"))


def test_longer_batches_than_the_model_reads_are_refused(train: Train, documents: Path) -> None:
    with pytest.raises(ValueError, match="--train_seq_length 20.*16"):
        train("--from_scratch", "tiny", "--documents", documents, "--train_seq_length", "20")


def test_a_checkpoint_without_a_language_model_head_learns_no_masked_words(
    train: Train, documents: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train("--from_scratch", "tiny", "--documents", documents, "--max_steps", "1", "--mlm_ratio", "0")
    first = tmp_path / "run" / "model"
    train("--model", first, "--documents", documents, "--max_steps", "4", "--logging_steps", "4", output="second")
    lines = [record.getMessage() for record in caplog.records if "masked language" in record.getMessage()]
    assert len(lines) == 1 and str(first) in lines[0]
    state = json.loads((tmp_path / "second/checkpoint-4/trainer_state.json").read_text())
    assert "loss_mlm" not in {key for line in state["log_history"] for key in line}


def test_a_static_checkpoint_is_trained_on(train: Train, documents: Path, tmp_path: Path) -> None:
    train("--documents", documents, "--max_steps", "2", "--save_strategy", "no")
    assert not checkpoints(tmp_path / "run")
    train("--model", tmp_path / "run/model", "--documents", documents, "--max_steps", "2", output="second")
    assert (tmp_path / "second" / "model" / "modules.json").is_file()


def test_the_best_model_is_kept_and_saved(
    train: Train, documents: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = TatoebaEvaluator.__call__

    def scripted(self: Any, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1) -> Any:
        """Is happiest after the second step."""
        metrics = evaluate(self, model, output_path, epoch, steps)
        return metrics | {"pairs_average_accuracy": 1 - abs(steps - 2) / 10}

    monkeypatch.setattr(TatoebaEvaluator, "__call__", scripted)
    options = "--max_steps 6 --eval_steps 1 --save_steps 1 --save_total_limit 1"
    train("--documents", documents, "--pairs", pairs, options)
    run = tmp_path / "run"
    assert checkpoints(run) == ["checkpoint-2", "checkpoint-6"]
    assert_equal_weights(run / "model", run / "checkpoint-2")
    last, best = weights(run / "checkpoint-6"), weights(run / "model")
    assert any(not torch.equal(last[name], best[name]) for name in best)
    # The same once more from the last checkpoint, as after a disk that was full at the very end.
    again = train("--documents", documents, "--pairs", pairs, options, "--overwrite --resume")
    assert again["steps"] == 6
    assert_equal_weights(run / "model", run / "checkpoint-2")


def test_words_and_verses_are_pairs_and_test_sentences_are_left_out(train: Train, tmp_path: Path) -> None:
    words = tmp_path / "words.en-fr.tsv"
    words.write_text("".join(f"{en}\t{fr}\n" for en, fr in zip(*WORDS.values(), strict=True)), encoding="utf-8")
    verses = [f"GEN 1:{i}" for i in range(12)]
    books = [{"language": code, "sentences": WORDS[code], "verses": verses} for code in ("fr", "en")]
    for book in books:
        book["sentences"] = [f"{word} {word}" for word in book["sentences"]]
    bible = write_lines(tmp_path / "bible.jsonl", books)
    (tmp_path / "test.txt").write_text("Sun!\nmoon, moon\n")
    options = ["--pairs", words, bible, "--exclude", tmp_path / "test.txt"]
    results = train(*options, "--max_steps", "1", "--evaluation_pairs", "0")
    assert results["pairs"] == 22 and results["sentences"] == 0


def test_help_explains_every_option_of_the_script(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    printed = {}
    for flag in ("--help", "--help_all"):
        with pytest.raises(SystemExit) as stopped:
            program.main([flag])
        assert stopped.value.code == 0
        printed[flag] = " ".join(capsys.readouterr().out.split())
    groups = (program.PretrainingEncoderArguments, program.DataArguments, program.CCPArguments, program.RunArguments)
    options = [option for group in groups for option in fields(group) if option.init]
    assert len(options) <= 28
    for option in options:
        assert f"--{option.name}" in printed["--help"]
        assert " ".join(option.metadata["help"].split()) in printed["--help"], option.name
    assert "--per_device_train_batch_size" in printed["--help"]
    assert "--deepspeed" in printed["--help_all"] and "--deepspeed" not in printed["--help"]


def test_a_file_of_options_comes_first_and_is_overridden(train: Train, documents: Path, tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(f"documents: [{documents}]\nmax_steps: 3\nwindow_size: 2\nlearning_rate: 1e-3\nlazy_adam: false\n")
    assert train(file, "--max_steps 2")["steps"] == 2
