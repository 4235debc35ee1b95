"""CCPLoss: the equation over encoder, head and bank, and what it leaves alone."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import (
    SentenceTransformer,
)
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor

from st_xlret.functional import contrastive_context_loss
from st_xlret.languages import language_to_id
from st_xlret.losses import CCPLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from tests import tiny

EN, FR = language_to_id("en"), language_to_id("fr")


@pytest.fixture
def model() -> SentenceTransformer:
    return tiny.static()


def batch(model: SentenceTransformer, seed: int = 0, windows: int = 4) -> dict[str, Tensor]:
    return tiny.features(model, tiny.window_rows(windows, seed=seed))


def split(model: SentenceTransformer, seed: int = 0, windows: int = 4) -> list[dict[str, Tensor]]:
    rows = tiny.window_rows(windows, seed=seed)
    return [tiny.features(model, rows[:windows]), tiny.features(model, rows[windows:])]


def state(loss: CCPLoss) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loss.owned_state().items()}


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_one_column_equals_two(make) -> None:
    model = make()
    torch.manual_seed(1)
    head = AsymmetricBNHead(model.get_embedding_dimension())
    loss = CCPLoss(model, head, LanguageMemoryBank(head.out_features, 6))
    before = state(loss)
    one = [loss([batch(model, seed)]) for seed in (0, 1, 2)]
    loss.load_owned_state(before)
    two = [loss(split(model, seed)) for seed in (0, 1, 2)]
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
    held: list[deque] = [deque(maxlen=6) for _ in range(4)]
    english, french = tiny.window_rows(3), tiny.window_rows(3, seed=1, language="fr")
    rows = english[:3] + french[:3] + english[3:] + french[3:]
    rows[1]["sentence"] = rows[2]["sentence"]
    for side in (0, 6):
        rows[side + 1]["document"] = rows[side]["document"]
    for step in range(3):
        shifted = [{**row, "document": row["document"] + step // 2} for row in rows]
        given = tiny.features(model, shifted)
        centres, contexts = model(dict(given))["sentence_embedding"].chunk(2)
        z_centres, z_contexts = other_head(centres, contexts)
        queue = dict(zip(("queue", "queue_language", "queue_document", "queue_text"), held, strict=True))
        expected = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(6).repeat(2),
            given["language_id"],
            temperature=0.2,
            document=given["document_id"] if mask_document else None,
            text=given["text_id"] if mask_text else None,
            cross_language_negatives=cross,
            normalize=normalize,
            **({name: torch.stack(list(rows)) for name, rows in queue.items()} if step else {}),
        )
        torch.testing.assert_close(loss([given]), expected)
        held[0].extend(F.normalize(z_contexts.detach(), dim=1) if normalize else z_contexts.detach())
        for rows_held, name in zip(held[1:], ("language_id", "document_id", "text_id"), strict=True):
            rows_held.extend(given[name][6:])


def test_pairs_that_are_no_windows_are_refused(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank_size=4)
    rows = tiny.window_rows(4)
    with pytest.raises(ValueError, match=r"window 0 .*two documents \(ids 0 and 3\).*Windows"):
        loss([tiny.features(model, rows[:3] + rows[:1] + rows[2:])])
    rows[5]["language"] = "fr"
    with pytest.raises(ValueError, match=rf"window 1 .*two languages \(ids {EN} and {FR}\).*Windows"):
        loss([tiny.features(model, rows)])
    assert not len(loss.bank) and loss.last_value is None


@pytest.mark.parametrize("bank_size", [0, 6])
def test_inside_of_the_hosts_matryoshka_loss(model: SentenceTransformer, bank_size: int) -> None:
    loss = CCPLoss(model, bank_size=bank_size, matryoshka_dims=[8, 4])
    matryoshka = MatryoshkaLoss(model, loss, [8, 4], [1.0, 0.5])
    start, values = state(loss), []
    for seed in range(3):
        values.append(matryoshka([batch(model, seed)], None))
        values[-1].backward()
    # The same from two losses, each with a head of its own.
    small: Any = loss.truncated["4"]
    assert (small["head"].in_features, small["head"].out_features) == (4, 8)
    whole, part = CCPLoss(model, bank_size=bank_size), CCPLoss(tiny.static(features=4), bank_size=bank_size)
    whole.load_owned_state({k: v for k, v in start.items() if not k.startswith("truncated.")})
    part.head, part.bank = small["head"], dict(small)["bank"] if bank_size else None
    part.load_owned_state({k.removeprefix("truncated.4."): v for k, v in start.items() if k.startswith("truncated.4.")})
    for seed, value in enumerate(values):
        given = batch(model, seed)
        tags = {name: tensor for name, tensor in given.items() if name.endswith("_id")}
        vectors = [F.normalize(model(dict(given))["sentence_embedding"][:, :n], dim=1).chunk(2) for n in (8, 4)]
        expected = whole.compute_loss_from_embeddings(*vectors[0], tags)
        expected = expected + 0.5 * part.compute_loss_from_embeddings(*vectors[1], tags)
        torch.testing.assert_close(value, expected)


def test_a_size_without_a_head_is_refused(model: SentenceTransformer) -> None:
    matryoshka = MatryoshkaLoss(model, CCPLoss(model, bank_size=4), [8, 4])
    with pytest.raises(ValueError, match=r"8 features.*vectors of 4.*matryoshka_dims=\[\.\.\., 4\]"):
        matryoshka([batch(model)], None)


def test_bad_batches(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank_size=4)
    untagged = model.preprocess(["sun", "moon"])
    with pytest.raises(ValueError, match="one text column without documents.*CrossLingualTrainer.*two text columns"):
        loss([untagged])
    with pytest.raises(ValueError, match="does not know the languages.*language_to_id.*cross_language_negatives=True"):
        loss([{**features, "text_id": torch.arange(2)} for features in (untagged, untagged)])
    with pytest.raises(ValueError, match="got 3 rows"):
        loss([tiny.features(model, tiny.window_rows(2)[:3])])
    with pytest.raises(ValueError, match="two text columns.*got 3.*CrossLingualDataCollator"):
        loss([batch(model)] * 3)
