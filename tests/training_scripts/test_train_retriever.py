"""From questions in several languages to a retriever, in one command."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType

import pytest
import torch
from datasets import load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

from tests import tiny
from tests.data.files import write_jsonl
from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import Stop, add_callback, assert_equal_weights, names, sentence

SIZES = "--per_device_train_batch_size 8 --learning_rate 5e-2 --max_seq_length 16 --use_cpu --max_grad_norm 0"


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_retriever", monkeypatch)


@pytest.fixture
def train(program: ModuleType, tmp_path: Path) -> Train:
    """Run the script on a static encoder; further options override."""
    return runner(program, tmp_path, SIZES, "--from_scratch static")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Rows in two languages; pairs of questions share their passage."""
    dice = random.Random(1)
    rows = []
    for i in range(120):
        language, meaning = ("en", "fr")[i % 2], dice.choices(range(12), k=5)
        for asked in (meaning[:3], meaning[1:4]):
            wrong = sentence(language, dice.choices(range(12), k=5))
            text = {"query": f"{sentence(language, asked)} ?", "positive": f"{i} {sentence(language, meaning)}"}
            rows.append({**text, "negatives": [wrong], "language": language})
    return write_jsonl(tmp_path / "questions.jsonl", rows)


def test_a_model_scores_and_curves(train: Train, questions: Path, tmp_path: Path) -> None:
    results = train("--retrieval", questions, "--num_train_epochs 2 --save_steps 20 --logging_steps 10")
    run = tmp_path / "run"
    assert {"model", "results.json", "tokenizer", "training.png"} < {*names(run)}
    assert json.loads((run / "results.json").read_text()) == results
    # A tenth of the 240 questions is put aside, and with it the other question of each passage.
    assert results["questions"] == 216 and results["steps"] == 2 * 27
    assert results["languages"] == {"en": 108, "fr": 108} or sum(results["languages"].values()) == 216
    score = "questions_cosine_mrr@10"
    assert results["held_out"][score] >= results["held_out_before"][score] > 0.5
    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    card = (run / "model" / "README.md").read_text()
    assert "MultipleNegativesRankingLoss" in card and "- fr\n" in card
    state = json.loads((run / "checkpoint-54" / "trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"loss", f"eval_{score}"} <= logged


def test_an_interrupted_run_is_repeated(
    program: ModuleType, train: Train, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The checkpoint is in the second epoch of 30 steps.
    given = ["--retrieval", questions, "--hard_negatives 1 --num_train_epochs 2 --save_steps 35"]
    given += ["--evaluation_questions 0 --token_dropout 0.2 --language_mixing 0 --language_smoothing 0.5"]
    train(*given, output="whole")
    add_callback(program, monkeypatch, Stop(40))
    with pytest.raises(SystemExit, match="(?s)step 40.*checkpoint-35.*--resume"):
        train(*given)
    train(*given, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_two_encoders_in_two_stages_by_dot_product(train: Train, questions: Path, tmp_path: Path) -> None:
    method = "--similarity dot --temperature 1 --max_steps 3 --mini_batch_size 3 --learning_rate 1e-3"
    train("--retrieval", questions, method, "--from_scratch tiny --two_encoders --hard_negatives 1", output="first")
    first = tmp_path / "first" / "model"
    results = train("--retrieval", questions, method, "--languages fr", "--model", first)
    assert list(results["languages"]) == ["fr"] and "questions_dot_mrr@10" in results["held_out"]
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model.similarity_fn_name == "dot"
    query, passage = model.encode_query(["sun"]), model.encode_document(["sun"])
    assert query.shape == passage.shape == (1, 32) and not torch.equal(torch.tensor(query), torch.tensor(passage))


def test_hard_negatives_are_mined_where_the_files_hold_none(train: Train, questions: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in questions.read_text().splitlines()]
    bare = write_jsonl(tmp_path / "bare.jsonl", [{k: v for k, v in row.items() if k != "negatives"} for row in rows])
    given = ["--retrieval", bare, "--max_steps 2 --save_strategy no"]
    with pytest.raises(ValueError, match="--hard_negatives 2.*--model"):
        train(*given, "--hard_negatives 2")
    train(*given, output="first")
    train(*given, "--hard_negatives 2", "--model", tmp_path / "first" / "model")
    mined = load_from_disk(str(tmp_path / "run" / "negatives"))
    assert {"negative_1", "negative_2", "language"} < {*mined.column_names} and {*mined["language"]} == {"en", "fr"}


def test_the_loss_is_the_hosts(program: ModuleType) -> None:
    options = program.RetrieverArguments(temperature=0.1, mini_batch_size=4)
    loss = program.build_loss(tiny.transformer(), options)
    assert isinstance(loss, CachedMultipleNegativesRankingLoss)
    assert loss.mini_batch_size == 4 and loss.scale == pytest.approx(10) and loss.gather_across_devices


def test_options_are_checked(train: Train, questions: Path) -> None:
    with pytest.raises(ValueError, match="--retrieval"):
        train()
    with pytest.raises(ValueError, match="--temperature.*0"):
        train("--retrieval", questions, "--temperature 0")
    with pytest.raises(ValueError, match="StaticEmbedding"):
        train("--retrieval", questions, "--mini_batch_size 4")
