"""What Trackio and Weights & Biases, which are optional, log of the scripts: each loss by name, and the scores."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from st_xlret.modules import train_tokenizer, transformer_encoder
from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import LISTS, SIZES

STEPS = "--max_steps 6 --logging_steps 3 --eval_strategy steps --eval_steps 3 --save_strategy no"


@pytest.fixture(scope="module")
def trackio_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Trackio writes: it reads the variable once, when it is imported."""
    folder = tmp_path_factory.mktemp("trackio")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(folder))
        yield folder


@pytest.fixture
def ccp(repository: Path, documents: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    program = load_script(repository, "train_ccp", monkeypatch)
    data = f"--documents {documents} --pairs {pairs} --use_cpu"
    return runner(program, tmp_path, f"{SIZES} {STEPS} {data}", "--from_scratch static")


@pytest.fixture
def search(repository: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    torch.manual_seed(0)
    words = train_tokenizer([" ".join(LISTS.values())] * 4, vocabulary=200)
    transformer_encoder(words, "tiny", max_seq_length=16).save_pretrained(str(tmp_path / "encoder"))
    program = load_script(repository, "train_search", monkeypatch)
    sizes = "--per_device_train_batch_size 16 --bank_size 64 --evaluation_pairs 4 --use_cpu"
    return runner(program, tmp_path, f"{sizes} {STEPS} --pairs {pairs}", f"--model {tmp_path / 'encoder'}")


CCP = {"train/loss", "train/loss_ccp", "train/loss_pairs", "eval/pairs_average_accuracy"}
SEARCH = {"train/loss", "train/loss_query", "train/loss_document"}


@pytest.mark.parametrize(("script", "logged"), [("ccp", CCP), ("search", SEARCH)])
def test_trackio(script: str, logged: set[str], trackio_folder: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("trackio")
    request.getfixturevalue(script)("--report_to", "trackio", "--project", script)
    with sqlite3.connect(trackio_folder / f"{script}.db") as database:
        rows = database.execute("SELECT metrics FROM metrics").fetchall()
    assert logged <= {name for (row,) in rows for name in json.loads(row)}


@pytest.mark.parametrize(("script", "logged"), [("ccp", CCP), ("search", SEARCH)])
def test_weights_and_biases_without_a_network(
    script: str, logged: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    request.getfixturevalue(script)("--report_to", "wandb")
    assert logged <= set(wandb.run.summary.keys())
    wandb.finish()
    assert list((tmp_path / "wandb").rglob("offline-run-*/run-*.wandb"))
    wandb.teardown()  # so that the next run reads the environment again
