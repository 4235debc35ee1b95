"""CCPLoss: the equation over encoder, head and bank, and what it leaves alone."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.functional import contrastive_context_loss
from st_xlret.losses import CCPLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from tests import tiny


@pytest.fixture
def model() -> SentenceTransformer:
    return tiny.static()


def batch(model: SentenceTransformer, seed: int = 0, windows: int = 4) -> dict[str, Tensor]:
    return tiny.features(model, tiny.window_rows(windows, seed=seed))


@pytest.mark.parametrize("mini_batch_size", [None, 3])
@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_one_column_equals_two(make: Any, mini_batch_size: int | None) -> None:
    model = make()
    torch.manual_seed(1)
    loss = CCPLoss(model, bank_size=6, mini_batch_size=mini_batch_size)
    before = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    one = [loss([batch(model, seed)]) for seed in (0, 1, 2)]
    loss.load_owned_state(before)
    rows = [tiny.window_rows(4, seed=seed) for seed in (0, 1, 2)]
    two = [loss([tiny.features(model, side) for side in (given[:4], given[4:])]) for given in rows]
    torch.testing.assert_close(torch.stack(one), torch.stack(two))


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(
    "mask_document, mask_text, normalize",
    [(True, True, True), (False, True, True), (True, False, True), (True, True, False)],
)
def test_equals_the_functional_loss_on_its_parts(
    model: SentenceTransformer, cross: bool, mask_document: bool, mask_text: bool, normalize: bool
) -> None:
    head = AsymmetricBNHead(8, out_features=5)
    loss = CCPLoss(
        model,
        head,
        LanguageMemoryBank(5, 6),
        temperature=0.2,
        cross_language_negatives=cross,
        mask_same_document=mask_document,
        mask_same_text=mask_text,
        normalize=normalize,
    )
    other_head = AsymmetricBNHead(8, out_features=5)
    other_head.load_state_dict(head.state_dict())
    names = ("queue", "queue_language", "queue_document", "queue_text")
    queue: dict[str, deque] = {name: deque(maxlen=6) for name in names}
    english, french = tiny.window_rows(3), tiny.window_rows(3, seed=1, language="fr")
    rows = english[:3] + french[:3] + english[3:] + french[3:]
    rows[1]["sentence"] = rows[2]["sentence"]
    for side in (0, 6):
        rows[side + 1]["document"] = rows[side]["document"]
    for step in range(3):
        given = tiny.features(model, [{**row, "document": row["document"] + step // 2} for row in rows])
        centres, contexts = model(dict(given))["sentence_embedding"].chunk(2)
        z_centres, z_contexts = other_head(centres, contexts)
        expected = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(6).repeat(2),
            given["language_id"],
            temperature=0.2,
            document=given["document_id"] if mask_document else None,
            text=given["text_id"] if mask_text else None,
            cross_language_negatives=cross,
            normalize=normalize,
            **({name: torch.stack(list(keys)) for name, keys in queue.items()} if step else {}),
        )
        torch.testing.assert_close(loss([given]), expected)
        # The contexts enter the bank, after the loss.
        keys = F.normalize(z_contexts.detach(), dim=1) if normalize else z_contexts.detach()
        for name, new in zip(
            names, (keys, *(given[f"{kind}_id"][6:] for kind in ("language", "document", "text"))), strict=True
        ):
            queue[name].extend(new)


def test_pairs_that_are_no_windows_are_refused(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank_size=4)
    rows = tiny.window_rows(4)
    with pytest.raises(ValueError, match="document_id"):
        loss([tiny.features(model, rows[:3] + rows[:1] + rows[2:])])
    rows[5]["language"] = "fr"
    with pytest.raises(ValueError, match="language_id"):
        loss([tiny.features(model, rows)])
    assert loss.bank is not None and not len(loss.bank)


def test_bad_batches(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank_size=4)
    untagged = model.preprocess(["sun", "moon"])
    with pytest.raises(ValueError, match="document_id"):
        loss([untagged])
    with pytest.raises(ValueError, match="language_id"):
        loss([{**features, "text_id": torch.arange(2)} for features in (untagged, untagged)])
    with pytest.raises(ValueError, match="3 text columns"):
        loss([batch(model)] * 3)
