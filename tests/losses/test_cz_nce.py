"""CZNCELoss: the systems of ML-CTL over an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.functional import cz_nce_loss, info_nce_loss
from st_xlret.losses import CZNCELoss, MaskedLMLoss
from st_xlret.losses.cz_nce import sample_ids
from st_xlret.modules import ContextualEncoder, first_last_encoder
from st_xlret.training import LossStateCallback
from tests import tiny
from tests.losses.routers import columns
from tests.training.runs import Recorder, arguments

OBJECTIVES = {"cz_nce": cz_nce_loss, "info_nce": info_nce_loss}


def word_rows(count: int = 6) -> list[dict[str, Any]]:
    """Word-positioned samples; the tokens of a word of the vocabulary are found by its characters."""
    rows = tiny.pairs(count).to_list()
    for number, row in enumerate(rows):
        for side in ("source", "target"):
            row[f"{side}_start"], row[f"{side}_end"] = 1 + number % 3, 3 + number % 2 + number % 3
            row[f"{side}_word"] = "not tokenised"
    return rows


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return word_rows()


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


def test_gradients_reach_encoder_and_layer(rows: list[dict]) -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32))
    loss(columns(model, rows)).backward()
    used = [p for name, p in model.named_parameters() if ".pooler." not in name and p.requires_grad]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in used)
    assert set(loss.owned_state()) == {"contextual_encoder.linear.weight", "contextual_encoder.linear.bias"}
    assert all(p.grad.abs().sum() > 0 for p in loss.owned_parameters() if p.ndim == 2)


def test_a_duplicated_pair_is_no_negative(rows: list[dict]) -> None:
    model = tiny.static()
    loss = CZNCELoss(model)
    once = loss(columns(model, plain(rows[:2])))
    twice = loss(columns(model, plain([*rows[:2], rows[0]])))
    # The first pair has the second as its negatives either way; the second has the first one's rows twice.
    assert once != twice
    source, target = (model(features)["sentence_embedding"] for features in columns(model, plain([*rows[:2], rows[0]])))
    text = torch.tensor([0, 1, 0, 0, 1, 0])
    torch.testing.assert_close(twice, cz_nce_loss(source, target, text=text))
    assert loss(columns(model, plain([rows[0]] * 3))) == 0


def test_another_word_of_the_same_sentences_is_a_negative_and_the_same_word_is_none(rows: list[dict]) -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32))
    other_word = {**rows[0], "source_end": rows[0]["source_end"] + 1, "target_end": rows[0]["target_end"] + 1}
    assert loss(columns(model, [rows[0], other_word])) != 0
    assert loss(columns(model, [rows[0], rows[0]])) == 0
    # Without words, both are the same pair of sentences.
    assert CZNCELoss(model)(columns(model, [rows[0], other_word])) == 0


def test_sample_ids() -> None:
    text, start, end = (torch.tensor(x) for x in ([5, 5, 5, 6, 2**62], [1, 1, 2, 1, 1], [2, 3, 3, 2, 2]))
    ids = sample_ids(text, start, end)
    assert ids.unique().numel() == 5 and torch.equal(ids, sample_ids(text, start, end))


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


@pytest.mark.parametrize("objective", ["cz_nce", "info_nce"])
def test_bfloat16_autocast(rows: list[dict], objective: Any) -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32), objective=objective)
    exact = loss(columns(model, rows))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = loss(columns(model, rows))
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.1)


def test_a_pure_bfloat16_encoder(rows: list[dict]) -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32)).to(torch.bfloat16)
    value = loss(columns(model, rows))
    value.backward()
    assert value.dtype == torch.float32 and all(p.grad.isfinite().all() for p in loss.owned_parameters())


def test_the_batch_is_remembered(rows: list[dict]) -> None:
    model = tiny.static()
    loss = CZNCELoss(model)
    value = loss(columns(model, rows))
    assert loss.last_value == value


def trainer_run(folder: Path, seed: int, **changed: Any) -> tuple[SentenceTransformerTrainer, Recorder]:
    model = first_last_encoder(tiny.transformer(dropout=0.1, seed=seed))
    loss = CZNCELoss(model, ContextualEncoder(32), mlm=MaskedLMLoss(model))
    recorder = Recorder({"ml-ctl": loss})
    torch.manual_seed(seed + 1)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, **changed),
        train_dataset=Dataset.from_list(word_rows(24)),
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[recorder, LossStateCallback(loss)],
    )
    return trainer, recorder


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path) -> None:
    steps = {
        "max_steps": 10,
        "save_strategy": "steps",
        "save_steps": 5,
        "logging_strategy": "steps",
        "logging_steps": 5,
    }
    whole, recorded = trainer_run(tmp_path, 0, **steps)
    start = {name: tensor.clone() for name, tensor in whole.loss.owned_state().items()}
    whole.train()
    trained = whole.loss.owned_state()
    for name in ("contextual_encoder.linear.weight", "mlm.lm_head.bias"):
        assert not torch.equal(trained[name], start[name]), name
    assert {"cz_nce", "mlm"} <= set().union(*whole.state.log_history)

    resumed, repeated = trainer_run(tmp_path, 7, **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 5]
    assert all(torch.equal(tensor, trained[name]) for name, tensor in resumed.loss.owned_state().items())
    # The checkpoint is a plain model, and gives what training saw.
    plain_model = SentenceTransformer(str(tmp_path / "checkpoint-10"), device="cpu")
    texts = [row["source"] for row in word_rows(3)]
    torch.testing.assert_close(
        plain_model.encode(texts, convert_to_tensor=True), whole.model.encode(texts, convert_to_tensor=True)
    )


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


def test_a_batch_of_one_is_an_error(rows: list[dict]) -> None:
    model = tiny.static()
    with pytest.raises(ValueError, match="at least 2 pairs in a batch, got 1"):
        CZNCELoss(model)(columns(model, rows[:1]))


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


def test_wrong_arguments(rows: list[dict]) -> None:
    model = tiny.transformer()
    for count in (1, 3):
        with pytest.raises(ValueError, match=f"takes two text columns, anchor and positive, got {count}"):
            CZNCELoss(model)((columns(model, rows) * 2)[:count])
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        CZNCELoss(model, temperature=0)
    with pytest.raises(ValueError, match="objective must be one of .'cz_nce', 'info_nce'., got 'nce'"):
        CZNCELoss(model, objective="nce")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes sentence vectors of 16 features, the encoder gives 32"):
        CZNCELoss(model, ContextualEncoder(16))
    with pytest.raises(ValueError, match="need token vectors, and a StaticEmbedding gives none"):
        CZNCELoss(tiny.static(), ContextualEncoder(8))
    with pytest.raises(ValueError, match="mlm is of another encoder"):
        CZNCELoss(model, mlm=MaskedLMLoss(tiny.transformer()))


def test_what_the_model_card_learns() -> None:
    model = tiny.transformer()
    model[0].unpad_inputs = True
    loss = CZNCELoss(model, ContextualEncoder(32), mlm=MaskedLMLoss(model))
    assert loss.get_config_dict() == {
        "objective": "cz_nce",
        "words": True,
        "temperature": 0.07,
        "weight": 1.0,
        "mlm_weight": 0.1,
        "gather_across_devices": True,
    }
    assert "Chen, Beiduo" in loss.citation and model[0].unpad_inputs is False
