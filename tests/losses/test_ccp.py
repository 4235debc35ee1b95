"""CCPLoss: the equation over encoder, head and bank, and what it leaves alone."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.data.languages import language_to_id
from st_xlret.functional import contrastive_context_loss
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


def test_head_and_bank_take_their_sizes_from_the_encoder(model: SentenceTransformer) -> None:
    loss = CCPLoss(model)
    assert (loss.head.in_features, loss.head.out_features) == (8, 8)
    assert (loss.bank.features, loss.bank.size) == (8, 32768)
    projected = CCPLoss(model, AsymmetricBNHead(8, out_features=3), bank_size=5)
    assert (projected.bank.features, projected.bank.size) == (3, 5)
    assert CCPLoss(model, bank_size=0).bank is None
    own = LanguageMemoryBank(8, 4)
    assert CCPLoss(model, bank=own).bank is own


@pytest.mark.parametrize("scope", ["total", "per_language"])
def test_the_bank_holds_the_contexts_first_in_first_out(model: SentenceTransformer, scope: str) -> None:
    head = AsymmetricBNHead(8, normalization="none")
    loss = CCPLoss(model, head, LanguageMemoryBank(8, 10, scope=scope))  # type: ignore[arg-type]
    expected: deque[list[float]] = deque(maxlen=10)
    for seed in range(5):
        given = batch(model, seed)
        _, contexts = model(dict(given))["sentence_embedding"].chunk(2)
        expected.extend(F.normalize(head(contexts, contexts)[1].detach(), dim=1).tolist())
        loss([given]).backward()
    torch.testing.assert_close(torch.tensor(sorted(loss.bank.get().keys.tolist())), torch.tensor(sorted(expected)))
    held = loss.bank.get()
    assert set(held.language.tolist()) == {EN} and set(held.document.tolist()) <= set(range(100, 500))


def test_a_bank_of_the_batch_size_holds_the_last_batch(model: SentenceTransformer) -> None:
    head = AsymmetricBNHead(8, normalization="none")
    loss = CCPLoss(model, head, LanguageMemoryBank(8, 4))
    loss([batch(model, 0)])
    loss([batch(model, 1)])
    current, last = (model(batch(model, seed))["sentence_embedding"] for seed in (2, 1))
    z, keys = (head(x, x)[0] for x in (current, last[4:]))
    # The keys as further rows that are negatives only: the bank adds exactly the last batch's contexts.
    window = torch.cat([torch.arange(4).repeat(2), torch.arange(10, 14)])
    expected = contrastive_context_loss(torch.cat([z, keys]), window, torch.full((12,), EN))
    torch.testing.assert_close(loss([batch(model, 2)]), expected)


def test_the_first_batch_has_an_empty_bank(model: SentenceTransformer) -> None:
    head = AsymmetricBNHead(8)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    without = CCPLoss(model, head, bank_size=0)([batch(model)])
    head.load_state_dict(before)
    assert CCPLoss(model, head, LanguageMemoryBank(8, 4))([batch(model)]) == without


def test_evaluation_in_training_mode_changes_nothing(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank=LanguageMemoryBank(8, 16))
    loss([batch(model)]).backward()
    before, value = state(loss), loss.last_value
    assert loss.training
    with torch.no_grad():
        first, second = loss([batch(model, 1)]), loss([batch(model, 1)])
    assert first == second and loss.last_value is value
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.owned_state().items())


def test_gradients_reach_encoder_and_head_and_not_the_bank(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank=LanguageMemoryBank(8, 16))
    loss([batch(model)]).backward()
    loss.zero_grad()
    loss([batch(model, 1)]).backward()
    owned = dict(loss.named_parameters())
    # Normalisation takes away a bias before it.
    assert all(p.grad.abs().sum() > 0 for name, p in owned.items() if name != "head.linear_in.bias")
    assert not any(buffer.requires_grad for buffer in loss.bank.buffers())


@pytest.mark.parametrize("normalization", ["asymmetric", "batch", "none"])
def test_bfloat16_autocast_with_a_transformer(normalization: str) -> None:
    model = tiny.transformer(dropout=0.1)
    head = AsymmetricBNHead(32, normalization=normalization)  # type: ignore[arg-type]
    loss = CCPLoss(model, head, LanguageMemoryBank(32, 6, dtype=torch.bfloat16))
    for seed in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss([batch(model, seed)])
        value.backward()
        assert value.dtype == torch.float32 and value.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_encoder_without_autocast(dtype: torch.dtype) -> None:
    exact, low = (CCPLoss(tiny.transformer(), bank_size=6) for _ in range(2))
    low.head.load_state_dict(exact.head.state_dict())
    low.model.to(dtype)
    for seed in range(2):
        value = low([batch(low.model, seed)])
        torch.testing.assert_close(value, exact([batch(exact.model, seed)]), rtol=0.05, atol=0.05)
        value.backward()
    assert value.dtype == low.head.linear_in.weight.grad.dtype == torch.float32
    assert next(low.model.parameters()).grad.dtype == dtype


def test_pairs_that_are_no_windows_are_refused(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank_size=4)
    rows = tiny.window_rows(4)
    with pytest.raises(ValueError, match=r"window 0 .*two documents \(ids 0 and 3\).*Windows"):
        loss([tiny.features(model, rows[:3] + rows[:1] + rows[2:])])
    rows[5]["language"] = "fr"
    with pytest.raises(ValueError, match=rf"window 1 .*two languages \(ids {EN} and {FR}\).*Windows"):
        loss([tiny.features(model, rows)])
    assert not len(loss.bank) and loss.last_value is None


def test_a_forgotten_sampler_is_noticed_in_training(model: SentenceTransformer, tmp_path: Path) -> None:
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(tmp_path), per_device_train_batch_size=8, max_steps=1, report_to="none", save_strategy="no"
        ),
        train_dataset=tiny.documents(),
        loss=CCPLoss(model, bank_size=4),
        data_collator=CrossLingualDataCollator(model.preprocess),
    )
    with pytest.raises(ValueError, match="Windows"):
        trainer.train()


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


def test_batches_of_several_languages_use_their_own_keys(model: SentenceTransformer) -> None:
    head = AsymmetricBNHead(8, normalization="none")
    rows = tiny.window_rows(2), tiny.window_rows(2, language="fr", seed=3)
    total, separate, alone = (
        CCPLoss(model, head, LanguageMemoryBank(8, 16, scope=scope))  # type: ignore[arg-type]
        for scope in ("total", "per_language", "total")
    )
    for loss in (total, separate):
        loss([tiny.features(model, rows[0])])
        loss([tiny.features(model, rows[1])])
    alone([tiny.features(model, rows[0])])
    values = [loss([batch(model, 5)]) for loss in (total, separate, alone)]
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(values[0], values[2])


def test_the_batch_is_remembered(model: SentenceTransformer) -> None:
    loss = CCPLoss(model, bank_size=4)
    value = loss([batch(model)])
    assert loss.last_value == value and not loss.last_value.requires_grad


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


def test_wrong_options(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match=r"5 features.*encoder gives 8.*AsymmetricBNHead\(8\)"):
        CCPLoss(model, AsymmetricBNHead(5))
    with pytest.raises(ValueError, match=r"keys of 8 features.*head gives 3.*LanguageMemoryBank\(3\)"):
        CCPLoss(model, AsymmetricBNHead(8, out_features=3), LanguageMemoryBank(8, 4))
    with pytest.raises(ValueError, match="temperature.*0"):
        CCPLoss(model, temperature=0)
    with pytest.raises(ValueError, match="bank_size.*-1"):
        CCPLoss(model, bank_size=-1)
    with pytest.raises(ValueError, match="matryoshka_dims.*8.*16"):
        CCPLoss(model, bank_size=4, matryoshka_dims=[16, 8])


def test_what_the_model_card_learns(model: SentenceTransformer) -> None:
    config = CCPLoss(model, bank=LanguageMemoryBank(8, 4)).get_config_dict()
    assert config["bank_size"] == 4 and config["bank_scope"] == "total"
    without = CCPLoss(model, bank_size=0)
    assert without.get_config_dict()["bank_size"] == 0
    assert "wu2022ccp" in without.citation
