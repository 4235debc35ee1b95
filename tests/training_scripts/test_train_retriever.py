"""From questions in several languages to a retriever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from datasets import load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

from tests.data.files import write_jsonl
from tests.training_scripts.scripts import Runner


def test_questions_find_their_passages(train: Runner, tmp_path: Path) -> None:
    results = train("retriever", "--num_train_epochs 2 --save_strategy no --max_grad_norm 0 --learning_rate 5e-2")
    # A tenth of the 120 questions is put aside, and with it the other question of each passage.
    assert results["questions"] == sum(results["languages"].values()) == 108 and results["steps"] == 2 * 13
    score = "questions_cosine_mrr@10"
    assert results["held_out"][score] > 0.9
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "MultipleNegativesRankingLoss" in card and "- fr\n" in card


def test_two_encoders_in_two_stages_by_dot_product(train: Runner, tmp_path: Path) -> None:
    method = "--similarity dot --temperature 1 --max_steps 3 --mini_batch_size 3 --save_strategy no"
    first = tmp_path / "first" / "model"
    options = "--two_encoders --hard_negatives 1 --model"
    train("retriever", method, options, train.data / "encoder", output="first")
    results = train("retriever", method, "--languages fr --model", first)
    assert list(results["languages"]) == ["fr"] and "questions_dot_mrr@10" in results["held_out"]
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model.similarity_fn_name == "dot"
    query, passage = (torch.from_numpy(encode(["sun"])) for encode in (model.encode_query, model.encode_document))
    assert query.shape == passage.shape == (1, 32) and not torch.equal(query, passage)


def test_hard_negatives_are_mined_where_the_files_hold_none(train: Runner, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    rows = [json.loads(line) for line in (train.data / "questions.jsonl").read_text().splitlines()]
    bare = write_jsonl(tmp_path / "bare.jsonl", [{k: v for k, v in row.items() if k != "negatives"} for row in rows])
    given = ("--max_steps 2 --save_strategy no --hard_negatives 2 --retrieval", bare)
    with pytest.raises(ValueError, match="--hard_negatives 2.*--model"):
        train("retriever", *given)
    train("retriever", *given, "--model", train.data / "encoder")
    mined = load_from_disk(str(tmp_path / "run" / "negatives"))
    assert {"negative_1", "negative_2", "language"} < {*mined.column_names} and {*mined["language"]} == {"en", "fr"}


def test_large_batches_are_read_in_parts(train: Runner) -> None:
    loss = train.built("retriever", "--from_scratch tiny --temperature 0.1 --mini_batch_size 4").loss
    assert isinstance(loss, CachedMultipleNegativesRankingLoss)
    assert loss.mini_batch_size == 4 and loss.scale == pytest.approx(10) and loss.gather_across_devices
