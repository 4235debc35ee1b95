"""`model.fit` of Sentence Transformers with the losses: no collator of ours, and labels are integers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import InputExample
from torch.utils.data import DataLoader

from st_xlret.batches.collator import text_to_id
from st_xlret.losses import CCPLoss, MaskedLMLoss, MSMLoss, RetrievalContrastiveLoss, SemanticContrastiveLoss
from tests import tiny
from tests.losses.batches import EN, FR

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize(
    ("build", "texts", "labels"),
    [
        (CCPLoss, 2, [EN, FR]),
        (lambda model: MSMLoss(model, cross_language_negatives=True), 4, list(range(7, 19))),
        (SemanticContrastiveLoss, 2, [1]),
        (RetrievalContrastiveLoss, 3, [1]),
        (MaskedLMLoss, 2, [1]),
    ],
)
def test_every_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[Any], Any], texts: int, labels: list[int]
) -> None:
    monkeypatch.chdir(tmp_path)  # where the host writes "checkpoints"
    model, dice = (tiny.static if build is SemanticContrastiveLoss else tiny.transformer)(), random.Random(0)
    rows = [[tiny.sentence(dice) for _ in range(texts)] for _ in range(12)]
    examples = [InputExample(texts=row, label=labels[i % len(labels)]) for i, row in enumerate(rows)]
    before = [p.detach().clone() for p in model.parameters()]
    objective: Any = (DataLoader(examples, shuffle=True, batch_size=4), build(model))  # type: ignore[arg-type]
    model.fit([objective], optimizer_params={"lr": 1e-2}, warmup_steps=0, show_progress_bar=False)
    assert all(p.isfinite().all() for p in model.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_the_label_is_the_language_of_a_window() -> None:
    model = tiny.static()
    columns = [model.preprocess(["sun", "moon", "star", "wolf"]), model.preprocess(["rain", "wind", "snow", "tree"])]
    loss = CCPLoss(model, bank_size=8)
    languages = torch.tensor([EN, EN, FR, FR])
    start = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    expected = loss([{**features, "language_id": languages} for features in columns])
    loss.load_owned_state(start)
    assert loss(columns, languages) == expected
    loss.load_owned_state(start)
    assert loss(columns, torch.tensor([EN] * 4)) != expected
    with pytest.raises(ValueError, match="language_id"):
        loss(columns, torch.tensor([0.5] * 4))
    with pytest.raises(ValueError, match="2 is not the id of a language"):
        loss(columns, torch.tensor([2, 2, 2, 2]))  # of NLI


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_a_row_of_texts_is_a_block(make: Any) -> None:
    """The same as one column of its sentences; empty texts are padding; the label is the document."""
    model = make()
    blocks = [["sun", "moon rain", "star"], ["wolf", "bear", ""], ["", "tree leaf", "root"]]
    loss = MSMLoss(model, document_encoder={"dropout": 0.0}, cross_language_negatives=True).double()
    columns = [model.preprocess([block[place] for block in blocks]) for place in range(3)]
    rows = [(text, block, place) for block, texts in enumerate(blocks) for place, text in enumerate(texts) if text]
    one = model.preprocess([text for text, _, _ in rows])
    one["block_id"] = torch.tensor([block for _, block, _ in rows])
    one["sentence_position"] = torch.tensor([place for _, _, place in rows])
    documents = torch.tensor([5, 6, 6])
    tagged = [{**c, "text_id": torch.tensor([text_to_id(b[i]) for b in blocks])} for i, c in enumerate(columns)]
    for features, labels in ((tagged, None), (columns, documents)):
        one["document_id"] = one["block_id"] if labels is None else labels[one["block_id"]]
        torch.testing.assert_close(loss([dict(c) for c in features], labels), loss([dict(one)]))
    with pytest.raises(ValueError, match="document 5"):
        loss(columns, torch.tensor([5, 5, 5]))
