"""CZNCELoss: the systems of ML-CTL over an encoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from st_xlret.functional import cz_nce_loss, info_nce_loss
from st_xlret.losses import CZNCELoss, MaskedLMLoss
from st_xlret.modules import ContextualEncoder, first_last_encoder
from tests import tiny
from tests.losses.batches import columns

OBJECTIVES = {"cz_nce": cz_nce_loss, "info_nce": info_nce_loss}
ROWS = tiny.word_rows()
PLAIN = [{k: v for k, v in row.items() if not k.endswith(("_start", "_end", "_word"))} for row in ROWS]


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
@pytest.mark.parametrize("objective", ["cz_nce", "info_nce"])
def test_sentences_alone(make: Any, objective: Any) -> None:
    model = make()
    source, target = (model(features)["sentence_embedding"] for features in columns(model, PLAIN))
    loss = CZNCELoss(model, objective=objective, temperature=0.1, weight=3.0)
    value = loss(columns(model, PLAIN))
    torch.testing.assert_close(value, 3 * OBJECTIVES[objective](source, target, temperature=0.1))
    # The positions of words make no difference where only sentences are looked at.
    torch.testing.assert_close(loss(columns(model, ROWS)), value)


@pytest.mark.parametrize("objective", ["cz_nce", "info_nce"])
def test_sentences_with_words(objective: Any) -> None:
    model = first_last_encoder(tiny.transformer())
    layer = ContextualEncoder(32, out_features=8)
    sides = []
    for side, features in zip(("source", "target"), columns(model, ROWS), strict=True):
        output = model(features)
        spans = [slice(row[f"{side}_start"], row[f"{side}_end"]) for row in ROWS]
        pairs = zip(output["token_embeddings"], spans, strict=True)
        words = torch.stack([tokens[span].mean(0) for tokens, span in pairs])
        sides.append(layer.linear_out(layer.linear(torch.cat([output["sentence_embedding"], words], 1)).relu()))
    value = CZNCELoss(model, layer, objective=objective)(columns(model, ROWS))
    torch.testing.assert_close(value, OBJECTIVES[objective](*sides))


def test_another_word_of_the_same_sentences_is_a_negative_and_the_same_word_is_none() -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32))
    other_word = {**ROWS[0], "source_end": ROWS[0]["source_end"] + 1, "target_end": ROWS[0]["target_end"] + 1}
    assert loss(columns(model, [ROWS[0], other_word])) != 0
    assert loss(columns(model, [ROWS[0], ROWS[0]])) == 0
    # Without words, both are the same pair of sentences.
    assert CZNCELoss(model)(columns(model, [ROWS[0], other_word])) == 0


def test_masked_words_are_added() -> None:
    model = tiny.transformer()
    mlm = MaskedLMLoss(model, seed=0)
    parts = CZNCELoss(model, mlm=mlm, mlm_weight=0.25)(columns(model, ROWS))
    mlm.steps.zero_()
    assert list(parts) == ["cz_nce", "mlm"]
    torch.testing.assert_close(parts["cz_nce"], CZNCELoss(model)(columns(model, ROWS)))
    torch.testing.assert_close(parts["mlm"], 0.25 * mlm(columns(model, ROWS)))


def test_words_without_positions() -> None:
    model = tiny.transformer()
    loss = CZNCELoss(model, ContextualEncoder(32))
    half = [{k: v for k, v in row.items() if not k.startswith("target_") or k == "target_language"} for row in ROWS]
    for rows in (PLAIN, half):
        with pytest.raises(ValueError, match="word_start"):
            loss(columns(model, rows))
