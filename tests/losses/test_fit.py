"""`model.fit` of Sentence Transformers with the losses: no collator of ours, and labels are integers."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import InputExample, SentenceTransformer
from torch.utils.data import DataLoader

from st_xlret.batches.collator import text_to_id
from st_xlret.languages import language_to_id
from st_xlret.losses import (
    CCPLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.losses.base import CrossLingualLoss
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EN, FR = language_to_id("en"), language_to_id("fr")


def examples(texts: int, labels: list[int] | None = None, *, count: int = 12) -> list[InputExample]:
    generator = random.Random(0)
    labels = labels or [1]
    return [
        InputExample(texts=[tiny.sentence(generator) for _ in range(texts)], label=labels[i % len(labels)])
        for i in range(count)
    ]


def fit(folder: Path, model: SentenceTransformer, loss: CrossLingualLoss, given: list[InputExample]) -> None:
    here = Path.cwd()
    os.chdir(folder)  # where the host writes "checkpoints"
    try:
        model.fit(
            train_objectives=[(DataLoader(given, shuffle=True, batch_size=4), loss)],  # type: ignore[arg-type,list-item]
            optimizer_params={"lr": 1e-2},
            warmup_steps=0,
            show_progress_bar=False,
        )
    finally:
        os.chdir(here)


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
@pytest.mark.parametrize(
    ("build", "texts", "labels"),
    [
        (CCPLoss, 2, [EN, FR]),
        (lambda model: CCPLoss(model, cross_language_negatives=True), 2, [EN]),
        (MSMLoss, 4, [7, 8, 9]),
        (lambda model: MSMLoss(model, cross_language_negatives=True), 4, list(range(7, 19))),
        (CZNCELoss, 2, None),
        (SemanticContrastiveLoss, 2, None),
        (LangContrastiveLoss, 2, None),
        (LangContrastiveLoss, 3, None),
        (RetrievalContrastiveLoss, 2, None),
        (RetrievalContrastiveLoss, 3, None),
        (MaskedLMLoss, 1, None),
        (MaskedLMLoss, 2, None),
    ],
)
def test_every_loss(
    tmp_path: Path, make: Callable[[], Any], build: Callable[[Any], Any], texts: int, labels: list[int] | None
) -> None:
    if build is MaskedLMLoss and make is tiny.static:
        pytest.skip("a static encoder has no masked words")
    model = make()
    loss = build(model)
    before = [p.detach().clone() for p in model.parameters()]
    fit(tmp_path, model, loss, examples(texts, labels))
    assert loss.last_value.isfinite()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_the_label_is_the_language_of_a_window() -> None:
    model = tiny.static()
    columns = [model.preprocess(["sun", "moon", "star", "wolf"]), model.preprocess(["rain", "wind", "snow", "tree"])]
    torch.manual_seed(0)
    loss = CCPLoss(model, bank_size=8)
    languages = torch.tensor([EN, EN, FR, FR])
    tagged = [{**features, "language_id": languages} for features in columns]
    start = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    expected = loss(tagged, languages)
    loss.load_owned_state(start)
    assert loss(columns, languages) == expected
    loss.load_owned_state(start)
    assert loss(columns, torch.tensor([EN] * 4)) != expected
    with pytest.raises(ValueError, match="does not know the languages"):
        loss(columns, torch.tensor([0.5, 0.5, 1.0, 1.0]))


def test_a_row_of_texts_is_a_block(caplog: pytest.LogCaptureFixture) -> None:
    """The same as one column of its sentences; empty texts are padding; the label is the document."""
    for model in (tiny.static(), tiny.transformer()):
        blocks = [["sun", "moon rain", "star"], ["wolf", "bear", ""], ["", "tree leaf", "root"]]
        torch.manual_seed(0)
        loss = MSMLoss(model, document_encoder={"dropout": 0.0}, cross_language_negatives=True).double()
        columns = [model.preprocess([block[place] for block in blocks]) for place in range(3)]
        rows = [(text, block, place) for block, texts in enumerate(blocks) for place, text in enumerate(texts) if text]
        one = model.preprocess([text for text, _, _ in rows])
        one["block_id"] = torch.tensor([block for _, block, _ in rows])
        one["sentence_position"] = torch.tensor([place for _, _, place in rows])
        documents = torch.tensor([5, 6, 6])
        tagged = [{**c, "text_id": torch.tensor([text_to_id(b[i]) for b in blocks])} for i, c in enumerate(columns)]
        for given, labels in ((tagged, None), (columns, documents)):
            one["document_id"] = one["block_id"] if labels is None else labels[one["block_id"]]
            torch.testing.assert_close(loss([dict(c) for c in given], labels), loss([dict(one)]))
    unsure = MSMLoss(model, document_encoder={"dropout": 0.0}, heads="none")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert unsure([dict(c) for c in tagged]).isfinite()
    assert caplog.text.count("MSMLoss does not know the languages") == 1


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [7, 8, 9, 10]])
def test_document_numbers_are_no_languages(labels: list[int]) -> None:
    model = tiny.static()
    columns = [model.preprocess(["sun", "moon", "star", "rain"]) for _ in "ab"]
    with pytest.raises(ValueError, match="CCPLoss reads the label of a row as its language, and .* is none"):
        CCPLoss(model, bank_size=0)(columns, torch.tensor(labels))


@pytest.mark.parametrize("labels", [[5, 5, 5], [0.1, 0.2, 0.3]])
def test_labels_that_name_no_documents_are_refused(labels: list[float]) -> None:
    model = tiny.static()
    columns = [model.preprocess([f"{word} sun" for word in ("moon", "star", "rain")]) for _ in "ab"]
    with pytest.raises(ValueError, match="MSMLoss reads the label of a row as its document, and the 3 rows"):
        MSMLoss(model)(columns, torch.tensor(labels))


def test_a_document_column_of_texts_is_named() -> None:
    rows = Dataset.from_dict({"query": ["a"], "positive": ["b"], "document": ["c"]})
    loss = RetrievalContrastiveLoss(tiny.static())
    for given in (rows, rows.remove_columns("positive")):
        with pytest.raises(ValueError, match="'document' is the id of a document: select or rename"):
            loss.select(given)
