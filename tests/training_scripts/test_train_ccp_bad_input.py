"""Bad input to train_ccp.py is named, before anything is lost."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from st_xlret.data import DataError
from st_xlret.hub import PushError
from tests.training_scripts.scripts import Train
from tests.training_scripts.train_ccp_runs import (
    WORDS,
    names,
    write_lines,
)


def test_a_model_in_the_output_folder_is_kept(train: Train, documents: Path, tmp_path: Path) -> None:
    train("--documents", documents, "--max_steps", "1", "--save_strategy", "no")
    before = (tmp_path / "run/model/model.safetensors").read_bytes()
    # Before anything is read: the documents do not even exist.
    with pytest.raises(FileExistsError, match="already holds a model; use --overwrite"):
        train("--documents", "missing.jsonl", "--max_steps", "1")
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == before
    train("--documents", documents, "--max_steps", "1", "--save_strategy", "no", "--overwrite", "--seed", "1")
    assert (tmp_path / "run/model/model.safetensors").read_bytes() != before


def test_bad_lines_are_named_or_counted(
    train: Train, documents: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    lines = documents.read_text().splitlines()
    lines[2:2] = ['{"language": "en", "sentences": [', '{"language": "xx1", "sentences": ["a", "b"]}']
    documents.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"{documents}, line 3: not valid JSON.*--skip_bad_lines"):
        train("--documents", documents, "--max_steps", "1")
    assert not (tmp_path / "run" / "model").exists()
    with caplog.at_level(logging.INFO):
        assert train("--documents", documents, "--max_steps", "1", "--skip_bad_lines")["sentences"] == 96
    assert "bad lines skipped: 2" in caplog.text and "line 4: unknown language code 'xx1'" in caplog.text


def test_unknown_languages_are_named(train: Train, documents: Path) -> None:
    with pytest.raises(ValueError, match="unknown language code 'xx1'"):
        train("--documents", documents, "--languages", "en", "xx1")
    write_lines(documents, [{"language": "english", "sentences": ["a", "b"]}])
    with pytest.raises(DataError, match=r"documents.jsonl, line 1: unknown language code 'english'"):
        train("--documents", documents)


def test_documents_without_sentences_are_counted_and_without_any_refused(
    train: Train, documents: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty = [{"language": "en", "sentences": []}, {"language": "en", "text": " "}]
    with documents.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in empty)
    with caplog.at_level(logging.INFO):
        train("--documents", documents, "--max_steps", "1")
    english = next(line for line in caplog.text.splitlines() if line.startswith("en "))
    assert english.split() == ["en", "12", "48", "0", "2", "0", "0"]
    write_lines(documents, empty)
    with pytest.raises(DataError, match="no documents left to train on"):
        train("--documents", documents, output="second")


def test_documents_of_one_sentence_have_no_windows(train: Train, documents: Path) -> None:
    single = [{"language": "en", "sentences": [" ".join(WORDS["en"][i:])]} for i in range(9)]
    write_lines(documents, single)
    with pytest.raises(ValueError, match="no document has two sentences: there are no windows to draw"):
        train("--documents", documents, "--max_steps", "1")


def test_a_language_of_fewer_documents_than_a_batch_is_warned_of(
    train: Train, documents: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with documents.open("a") as file:
        file.write(json.dumps({"language": "de", "sentences": ["die sonne", "der mond", "der stern"]}) + "\n")
    results = train("--documents", documents, "--max_steps", "30", "--language_smoothing", "0")
    assert "language 'de' has 1 documents for batches of 4 windows" in caplog.text
    assert results["steps"] == 30 and results["languages"] == ["de", "en", "fr"]


@pytest.mark.parametrize(
    "options, message",
    [
        ("--documents d.jsonl", "give either --model .* or --from_scratch"),
        ("--documents d.jsonl --model m --from_scratch static", "got --model m and --from_scratch static"),
        ("--from_scratch static", "nothing to train on: give --documents or --pairs"),
        ("--from_scratch static --documents d.jsonl --keep_trained 0.5", "--keep_trained 0.5.*--from_scratch"),
        ("--model m --documents d.jsonl --keep_trained 0.5 --lora_rank 4", "--keep_trained 0.5.*--lora_rank"),
        ("--model m --documents d.jsonl --keep_trained 1.5", "--keep_trained .*1.5"),
        (
            "--from_scratch static --documents d.jsonl --per_device_train_batch_size 0",
            "--per_device_train_batch_size .* 0",
        ),
        ("--from_scratch static --documents d.jsonl --features 0", "--features .* 0"),
        ("--from_scratch static --pairs p.jsonl --evaluation_pairs -5", "--evaluation_pairs .* -5"),
        ("--from_scratch static --documents d.jsonl", "d.jsonl"),
        ("--from_scratch static --pairs words.tsv", "words.tsv"),
        ("--from_scratch static --pairs p.jsonl --push_to_hub --hub_model_id a/b/c", "'a/b/c' is not a repository"),
        ("--from_scratch static --documents d.jsonl --widow_size 3", "--widow_size"),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    program: ModuleType, tmp_path: Path, options: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        program.main([*options.split(), "--use_cpu", "--output_dir", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists() or not names(tmp_path / "run")


def test_a_push_without_network_is_refused_before_training(
    train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PushError, match="HF_HUB_OFFLINE is set"):
        train("--documents", "missing.jsonl", "--push_to_hub", "--hub_model_id", "me/model")
    assert not names(tmp_path / "run")


def test_ratios_of_nothing_leave_nothing_to_train_on(train: Train, documents: Path) -> None:
    with pytest.raises(ValueError, match="nothing to train on.*ratio above 0"):
        train("--documents", documents, "--ccp_ratio", "0")


def test_as_a_program_it_says_the_error_alone(repository: Path, documents: Path, tmp_path: Path) -> None:
    documents.write_text("no JSON\n")
    command = [sys.executable, "training_scripts/train_ccp.py", "--from_scratch", "static"]
    command += ["--documents", str(documents), "--output_dir", str(tmp_path / "run"), "--use_cpu"]
    environment = {**os.environ, "PYTHONPATH": str(repository), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {documents}, line 1: not valid JSON")
