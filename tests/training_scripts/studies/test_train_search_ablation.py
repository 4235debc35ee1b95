"""Other goals of translations than train_search.py's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset, DatasetDict

from st_xlret import SemanticContrastiveLoss, SimilarityDistillationLoss
from st_xlret.training.teacher import make_lesson
from tests import tiny
from training_scripts import train_search
from training_scripts.studies import train_search_ablation as ablation


def lesson():
    rows = tiny.pairs(20).to_list()
    pairs = Dataset.from_list([{**row, "source_language": "en", "target_language": "fr"} for row in rows])
    return pairs, make_lesson(pairs, {}, english_share=0.2)


def options(objective: str) -> SimpleNamespace:
    return SimpleNamespace(
        objective=objective, bank_size=8, temperature=0.1, cosine_weight=2.0, questions_weight=1.0, questions_ratio=0.0
    )


@pytest.mark.parametrize("objective", ablation.OBJECTIVES)
def test_each_objective_has_its_loss(objective: str) -> None:
    model = tiny.static(features=8)
    _, learned = lesson()
    count = sum(map(len, learned.texts.values()))
    datasets = ablation.build_datasets(learned, None, options(objective))
    losses = ablation.build_losses(model, datasets, torch.randn(count, 8), options(objective))
    roles = {"query", "document"}
    expected = {"pairs": {"pairs"}, "both": {"pairs", *roles}}.get(objective, roles)
    assert set(losses) == set(datasets) == expected
    for name, loss in losses.items():
        assert isinstance(loss, SemanticContrastiveLoss if name == "pairs" else SimilarityDistillationLoss)


@pytest.mark.parametrize("objective", ablation.OBJECTIVES)
def test_every_text_has_its_prompt(objective: str) -> None:
    model = tiny.static(features=8)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    _, learned = lesson()
    datasets = ablation.build_datasets(learned, None, options(objective))
    prompts = train_search.prompts_of(model, datasets)
    for name, rows in datasets.items():
        texts = set(rows.column_names) - {"label", "language"}
        assert prompts[name] == dict.fromkeys(texts, "tell: " if name == "document" else "ask: ")
    rows = Dataset.from_dict({"query": ["a"], "positive": ["b"], "negative_1": ["c"], "language": ["en"]})
    questions = train_search.prompts_of(model, DatasetDict({"questions": rows}))["questions"]
    assert questions == {"query": "ask: ", "positive": "tell: ", "negative_1": "tell: "}


def test_vectors_is_the_distance_of_unit_vectors() -> None:
    model = tiny.static(features=8)
    teacher, labels = torch.randn(5, 8), torch.tensor([3, 0])
    loss = ablation.PlaceLoss(model, teacher, cosine_weight=2.0)
    batch = model.preprocess(["sun moon", "rain"])
    student = model(batch)["sentence_embedding"]
    unit = torch.nn.functional.normalize
    expected = ((unit(student) - unit(teacher[labels])) ** 2).sum(1).mean()
    torch.testing.assert_close(loss([batch], labels), expected)


def test_pairs_are_the_two_texts_without_the_repeated_english() -> None:
    pairs, learned = lesson()
    datasets = ablation.build_datasets(learned, None, options("pairs"))
    found = {(row["sentence"], row["translation"]) for part in datasets.values() for row in part}
    assert found == {(row["target"], row["source"]) for row in pairs if row["target"] != row["source"]}
