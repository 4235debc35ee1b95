"""What the card that the host writes learns from us, and what a model made from another carries over."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from huggingface_hub import ModelCard
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn

from st_xlret.files import save_model_atomically
from st_xlret.hub import carry_card_data, set_card_data

CITATION = "@article{ccp,\n  title = {Contrastive Context Prediction}\n}"


class CitedLoss(nn.Module):
    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        a, b = (self.model(column)["sentence_embedding"] for column in features)
        return (a - b).square().mean()

    @property
    def citation(self) -> str:
        return CITATION


class AccuracyEvaluator(SentenceEvaluator):
    def __init__(self) -> None:
        super().__init__()
        self.name = "toy"
        self.primary_metric = "toy_accuracy"

    def __call__(
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        metrics = {"toy_accuracy": 0.625}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    torch.manual_seed(0)
    words = {word: i for i, word in enumerate(["[UNK]", "a", "b", "c", "d"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)], device="cpu")
    set_card_data(model, languages=["en", "fr"], license="apache-2.0", model_name="A toy", tags=["toy"])
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path_factory.mktemp("run")),
            max_steps=1,
            per_device_train_batch_size=2,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"one": ["a b", "c"], "two": ["a", "d c"]}),
        loss=CitedLoss(model),
        evaluator=AccuracyEvaluator(),
    )
    trainer.train()
    return model


def check_host_card(text: str) -> None:
    assert "#### CitedLoss" in text and "@article{ccp" in text
    assert "toy_accuracy" in text or "**accuracy**" in text
    assert "0.625" in text
    data = ModelCard(text).data
    assert data.language == ["en", "fr"]
    assert data.license == "apache-2.0"
    assert {"st-xlret", "toy", "loss:CitedLoss"} <= set(data.tags)
    assert data.eval_results[0].metric_value == 0.625


def test_the_hosts_card_carries_our_citations_and_results(trained: SentenceTransformer, tmp_path: Path) -> None:
    save_model_atomically(trained, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    check_host_card(text)
    assert "# A toy" in text
    assert ".tmp" not in text


def test_a_model_made_from_another_carries_its_card(trained: SentenceTransformer, tmp_path: Path) -> None:
    derived = SentenceTransformer(modules=[trained[0], Dense(4, 2)], device="cpu")
    carry_card_data(trained, derived)
    derived.model_card_data.add_tags("derived")
    save_model_atomically(derived, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    check_host_card(text)
    assert "**Output Dimensionality:** 2" in text
    assert "derived" not in trained.model_card_data.tags
    assert trained.model_card_data.model is trained
