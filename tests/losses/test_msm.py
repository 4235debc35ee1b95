"""MSMLoss: the equation over encoder, document encoder and heads, and its options."""

import random
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.batches.collator import text_to_id
from st_xlret.losses import MSMLoss
from st_xlret.modules import DocumentEncoder
from tests import tiny
from tests.functional.oracles import naive_masked_sentence_loss, naive_predictions
from tests.losses.batches import EN, FR, block_features, msm

LENGTHS = (3, 2, 4, 1)
TEXTS = [tiny.sentence(random.Random(i), 4) for i in range(10)]


@pytest.fixture
def model() -> SentenceTransformer:
    return tiny.static()


def by_hand(loss: MSMLoss, features: dict[str, Tensor]) -> Tensor:
    """Document by document; rows must come in the order of documents."""
    h = loss.model(dict(features))["sentence_embedding"]
    encoder: Any = loss.document_encoder
    documents = [rows for rows in h.split(LENGTHS) if len(rows) > 1]
    parts = naive_predictions(
        encoder.layers, encoder.norm, encoder.mask_vector, encoder.positions.weight, documents
    )
    p = torch.cat(parts)
    predicted = [*range(9)]  # the last document has one sentence
    if loss.heads != "none":
        p = loss.projections[0](p)
        h = loss.projections[-1](h)
    options = {
        "mu": loss.mu,
        "temperature": loss.temperature,
        "intra": loss.intra_document_negatives,
    }
    options["language"] = (
        None if loss.cross_language_negatives else features["language_id"].tolist()
    )
    options["text"] = features["text_id"].tolist() if loss.mask_same_text else None
    p = torch.cat([p, torch.zeros(1, p.shape[1])])
    return naive_masked_sentence_loss(
        p, h, features["document_id"].tolist(), predicted=predicted, **options
    )


@pytest.mark.parametrize("heads", ["separate", "shared", "none"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mu": 0.0},
        {"temperature": 0.3, "mu": 0.7},
        {"intra_document_negatives": False},
        {"mask_same_text": False, "cross_language_negatives": True},
    ],
)
def test_equals_its_parts_one_sentence_after_another(
    model: SentenceTransformer, heads: str, options: dict
) -> None:
    loss = msm(model, heads=heads, **options)
    other = msm(model, heads=heads, **options)
    texts = [*TEXTS[:6], TEXTS[1], *TEXTS[7:]]
    for seed in (0, 1):
        of_blocks = {"seed": seed, "languages": [EN, EN, EN, FR], "texts": texts}
        shuffled = block_features(
            model, order=random.Random(seed).sample(range(10), 10), **of_blocks
        )
        torch.testing.assert_close(
            loss([shuffled]), by_hand(other, block_features(model, **of_blocks))
        )
    torch.testing.assert_close(
        loss.owned_state() | {"steps": 0}, other.owned_state() | {"steps": 0}
    )


def test_equal_sentences_and_empty_ones() -> None:
    model = tiny.transformer()
    loss = MSMLoss(model, DocumentEncoder(32))
    for texts in (["sun moon"] * 10, [""] * 10, ["", *["sun"] * 3, "", *["moon"] * 5]):
        value = loss([block_features(model, texts=texts)])
        value.backward()
        assert value.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())
    same = [block_features(model, texts=["sun moon"] * 10)]
    assert loss(same) == 0
    assert MSMLoss(model, DocumentEncoder(32), mask_same_text=False, num_negatives=None)(
        same
    ).isfinite()


def test_blocks_of_one_document_are_one_document(model: SentenceTransformer) -> None:
    loss = msm(model, heads="none", mu=0.0, intra_document_negatives=False)
    features = block_features(model, (2, 2, 2))
    apart = loss([dict(features)])
    features["document_id"][:4] = 7
    assert loss([dict(features)]) < apart
    del features["document_id"]
    assert loss([dict(features)]) == apart


def test_negatives_are_drawn_by_seed_and_step(model: SentenceTransformer) -> None:
    features = block_features(model)

    def six_values(seed: int) -> list[float]:
        loss = msm(model, heads="none", num_negatives=1, seed=seed)
        return [loss([dict(features)]).item() for _ in range(6)]

    first = six_values(0)
    assert len(set(first)) > 1 and six_values(0) == first and six_values(1) != first
    every = [msm(model, heads="none", num_negatives=n)([dict(features)]) for n in (None, 9, 512)]
    assert every[0] == every[1] == every[2]


def test_bad_batches(model: SentenceTransformer) -> None:
    loss = msm(model)
    features = block_features(model)
    for tag in ("block_id", "sentence_position", "language_id"):
        with pytest.raises(ValueError, match=tag):
            loss([{name: tensor for name, tensor in features.items() if name != tag}])
    for tag, value in (("document_id", FR), ("language_id", FR), ("sentence_position", 10)):
        wrong = {**features, tag: features[tag].clone()}
        wrong[tag][1] = value
        with pytest.raises(ValueError, match="a block of the batch"):
            loss([wrong])
    with pytest.raises(ValueError, match="no block of the batch has two sentences"):
        loss([block_features(model, (1, 1, 1))])
    assert not loss.steps


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_a_row_of_texts_is_a_block(make: Any) -> None:
    """The same as one column of its sentences; empty texts are padding, labels documents."""
    model = make()
    blocks = [["sun", "moon rain", "star"], ["wolf", "bear", ""], ["", "tree leaf", "root"]]
    loss = MSMLoss(model, document_encoder={"dropout": 0.0}, cross_language_negatives=True).double()
    columns = [model.preprocess([block[place] for block in blocks]) for place in range(3)]
    rows = [
        (text, block, place)
        for block, texts in enumerate(blocks)
        for place, text in enumerate(texts)
        if text
    ]
    one = model.preprocess([text for text, _, _ in rows])
    one["block_id"] = torch.tensor([block for _, block, _ in rows])
    one["sentence_position"] = torch.tensor([place for _, _, place in rows])
    documents = torch.tensor([5, 6, 6])
    tagged = [
        {**c, "text_id": torch.tensor([text_to_id(b[i]) for b in blocks])}
        for i, c in enumerate(columns)
    ]
    for features, labels in ((tagged, None), (columns, documents)):
        one["document_id"] = one["block_id"] if labels is None else labels[one["block_id"]]
        torch.testing.assert_close(loss([dict(c) for c in features], labels), loss([dict(one)]))
    with pytest.raises(ValueError, match="document 5"):
        loss(columns, torch.tensor([5, 5, 5]))
