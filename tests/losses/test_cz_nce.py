"""CZNCELoss: the systems of ML-CTL over an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor

from st_xlret.functional import cz_nce_loss, info_nce_loss
from st_xlret.losses import CZNCELoss, MaskedLMLoss
from st_xlret.modules import ContextualEncoder, first_last_encoder
from tests import tiny
from tests.losses.batches import columns

OBJECTIVES = {"cz_nce": cz_nce_loss, "info_nce": info_nce_loss}


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return tiny.word_rows()


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.endswith(("_start", "_end", "_word"))} for row in rows]


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
@pytest.mark.parametrize("objective", ["cz_nce", "info_nce"])
def test_sentences_alone(make: Any, rows: list[dict], objective: Any) -> None:
    model = make()
    source, target = (model(features)["sentence_embedding"] for features in columns(model, plain(rows)))
    loss = CZNCELoss(model, objective=objective, temperature=0.1, weight=3.0)
    value = loss(columns(model, plain(rows)))
    torch.testing.assert_close(value, 3 * OBJECTIVES[objective](source, target, temperature=0.1))
    # The positions of words make no difference where only sentences are looked at.
    torch.testing.assert_close(loss(columns(model, rows)), value)


@pytest.mark.parametrize("objective", ["cz_nce", "info_nce"])
def test_sentences_with_words(rows: list[dict], objective: Any) -> None:
    model = first_last_encoder(tiny.transformer())
    layer = ContextualEncoder(32, out_features=8)
    sides = []
    for side, features in zip(("source", "target"), columns(model, rows), strict=True):
        output = model(features)
        spans = [slice(row[f"{side}_start"], row[f"{side}_end"]) for row in rows]
        words = torch.stack(
            [tokens[span].mean(0) for tokens, span in zip(output["token_embeddings"], spans, strict=True)]
        )
        sides.append(layer.linear(torch.cat([output["sentence_embedding"], words], 1)))
    value = CZNCELoss(model, layer, objective=objective)(columns(model, rows))
    torch.testing.assert_close(value, OBJECTIVES[objective](*sides))


def test_another_word_of_the_same_sentences_is_a_negative_and_the_same_word_is_none(rows: list[dict]) -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32))
    other_word = {**rows[0], "source_end": rows[0]["source_end"] + 1, "target_end": rows[0]["target_end"] + 1}
    assert loss(columns(model, [rows[0], other_word])) != 0
    assert loss(columns(model, [rows[0], rows[0]])) == 0
    # Without words, both are the same pair of sentences.
    assert CZNCELoss(model)(columns(model, [rows[0], other_word])) == 0


def test_masked_words_are_added(rows: list[dict], monkeypatch: pytest.MonkeyPatch) -> None:
    def every_other(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        chosen = mask.bool() & (torch.arange(ids.shape[1]) % 2 == 1)
        return ids.masked_fill(chosen, tiny.tokenizer().mask_token_id), chosen

    model = tiny.transformer()
    mlm = MaskedLMLoss(model)
    monkeypatch.setattr(mlm, "mask_tokens", every_other)
    loss = CZNCELoss(model, mlm=mlm, mlm_weight=0.25)
    parts = loss(columns(model, rows))
    assert list(parts) == ["cz_nce", "mlm"]
    torch.testing.assert_close(parts["cz_nce"], CZNCELoss(model)(columns(model, rows)))
    torch.testing.assert_close(parts["mlm"], 0.25 * mlm(columns(model, rows)))
    assert loss.last_value == parts["cz_nce"] + parts["mlm"]
    sum(parts.values()).backward()
    # The head is the loss's, the encoder inside of the inner loss is not.
    assert all(name.startswith(("mlm.lm_head.", "mlm.seed", "mlm.steps")) for name in loss.owned_state())
    assert {id(p) for p in loss.owned_parameters()} == {id(p) for p in mlm.owned_parameters()}


def test_any_pairs_of_the_hosts_losses_will_do(tmp_path: Path) -> None:
    model = tiny.transformer()
    loss = CZNCELoss(model)
    rows = [{"anchor": row["source"], "positive": row["target"]} for row in tiny.pairs(16).to_list()]
    from sentence_transformers import SentenceTransformerTrainingArguments

    args = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=20, per_device_train_batch_size=8, learning_rate=1e-2, report_to="none",
        use_cpu=True, save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    # The host's own collator and samplers, as MultipleNegativesRankingLoss has them.
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows), loss=loss)
    trainer.train()
    values = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert values[-1] < 0 < values[0]


def test_words_without_positions(rows: list[dict]) -> None:
    model = tiny.transformer()
    loss = CZNCELoss(model, ContextualEncoder(32))
    with pytest.raises(ValueError, match="text column 0 comes without the position of its word.*<column>_start"):
        loss(columns(model, plain(rows)))
    half = [{k: v for k, v in row.items() if not k.startswith("target_") or k == "target_language"} for row in rows]
    with pytest.raises(ValueError, match="text column 1 comes without"):
        loss(columns(model, half))


def test_words_behind_a_prompt(rows: list[dict]) -> None:
    model = tiny.transformer()
    head = ContextualEncoder(32)
    seen: list[Tensor] = []
    head.register_forward_pre_hook(lambda _, given: seen.extend(given))
    CZNCELoss(model, head)(columns(model, rows, prompts="wind "))
    shift = len(model.tokenizer.tokenize("wind"))
    assert [tensor[: len(rows)].tolist() for tensor in seen[3:5]] == [
        [row[f"source_{name}"] + shift for row in rows] for name in ("start", "end")
    ]


def test_a_word_that_was_cut_off_is_named(rows: list[dict]) -> None:
    model = tiny.transformer()
    rows[4]["target_end"] = 40
    with pytest.raises(ValueError, match=r"word of row 10 stands at tokens \[2, 40\)"):
        CZNCELoss(model, ContextualEncoder(32))(columns(model, rows))
