"""Another goal of translations than train_search.py's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset, DatasetDict

from st_xlret import SimilarityDistillationLoss
from st_xlret.training.teacher import make_lesson
from tests import tiny
from training_scripts.studies import train_search_ablation as ablation


def test_each_objective_has_its_loss() -> None:
    rows = tiny.pairs(20).to_list()
    pairs = Dataset.from_list([{**row, "source_language": "en", "target_language": "fr"} for row in rows])
    learned = make_lesson(pairs, {})
    vectors = torch.randn(sum(map(len, learned.texts.values())), 8)
    for objective, kind in (("similarities", SimilarityDistillationLoss), ("vectors", ablation.PlaceLoss)):
        options = SimpleNamespace(objective=objective, bank_size=8, temperature=0.1, cosine_weight=2.0)
        losses = ablation.build_losses(tiny.static(features=8), learned.datasets, vectors, options)
        assert set(losses) == {"query", "document"} and all(type(loss) is kind for loss in losses.values())


def test_vectors_without_vectors_is_refused() -> None:
    options = SimpleNamespace(objective="vectors", temperature=0.1)
    pairs = DatasetDict(pairs=tiny.pairs(4))
    with pytest.raises(ValueError, match="--objective vectors and --contrastive_ratio 1"):
        ablation.build_losses(tiny.static(features=8), pairs, None, options)


def test_vectors_is_the_distance_of_unit_vectors() -> None:
    model = tiny.static(features=8)
    teacher, labels = torch.randn(5, 8), torch.tensor([3, 0])
    loss = ablation.PlaceLoss(model, teacher, cosine_weight=2.0)
    batch = model.preprocess(["sun moon", "rain"])
    student = model(batch)["sentence_embedding"]
    unit = torch.nn.functional.normalize
    expected = ((unit(student) - unit(teacher[labels])) ** 2).sum(1).mean()
    torch.testing.assert_close(loss([batch], labels), expected)
