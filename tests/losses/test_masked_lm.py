"""MaskedLMLoss against the checkpoint's own masked language model."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    DistilBertConfig,
    EsmConfig,
    LongformerConfig,
    MobileBertConfig,
    ModernBertConfig,
    PerceiverConfig,
    PretrainedConfig,
    T5Config,
    XLMRobertaConfig,
)

from st_xlret import CrossLingualDataCollator
from st_xlret.losses import CZNCELoss, MaskedLMLoss
from st_xlret.losses.masked_lm import LanguageModelHead, NoHeadError
from tests import tiny
from tests.distributed.workers import mask_every_third

SHAPE = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 32}


def configurations(vocabulary: int) -> dict[str, PretrainedConfig]:
    common: dict[str, Any] = {"vocab_size": vocabulary, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    distil = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40}
    return {
        "xlm-roberta": XLMRobertaConfig(**common, **SHAPE, max_position_embeddings=40),
        "bert": BertConfig(**common, **SHAPE, max_position_embeddings=40),
        "distilbert": DistilBertConfig(**common, **distil),
        "modernbert": ModernBertConfig(**common, **SHAPE, cls_token_id=0, sep_token_id=2),
        "untied": XLMRobertaConfig(**common, **SHAPE, max_position_embeddings=40, tie_word_embeddings=False),
    }


ARCHITECTURES = ["xlm-roberta", "bert", "distilbert", "modernbert", "untied"]


def save_checkpoint(folder: Path, architecture: str) -> Any:
    """A checkpoint of a language model whose biases are not all zero; returns the model."""
    tokenizer = tiny.tokenizer()
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(configurations(len(tokenizer))[architecture])
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval()


def load_encoder(folder: Path, **kwargs: Any) -> SentenceTransformer:
    encoder = Transformer(str(folder), max_seq_length=16, **kwargs)
    pooling = Pooling(encoder.get_embedding_dimension(), "mean")
    return SentenceTransformer(modules=[encoder, pooling], device="cpu").eval()


def texts(count: int = 6) -> list[str]:
    return [row["sentence"] for row in tiny.window_rows(count)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loss_and_gradients_equal_the_checkpoints_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    reference = save_checkpoint(tmp_path, architecture)
    model = load_encoder(tmp_path)
    loss = MaskedLMLoss(model, weight=2.0)
    monkeypatch.setattr(loss, "mask_tokens", mask_every_third)
    features = model.preprocess(texts())
    masked, chosen = mask_every_third(features["input_ids"], features["attention_mask"])
    labels = features["input_ids"].masked_fill(~chosen, -100)
    expected = reference(input_ids=masked, attention_mask=features["attention_mask"], labels=labels).loss
    value = loss([features])
    torch.testing.assert_close(value, 2 * expected)

    value.backward()
    (2 * expected).backward()
    ours = dict(model[0].auto_model.named_parameters())
    # A tied embedding matrix is used twice: at the bottom and as the projection to the vocabulary.
    prefix = f"{reference.base_model_prefix}."
    named = dict(reference.named_parameters(remove_duplicate=False))
    encoder = {name.removeprefix(prefix): p for name, p in named.items() if name.startswith(prefix)}
    assert any(p is reference.get_input_embeddings().weight for p in encoder.values())
    for name, parameter in encoder.items():
        torch.testing.assert_close(ours[name].grad, parameter.grad, msg=lambda text, name=name: f"{name}: {text}")
    shared = {id(p) for p in encoder.values()}
    head = {id(p): p for p in named.values() if id(p) not in shared and p.grad is not None}
    assert sorted(p.grad.norm().item() for p in loss.owned_parameters() if p.grad is not None) == pytest.approx(
        sorted(p.grad.norm().item() for p in head.values()), rel=1e-4, abs=1e-6
    )


def test_two_columns_weigh_every_token_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.transformer()
    loss = MaskedLMLoss(model)
    monkeypatch.setattr(loss, "mask_tokens", mask_every_third)
    sides = [model.preprocess(texts()[:2]), model.preprocess(texts()[2:])]
    torch.testing.assert_close(loss(sides, torch.ones(2)), loss([model.preprocess(texts())]))


def test_masking_follows_bert() -> None:
    torch.manual_seed(0)
    model = tiny.transformer()
    loss = MaskedLMLoss(model)
    dice = random.Random(0)
    tokens = model.preprocess([tiny.sentence(dice, 3 + i % 6) for i in range(3200)])
    ids, attention = tokens["input_ids"], tokens["attention_mask"]
    read, chosen = loss.mask_tokens(ids, attention)
    special = torch.isin(ids, torch.tensor(tiny.tokenizer().all_special_ids))
    assert not (chosen & (special | ~attention.bool())).any() and (~attention.bool()).any()
    assert torch.equal(read[~chosen], ids[~chosen])
    count = int(chosen.sum())
    assert count / int((attention.bool() & ~special).sum()) == pytest.approx(0.15, abs=0.02)
    masked = (read[chosen] == tiny.tokenizer().mask_token_id).sum() / count
    kept = (read[chosen] == ids[chosen]).sum() / count
    assert masked == pytest.approx(0.8, abs=0.03) and kept == pytest.approx(0.1, abs=0.03)
    replaced = read[chosen & (read != ids) & (read != tiny.tokenizer().mask_token_id)]
    assert replaced.unique().numel() > 20 and replaced.max() < len(tiny.tokenizer())
    # The next batch hides others.
    loss.steps += 1
    _, other = loss.mask_tokens(ids, attention)
    assert (other & chosen).sum() / count == pytest.approx(0.15, abs=0.04)


def test_what_is_hidden_depends_on_text_seed_and_step_alone() -> None:
    model = tiny.transformer()
    loss = MaskedLMLoss(model, mask_probability=0.5, seed=3)
    whole, part = model.preprocess(texts(8)), model.preprocess(texts(8)[5:7])
    read, chosen = loss.mask_tokens(whole["input_ids"], whole["attention_mask"])
    alone, chosen_alone = loss.mask_tokens(part["input_ids"], part["attention_mask"])
    length = alone.shape[1]
    assert torch.equal(read[5:7, :length], alone) and torch.equal(chosen[5:7, :length], chosen_alone)
    for seed, same in ((3, True), (4, False)):
        again, _ = MaskedLMLoss(model, mask_probability=0.5, seed=seed).mask_tokens(
            whole["input_ids"], whole["attention_mask"]
        )
        assert torch.equal(again, read) == same
    assert loss.steps == 0
    loss([whole]).backward()
    assert loss.steps == 1
    with torch.no_grad():
        loss([whole])
    assert loss.steps == 1
    # A head is trained on other words in each pass over the texts, and evaluation always hides the same ones.
    with torch.no_grad():
        assert torch.equal(loss.mask_tokens(whole["input_ids"], whole["attention_mask"])[0], read)


def test_a_short_batch_still_predicts_one_token() -> None:
    model = tiny.transformer()
    loss = MaskedLMLoss(model, mask_probability=1e-9)
    tokens = model.preprocess(["sun", "moon"])
    _, chosen = loss.mask_tokens(tokens["input_ids"], tokens["attention_mask"])
    assert chosen.sum() == 1
    assert loss([tokens]).item() > 0


def test_a_batch_of_empty_texts_gives_zero_and_a_graph() -> None:
    model = tiny.transformer()
    loss = MaskedLMLoss(model)
    value = loss([model.preprocess(["", ""])])
    value.backward()
    assert value == 0


def test_where_the_head_comes_from(tmp_path: Path) -> None:
    reference = save_checkpoint(tmp_path / "mlm", "xlm-roberta")
    with_head = load_encoder(tmp_path / "mlm")
    with_head.save(str(tmp_path / "encoder"))
    encoder = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    with pytest.raises(NoHeadError, match="lm_head.dense.weight"):
        MaskedLMLoss(encoder)
    fresh = MaskedLMLoss(encoder, fresh_head=True)
    taken = MaskedLMLoss(encoder, lm_head_from=str(tmp_path / "mlm"))
    assert torch.equal(taken.lm_head.bias, reference.lm_head.bias)
    assert not torch.equal(fresh.lm_head.bias, reference.lm_head.bias)
    with pytest.raises(NoHeadError, match="nothing"):
        MaskedLMLoss(encoder, lm_head_from=str(tmp_path / "nothing"))


@pytest.mark.parametrize(
    "config",
    [
        MobileBertConfig(**SHAPE, vocab_size=60, true_hidden_size=16, intra_bottleneck_size=16, embedding_size=16),
        LongformerConfig(**SHAPE, vocab_size=60, attention_window=[4]),
        EsmConfig(**SHAPE, vocab_size=60, max_position_embeddings=40, pad_token_id=1),
        PerceiverConfig(num_latents=2, d_latents=16, d_model=16, num_self_attends_per_block=1, vocab_size=60),
        T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=60),  # has none
    ],
    ids=lambda config: config.model_type,
)
def test_a_head_that_cannot_be_used_apart_is_none(config: PretrainedConfig) -> None:
    with pytest.raises(NoHeadError, match=f"'{config.model_type}'"):
        LanguageModelHead(config)


def test_a_new_head_learns_while_the_encoder_stays() -> None:
    model = tiny.transformer(dropout=0.1).train()
    loss = MaskedLMLoss(model)
    encoder, random_state = [p.clone() for p in model.parameters()], torch.random.get_rng_state()
    curve = loss.train_head(tiny.texts(200)["sentence"], batch_size=32, max_steps=40, evaluate_every=20)
    assert len(curve) == 3 and curve[2] < curve[1] < curve[0]
    assert all(torch.equal(*pair) for pair in zip(encoder, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters()) and model.training and loss.steps == 0
    assert torch.equal(random_state, torch.random.get_rng_state())
    assert len(loss.train_head(["sun moon"] * 40, learning_rate=0.0, evaluate_every=1)) == 4, "the loss is flat"
    with pytest.raises(ValueError, match="19"):
        loss.train_head(["sun"] * 19)


def test_a_new_head_learns_as_much_under_autocast() -> None:
    texts, curves = tiny.texts(200)["sentence"], []
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        loss = MaskedLMLoss(tiny.transformer(), seed=0)
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            curves.append(loss.train_head(texts, learning_rate=1e-2, max_steps=60, evaluate_every=60))
    assert curves[0][1] < 0.95 * curves[0][0]
    assert curves[1] == pytest.approx(curves[0], rel=0.01)


def test_in_the_hosts_trainer_with_torch_compile(tmp_path: Path) -> None:
    model = tiny.transformer()
    loss = CZNCELoss(model, mlm=MaskedLMLoss(model))
    rows = tiny.pairs(8).select_columns(["source", "target"])
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=4,
        max_steps=2,
        torch_compile=True,
        torch_compile_backend="eager",
        report_to="none",
        save_strategy="no",
    )
    collator = CrossLingualDataCollator(model.preprocess)
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=rows, loss=loss, data_collator=collator
    )
    assert trainer.train().global_step == 2
