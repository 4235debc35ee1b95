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

from tests.training_scripts.train_ccp_runs import (
    WORDS,
    Train,
    assert_equal_weights,
    names,
    weights,
    write_lines,
)


def test_documents_and_pairs_give_a_model_scores_and_curves(
    train: Train, documents: Path, pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--max-steps 60 --eval-steps 20 --logging-steps 10 --max-grad-norm 0 --learning-rate 5e-2"
    results = train("--documents", documents, "--pairs", pairs, options)
    run = tmp_path / "run"
    assert names(run) == ["checkpoints", "model", "results.json", "tokenizer", "training.png"]
    assert json.loads((run / "results.json").read_text()) == results
    assert results["steps"] == 60 and results["languages"] == ["en", "fr"] and results["sentences"] == 96
    # A tenth of the pairs is put aside; pairs that share a sentence with it are left out.
    assert 100 <= results["pairs"] <= 108
    accuracy = results["held_out_pairs"]["scores"]["fr"]["accuracy"]
    assert accuracy == results["held_out_pairs"]["average"]["accuracy"] > 0.5
    assert (run / "training.png").read_bytes().startswith(b"\x89PNG")

    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    model = SentenceTransformer(str(run / "model"), device="cpu")
    assert model.encode(["the sun", "le soleil"]).shape == (2, 16)
    assert f'SentenceTransformer("{run / "model"}")' in capsys.readouterr().out
    state = json.loads((run / "checkpoints" / "checkpoint-60" / "trainer_state.json").read_text())
    assert {"loss_ccp", "loss_pairs"} <= {key for line in state["log_history"] for key in line}
    # The command that is noted can be given again.
    assert "--learning-rate 5e-2" in results["command"] and "'{\"use_cpu\": true}'" in results["command"]


def test_a_transformer_learns_masked_words_and_a_checkpoint_is_trained_on(
    train: Train, documents: Path, pairs: Path, tmp_path: Path
) -> None:
    train("--from-scratch", "tiny", "--documents", documents, "--max-steps", "8", "--logging-steps", "8")
    state = json.loads((tmp_path / "run/checkpoints/checkpoint-8/trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"loss_ccp", "loss_mlm"} <= logged and "loss_pairs" not in logged

    first = tmp_path / "run" / "model"
    train("--model", first, "--pairs", pairs, "--max-steps", "2", "--max-seq-length", "8", output="second")
    model = SentenceTransformer(str(tmp_path / "second" / "model"), device="cpu")
    assert model.max_seq_length == 8
    assert names(tmp_path / "second") == ["checkpoints", "model", "results.json", "training.png"]
    before, after = weights(first), model.state_dict()
    assert before.keys() == after.keys() and not all(torch.equal(before[k], after[k]) for k in before)


def test_a_static_checkpoint_is_trained_on(train: Train, documents: Path, tmp_path: Path) -> None:
    train("--documents", documents, "--max-steps", "2", "--save-steps", "0")
    assert "checkpoints" not in names(tmp_path / "run") or not names(tmp_path / "run/checkpoints")
    train("--model", tmp_path / "run/model", "--documents", documents, "--max-steps", "2", output="second")
    assert (tmp_path / "second" / "model" / "modules.json").is_file()


def test_the_best_model_is_kept_and_saved(
    program: ModuleType,
    train: Train,
    documents: Path,
    pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Scripted(program.TatoebaEvaluator):  # type: ignore[name-defined, misc]
        """Is happiest after the second step."""

        def __call__(self, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1) -> Any:
            metrics = super().__call__(model, output_path, epoch, steps)
            return metrics | {"pairs_average_accuracy": 1 - abs(steps - 2) / 10}

    monkeypatch.setattr(program, "TatoebaEvaluator", Scripted)
    options = "--max-steps 6 --eval-steps 1 --keep-checkpoints 1"
    train("--documents", documents, "--pairs", pairs, options)
    run = tmp_path / "run"
    assert names(run / "checkpoints") == ["checkpoint-2", "checkpoint-6", "eval"]
    assert_equal_weights(run / "model", run / "checkpoints" / "checkpoint-2")
    last, best = weights(run / "checkpoints" / "checkpoint-6"), weights(run / "model")
    assert any(not torch.equal(last[name], best[name]) for name in best)
    # The same once more from the last checkpoint, as after a disk that was full at the very end.
    again = train("--documents", documents, "--pairs", pairs, options, "--overwrite --resume")
    assert again["steps"] == 6
    assert_equal_weights(run / "model", run / "checkpoints" / "checkpoint-2")


def test_words_and_verses_are_pairs_and_test_sentences_are_left_out(train: Train, tmp_path: Path) -> None:
    words = tmp_path / "words.en-fr.tsv"
    words.write_text("".join(f"{en}\t{fr}\n" for en, fr in zip(*WORDS.values(), strict=True)), encoding="utf-8")
    verses = [f"GEN 1:{i}" for i in range(12)]
    books = [{"language": code, "sentences": WORDS[code], "verses": verses} for code in ("fr", "en")]
    for book in books:
        book["sentences"] = [f"{word} {word}" for word in book["sentences"]]
    bible = write_lines(tmp_path / "bible.jsonl", books)
    (tmp_path / "test.txt").write_text("Sun!\nmoon, moon\n")
    options = ["--dictionaries", words, "--parallel-documents", bible, "--exclude", tmp_path / "test.txt"]
    results = train(*options, "--max-steps", "1", "--evaluation-pairs", "0")
    assert results["pairs"] == 22 and results["sentences"] == 0
    with pytest.raises(ValueError, match="no word list is of the languages de, en"):
        train("--dictionaries", words, "--languages", "de", "en", output="second")


def test_help_explains_every_option(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    groups = (program.EncoderArguments, program.DataArguments, program.CCPOptions, program.RunArguments)
    options = [option for group in groups for option in fields(group)]
    assert len(options) > 40
    for option in options:
        assert f"--{option.name.replace('_', '-')}" in printed
        assert " ".join(option.metadata["help"].split()) in printed, option.name
    assert "--resume goes on from the last checkpoint" in printed
