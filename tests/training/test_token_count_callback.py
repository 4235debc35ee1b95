"""The number of tokens that a run has read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer

from st_xlret.data import CrossLingualDataCollator, LanguageBatchSampler
from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.training import LossStateCallback, TokenCountCallback
from tests import tiny
from tests.training.runs import arguments

# Texts of different lengths, so that batches are padded.
TEXTS = [" ".join(tiny.WORDS[: 1 + i % 3]) for i in range(16)]


def count(*texts: str, special: bool = True) -> int:
    return sum(len(tiny.tokenizer()(text, add_special_tokens=special)["input_ids"]) for text in texts)


def trainer_of(folder: Path, model: Any, **changed: Any) -> SentenceTransformerTrainer:
    rows = {"source": TEXTS, "target": TEXTS[::-1], "source_language": ["en"] * 16, "target_language": ["fr"] * 16}
    loss = SemanticContrastiveLoss(model)
    return SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, batch_sampler=LanguageBatchSampler, **changed),
        train_dataset=Dataset.from_dict(rows),
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[LossStateCallback(loss), TokenCountCallback(loss)],
    )


@pytest.mark.parametrize(("encoder", "special"), [(tiny.transformer, True), (tiny.static, False)])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_tokens_are_counted_without_padding(tmp_path: Path, encoder: Any, special: bool, accumulation: int) -> None:
    trainer = trainer_of(tmp_path, encoder(), num_train_epochs=1, gradient_accumulation_steps=accumulation)
    trainer.train()
    assert trainer.state.global_step == 4 // accumulation
    # One pass over both columns.
    assert trainer.state.num_input_tokens_seen == 2 * count(*TEXTS, special=special)


def test_a_resumed_run_counts_on(tmp_path: Path) -> None:
    steps = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    whole = trainer_of(tmp_path, tiny.transformer(), **steps)
    whole.train()
    resumed = trainer_of(tmp_path, tiny.transformer(), **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert resumed.state.num_input_tokens_seen == whole.state.num_input_tokens_seen > 0


def test_evaluation_is_not_counted() -> None:
    model = tiny.transformer()
    loss = SemanticContrastiveLoss(model)
    callback = TokenCountCallback(loss)
    columns = [model.preprocess(["sun moon", "star"]) for _ in "ab"]
    with torch.no_grad():
        loss(columns)
    assert callback.tokens == 0
    loss(columns)
    assert callback.tokens == 2 * count("sun moon", "star")
