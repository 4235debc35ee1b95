"""Columns of queries and of documents have the model's prompts and routes, in every batch."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from st_xlret.losses import RetrievalContrastiveLoss, SemanticContrastiveLoss
from st_xlret.modules import with_two_encoders
from st_xlret.training import CrossLingualTrainer
from tests import tiny
from tests.training.runs import arguments

TEXTS = ["bear wolf", "fish bird", "star leaf", "root tree"]


def first_text(batch: dict[str, Any], column: str) -> str:
    ids = batch[f"{column}_input_ids"][0]
    return tiny.tokenizer().decode(ids, skip_special_tokens=True)


@pytest.fixture
def model() -> SentenceTransformer:
    two = with_two_encoders(tiny.transformer())
    two.prompts = {"query": "sun ", "document": "", "passage": "moon "}
    return two


@pytest.mark.parametrize("column", ["query", "anchor", "question_1"])
def test_columns_of_queries_take_their_encoder_and_prompt(
    column: str,
    model: SentenceTransformer,
    tmp_path: Path,
) -> None:
    rows = Dataset.from_dict({column: ["bear"] * 4, "positive": ["fish"] * 4})
    loss = RetrievalContrastiveLoss(model)
    trainer = CrossLingualTrainer(model, arguments(tmp_path), rows, loss=loss)
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch[f"{column}_task"] == "query"
    assert first_text(batch, column) == "sun bear"
    assert batch["positive_task"] == "document"
    assert first_text(batch, "positive") == "moon fish"


@pytest.mark.parametrize("names", [("train", "eval"), ("query", "question")])
def test_data_to_evaluate_on_have_them_whatever_their_names_and_columns(
    names: tuple[str, str],
    model: SentenceTransformer,
    tmp_path: Path,
) -> None:
    trained, measured = names
    rows = {"query": TEXTS, "positive": TEXTS[::-1]}
    others = {"question": TEXTS, "answer": TEXTS[::-1], "negative": TEXTS}
    loss = RetrievalContrastiveLoss(model)
    trainer = CrossLingualTrainer(
        model,
        arguments(tmp_path),
        {trained: Dataset.from_dict(rows)},
        {measured: Dataset.from_dict(others)},
        loss={trained: loss, measured: loss},
    )
    (batch,) = trainer.get_eval_dataloader(trainer.eval_dataset[measured])
    assert batch["question_task"] == "query"
    assert first_text(batch, "question").startswith("sun ")
    assert batch["answer_task"] == "document"
    assert first_text(batch, "answer").startswith("moon ")
    before = trainer.evaluate()
    for name, weight in model.named_parameters():
        if "sub_modules.query" in name:
            weight.data *= 1.5
    after = trainer.evaluate()
    assert after[f"eval_{measured}_loss"] != before[f"eval_{measured}_loss"]


@pytest.mark.parametrize(
    ("prompts", "text"),
    [
        (None, "sun bear"),
        ("", "bear"),  # no prompt is a prompt that is given
        ("star ", "star bear"),
        ({"query": "moon "}, "moon bear"),
        ({"positive": "moon "}, "bear"),
    ],
)
def test_prompts_of_the_arguments_are_used_alone(prompts: Any, text: str, tmp_path: Path) -> None:
    encoder = tiny.transformer()
    encoder.prompts = {"query": "sun ", "document": ""}
    rows = Dataset.from_dict({"query": ["bear"] * 4, "positive": ["fish"] * 4})
    loss = RetrievalContrastiveLoss(encoder)
    args = arguments(tmp_path, prompts=prompts)
    trainer = CrossLingualTrainer(encoder, args, rows, loss=loss)
    batch = next(iter(trainer.get_train_dataloader()))
    assert first_text(batch, "query") == text


def test_other_routes_are_left_to_the_user(tmp_path: Path) -> None:
    routes = {"fr": [tiny.static()[0]], "de": [tiny.static()[0]]}
    model = SentenceTransformer(modules=[Router(routes, default_route="fr")], device="cpu")
    loss = SemanticContrastiveLoss(model)
    with pytest.raises(ValueError, match="router_mapping"):
        CrossLingualTrainer(model, arguments(tmp_path), tiny.pairs(), loss=loss)
