"""What cannot work is named before anything is trained or lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.data import DataError
from st_xlret.modules import with_two_encoders
from tests.data.files import write_jsonl, write_text
from tests.training_scripts.scripts import SCRIPTS, Runner

NONE = "--model --from_scratch"
BAD = [
    ("ccp", f"{NONE}", "give either --model .* or --from_scratch"),
    ("ccp", "--documents --pairs", "nothing to train on: give --documents or --pairs"),
    ("ccp", "--pairs --ccp_ratio 0", "nothing to train on: give a ratio above 0"),
    ("ccp", "--keep_trained 0.5", "--keep_trained 0.5.*--from_scratch"),
    ("ccp", "--model m --keep_trained 0.5 --lora_rank 4", "keep_trained 0.5 and lora_rank 4 exclude"),
    ("ccp", "--keep_trained 1.5", "--keep_trained .*1.5"),
    ("ccp", "--per_device_train_batch_size 0", "--per_device_train_batch_size .* 0"),
    ("ccp", "--evaluation_pairs -5", "--evaluation_pairs .* -5"),
    ("ccp", "--languages en xx1", "unknown language code 'xx1'"),
    ("ccp", "--documents nowhere.jsonl", "nowhere.jsonl"),
    ("ccp", "--pairs words.tsv", "words.tsv"),
    ("ccp", "--widow_size 3", "--widow_size.*did you mean --window_size"),
    ("ccp", "--from_scratch tiny --train_seq_length 20", "train_seq_length 20.*16"),
    ("ccp", "--loss_options {ccp", "--loss_options is a JSON mapping"),
    ("ccp", '--loss_options {"cpp":{}}', "no losses .*cpp.*it has .*ccp"),
    ("msm", "--block_sentences 1", "--block_sentences.* 1$"),
    ("msm", "--negatives -1", "--negatives.* -1$"),
    ("msm", "--pack_tokens 2", "2 special tokens"),
    ("msm", "--documents --pairs_ratio 0", "--pairs with a --pairs_ratio above 0"),
    ("ml-ctl", "--pairs", "--pairs"),
    ("ml-ctl", "--dictionaries", "--dictionaries.*--mode CZ-snt"),
    ("ml-ctl", "--pooling checkpoint", "--pooling checkpoint.*--model"),
    ("ml-ctl", "--from_scratch static", "ML-CTL-CZ.*StaticEmbedding.*CZ-snt"),
    ("ml-ctl", "--per_device_train_batch_size 1", "--per_device_train_batch_size.* 1"),
    ("ml-ctl", "--stop_words none own.en.txt", "--stop_words takes default, none or files"),
    ("language-agnostic-ir", "--retrieval", "--retrieval"),
    ("language-agnostic-ir", "--pairs", "--pairs.*--semantic_weight and --language_weight"),
    ("language-agnostic-ir", "--language_weight -1", "--language_weight.*-1"),
    ("retriever", "--retrieval", "--retrieval"),
    ("retriever", "--temperature 0", "--temperature.*0"),
    ("retriever", "--mini_batch_size 4", "StaticEmbedding"),
    ("search", "--pairs", "--pairs"),
    ("search", "--pivot de", "(?s)'de'.*en.*fr.*--pivot"),
    ("search", "--questions_ratio -0.1", "--questions_ratio.*-0.1"),
    ("search", "--model nowhere/at/all", "nowhere/at/all"),
]


@pytest.mark.parametrize(("name", "options", "message"), BAD)
def test_what_cannot_work_is_refused_before_training(
    name: str, options: str, message: str, train: Runner, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        train(name, "--max_steps 1", options)
    assert not list((tmp_path / "run").rglob("*.safetensors")) and not (tmp_path / "run" / "results.json").exists()


def test_bad_lines_are_named_or_counted(train: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    good = (train.data / "documents.jsonl").read_text().splitlines()
    bad = ['{"language": "en", "sentences": [', '{"language": "xx1", "sentences": ["a", "b"]}']
    documents = write_jsonl(tmp_path / "documents.jsonl", [*good[:2], *bad, *good[2:]])
    with pytest.raises(DataError, match=rf"{documents}, line 3: not valid JSON.*skip_bad_lines"):
        train("ccp", "--pairs --max_steps 1 --documents", documents)
    found = train("ccp", "--pairs --max_steps 1 --skip_bad_lines --save_strategy no --documents", documents)
    assert found["sentences"] == 96
    assert "bad lines skipped: 2" in caplog.text and "line 4: unknown language code 'xx1'" in caplog.text


@pytest.mark.parametrize(
    ("name", "sentences", "message"),
    [
        ("ccp", [], "no documents left to train on"),
        ("ccp", ["the sun and the moon"], "no document has two sentences: there are no windows to draw"),
        ("msm", ["the sun and the moon", "", " "], "two .*sentences"),
    ],
)
def test_documents_without_neighbours_are_refused(
    name: str, sentences: list[str], message: str, train: Runner, tmp_path: Path
) -> None:
    documents = write_jsonl(tmp_path / "short.jsonl", [{"language": "en", "sentences": sentences}] * 5)
    with pytest.raises(ValueError, match=message):
        train(name, "--pairs --max_steps 1 --documents", documents)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("words.fr-en.tsv", "sun\tsoleil\nmoon\tlune\nstar\tastre\nrain\tpluie\nwind\tvent\n", "swap"),
        ("latin.en-fr.tsv", "summer\tété\n".encode("latin1"), r"latin\.en-fr\.tsv, line 1.*UTF-8.*iconv"),
    ],
)
def test_dictionaries_that_are_none(file: str, content: Any, message: str, train: Runner, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        train("ml-ctl", "--max_steps 1 --dictionaries", path)


def test_stop_words_of_a_language_without_a_dictionary(train: Runner, tmp_path: Path) -> None:
    german = write_text(tmp_path / "de.txt", "sonne\n")
    with pytest.raises(ValueError, match=r"--stop_words.* de.*\['en', 'fr'\]"):
        train("ml-ctl", "--max_steps 1 --stop_words", german)


def test_a_search_encoder_with_routes_is_refused_before_its_teacher_works(train: Runner, tmp_path: Path) -> None:
    with_two_encoders(SentenceTransformer(str(train.data / "encoder"))).save_pretrained(str(tmp_path / "two"))
    with pytest.raises(ValueError, match="two.*Router"):
        train("search", "--max_steps 2 --model", tmp_path / "two")
    assert not (tmp_path / "run" / "teacher").exists()


def test_as_a_program_it_says_the_error_alone(repository: Path, tmp_path: Path) -> None:
    documents = write_text(tmp_path / "documents.jsonl", "no JSON\n")
    command = [sys.executable, "training_scripts/train_ccp.py", "--from_scratch", "static", "--use_cpu"]
    command += ["--documents", str(documents), "--output_dir", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(repository), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {documents}, line 1: not valid JSON")


def test_the_table_has_every_script() -> None:
    assert {name for name, *_ in BAD} == set(SCRIPTS)
