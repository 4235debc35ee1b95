"""CrossLingualTrainer meets what the losses ask for, counts, and stops on what is not finite."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from torch import nn
from transformers.trainer_utils import HPSearchBackend

from st_xlret.batches import LengthGroupedBatches, Rows
from st_xlret.losses import CCPLoss, SemanticContrastiveLoss
from st_xlret.training import CrossLingualTrainer, CrossLingualTrainingArguments
from tests import tiny
from tests.training.runs import arguments, changed, run_of, state_of, trainer_of


def of_host(pairs: Dataset) -> Dataset:
    return pairs.select_columns(["source", "target"])


# Batches


def test_each_loss_draws_its_own_batches_as_often_as_its_ratio_says_beside_those_of_the_host(
    tmp_path: Path,
) -> None:
    model = tiny.static(features=16)
    ccp = CCPLoss(model, bank_size=8, ratio=4.0)
    pairs = SemanticContrastiveLoss(model, ratio=2.0)
    losses = {
        "ccp": ccp,
        "pairs": MatryoshkaLoss(model, pairs, [16, 8]),
        "host": MultipleNegativesRankingLoss(model),
    }
    datasets = {"ccp": tiny.documents(40), "pairs": tiny.pairs(80), "host": of_host(tiny.pairs(80))}
    trainer = CrossLingualTrainer(model, arguments(tmp_path, max_steps=8), datasets, loss=losses)
    counts: Counter[str] = Counter()
    for batch in trainer.get_train_dataloader():
        counts[batch["dataset_name"]] += 1
        if batch["dataset_name"] == "ccp":
            centres, contexts = batch["sentence_document_id"].chunk(2)
            assert torch.equal(centres, contexts)
            assert len(batch["sentence_language_id"].unique()) == 1
        else:
            assert len(batch["source_text_id"]) == 4
    assert counts["ccp"] > counts["pairs"] > counts["host"] > 0
    trainer.train()
    assert len(ccp.bank) > 0
    assert ccp.state_is_kept
    assert pairs.state_is_kept


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, "LengthGroupedBatchSampler"),
        (Rows(), "LanguageBatchSampler"),
        ("batch_sampler", "DefaultBatchSampler"),
    ],
)
def test_samplers_of_the_arguments_and_of_the_loss_replace_the_default(
    chosen: Any,
    expected: str,
    tmp_path: Path,
) -> None:
    model = tiny.transformer()
    loss = SemanticContrastiveLoss(model, batches=LengthGroupedBatches(model.tokenizer))
    args = arguments(tmp_path, batch_sampler=chosen)
    trainer = CrossLingualTrainer(model, args, tiny.pairs(), loss=loss)
    sampler = trainer.get_train_dataloader().batch_sampler
    drawn_by = getattr(sampler, "batch_sampler", sampler)
    assert type(drawn_by).__name__ == expected


def test_an_evaluation_reads_what_a_training_reads_and_the_same_batches_each_time(
    tmp_path: Path,
) -> None:
    model = tiny.static()
    rows = tiny.documents().remove_columns("position")
    with_titles = rows.add_column("title", ["sun"] * 60)
    with_titles = with_titles.select_columns(["title", *rows.column_names])
    args = arguments(tmp_path, dataloader_num_workers=1, dataloader_persistent_workers=True)
    loss = {"a": CCPLoss(model, bank_size=0)}
    trainer = CrossLingualTrainer(model, args, {"a": rows}, {"a": rows}, loss)
    first = trainer.evaluate()["eval_a_loss"]
    assert trainer.evaluate()["eval_a_loss"] == first
    assert trainer.evaluate({"a": with_titles})["eval_a_loss"] == first


@pytest.mark.parametrize("chosen", [None, "batch_sampler"])
def test_data_sets_that_come_later_are_refused_if_they_are_not_selected(
    chosen: Any,
    tmp_path: Path,
) -> None:
    loss = SemanticContrastiveLoss(tiny.static())
    rows = tiny.pairs(8)
    args = arguments(tmp_path, batch_sampler=chosen)
    trainer = CrossLingualTrainer(loss.model, args, rows, rows, loss=loss)
    other = rows.add_column("id", list("abcdefgh"))
    trainer.train_dataset = other
    trainer.eval_dataset = other
    for start in (trainer.train, trainer.evaluate, lambda: trainer.predict(other)):
        with pytest.raises(ValueError, match="'id'"):
            start()


# Models and losses


def one_step(
    folder: Path,
    model: SentenceTransformer,
    loss: nn.Module,
    *,
    rows: Dataset | None = None,
    weights: list[Any] | None = None,
    **options: Any,
) -> None:
    """A training, with an optimizer of these weights if there are some."""
    optimizer = None if weights is None else torch.optim.SGD(weights, lr=0.1)
    args = arguments(folder, max_steps=1, **options)
    CrossLingualTrainer(
        model,
        args,
        tiny.documents() if rows is None else rows,
        loss=loss,
        optimizers=(optimizer, None),
    ).train()


def test_a_loss_of_another_model_is_refused(tmp_path: Path) -> None:
    model = tiny.static(features=16)
    with pytest.raises(ValueError, match="another model"):
        one_step(tmp_path, model, CCPLoss(tiny.static(), bank_size=8))
    inner = SemanticContrastiveLoss(tiny.static(features=16))
    with pytest.raises(ValueError, match="another model"):
        one_step(tmp_path, model, MatryoshkaLoss(model, inner, [16, 8]), rows=tiny.pairs())


def test_an_optimizer_that_trains_nothing_or_not_all_is_refused(tmp_path: Path) -> None:
    model = tiny.static()
    loss = CCPLoss(model, bank_size=8)
    of_model = list(model.parameters())
    with pytest.raises(ValueError, match="lacks parameters"):
        one_step(tmp_path, model, loss, weights=of_model)
    with pytest.raises(ValueError, match="nothing of the encoder"):
        one_step(tmp_path, model, loss, freeze_embeddings=True)
    with pytest.raises(ValueError, match="lora_rank"):
        one_step(tmp_path, model, loss, weights=of_model, lora_rank=2)
    one_step(tmp_path, model, loss, weights=[*of_model, *loss.owned_parameters()])


def trainer_with_init(folder: Path, loss: Any) -> CrossLingualTrainer:
    args = arguments(folder, max_steps=3, freeze_embeddings=True)
    return CrossLingualTrainer(
        args=args,
        train_dataset=tiny.documents(),
        loss=loss,
        model_init=lambda: tiny.transformer(),
    )


def ccp_of(model: SentenceTransformer) -> CCPLoss:
    return CCPLoss(model, bank_size=8)


def test_each_training_with_model_init_has_a_model_and_losses_of_its_own(tmp_path: Path) -> None:
    trainer = trainer_with_init(tmp_path, ccp_of)
    trainer.train()
    first = state_of(trainer.loss)
    moved = changed(tiny.transformer().state_dict(), trainer.model)
    assert moved
    assert [name for name in moved if "word_embeddings" in name] == []
    trainer.train()
    assert trainer.loss.model is trainer.model
    assert not changed(first, trainer.loss)
    with pytest.raises(ValueError, match="as a function"):
        trainer_with_init(tmp_path, CCPLoss(tiny.transformer()))


def test_trials_of_a_search_choose_arguments_of_ours_but_not_those_that_are_read_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "transformers.integrations.integration_utils.is_wandb_available", lambda: True
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=SimpleNamespace(id=0)))
    trainer = trainer_with_init(tmp_path, ccp_of)
    trainer.hp_search_backend = HPSearchBackend.WANDB
    trainer.train(trial={"keep_trained": 0.0})
    assert not changed(tiny.transformer().state_dict(), trainer.model)
    with pytest.raises(ValueError, match="token_dropout"):
        trainer.train(trial={"token_dropout": 0.5})
    # The arguments name it still, and the collator does not have it.
    with pytest.raises(ValueError, match="token_dropout"):
        trainer.train(trial={"keep_trained": 0.0})


# Arguments of the host

MAKERS = [SentenceTransformerTrainingArguments, CrossLingualTrainingArguments]


def plain_arguments(make: Any, folder: Path, **options: Any) -> Any:
    return make(
        str(folder),
        per_device_train_batch_size=4,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        **options,
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("ratio_of_many", "expected"),
    [
        (1.0, {"many": 9, "few": 1}),  # by size, as the host draws them
        (0.0, {"few": 10}),
    ],
)
def test_an_epoch_is_the_hosts_where_no_loss_declares_a_ratio(
    make: Any,
    ratio_of_many: float,
    expected: dict[str, int],
    tmp_path: Path,
) -> None:
    model = tiny.static()
    rows = tiny.pairs()
    datasets = {"many": rows.select(range(36)), "few": rows.select(range(36, 40))}
    losses = {
        "many": SemanticContrastiveLoss(model, ratio=ratio_of_many),
        "few": SemanticContrastiveLoss(model),
    }
    args = plain_arguments(make, tmp_path, multi_dataset_batch_sampler="proportional")
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses)
    names = [batch["dataset_name"] for batch in trainer.get_train_dataloader()]
    assert Counter(names) == expected


@pytest.mark.parametrize("make", MAKERS)
def test_a_loss_of_the_host_reads_each_row_once(make: Any, tmp_path: Path) -> None:
    model = tiny.static()
    rows = of_host(tiny.pairs())
    datasets = {"many": rows.select(range(36)), "few": rows.select(range(36, 40))}
    args = plain_arguments(make, tmp_path)
    loss = MultipleNegativesRankingLoss(model)
    trainer = CrossLingualTrainer(model, args, datasets, loss=loss)
    texts = []
    for batch in trainer.get_train_dataloader():
        texts += batch["source_text_id"].tolist()
    assert len(texts) == 40
    assert max(Counter(texts).values()) == max(Counter(rows["source"]).values())
    assert trainer.train().global_step == 30
    if make is SentenceTransformerTrainingArguments:
        assert trainer.args.precision == "fp32"


def as_they_are(rows: Dataset) -> Any:
    return rows


def as_stream(rows: Dataset) -> Any:
    return rows.to_iterable_dataset()


@pytest.mark.parametrize("given", [as_they_are, as_stream])
def test_a_host_loss_does_not_lose_the_texts_of_a_column_named_document(
    given: Callable[[Dataset], Any],
    tmp_path: Path,
) -> None:
    model = tiny.static()
    pairs = of_host(tiny.pairs()).rename_columns({"source": "query", "target": "document"})
    loss = MultipleNegativesRankingLoss(model)
    with pytest.raises(ValueError, match="'document'"):
        CrossLingualTrainer(model, arguments(tmp_path), given(pairs), loss=loss)
    renamed = pairs.rename_column("document", "positive")
    CrossLingualTrainer(model, arguments(tmp_path, max_steps=1), given(renamed), loss=loss)


# What it counts and refuses


def settings_of_dropout(model: SentenceTransformer) -> list[tuple[type, float | None]]:
    return [(type(part), getattr(part, "p", None)) for part in model.modules()]


def test_not_a_number_stops_the_run_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = tiny.transformer(dropout=0.1)
    before = settings_of_dropout(model)
    loss = SemanticContrastiveLoss(model)
    factors = iter([1.0, 1.0, float("nan")])  # of the first batches
    loss.register_forward_hook(lambda module, inputs, value: value * next(factors))
    trainer, recorder = trainer_of(
        tmp_path,
        {"parallel": loss},
        {"parallel": tiny.pairs()},
        freeze_embeddings=True,
        lora_rank=2,
        dropout=0.5,
        max_steps=4,
        gradient_accumulation_steps=2,
    )
    with pytest.raises(FloatingPointError, match="parallel is nan at step 2"):
        trainer.train()
    assert len(recorder.weights) == 1
    assert settings_of_dropout(model) == before
    for weight in model.parameters():
        assert weight.requires_grad
        assert weight.isfinite().all()


@pytest.mark.parametrize("name", ["head", "word_embeddings"])
def test_weights_that_are_not_finite_reach_no_checkpoint(name: str, tmp_path: Path) -> None:
    trainer, _ = run_of("ccp", tmp_path, max_steps=1)
    module = trainer.loss["ccp"].head if name == "head" else trainer.model
    nn.init.constant_(next(module.parameters()), float("nan"))
    with pytest.raises(FloatingPointError, match=name):
        trainer.save_model(str(tmp_path / "checkpoint-1"))
    assert not (tmp_path / "checkpoint-1").exists()


@pytest.mark.parametrize(
    ("make", "has_special_tokens"),
    [(tiny.transformer, True), (tiny.static, False)],
)
def test_tokens_are_counted_without_padding_and_without_evaluation(
    make: Any,
    has_special_tokens: bool,
    tmp_path: Path,
) -> None:
    texts = [" ".join(tiny.WORDS[: 1 + number % 3]) for number in range(16)]
    ids = tiny.tokenizer()(texts, add_special_tokens=has_special_tokens)["input_ids"]
    rows = Dataset.from_dict({"source": texts, "target": texts[::-1]})
    model = make()
    args = arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2)
    loss = SemanticContrastiveLoss(model)
    trainer = CrossLingualTrainer(model, args, rows, rows.select(range(8)), loss)
    trainer.train()
    assert trainer.state.num_input_tokens_seen == 2 * sum(map(len, ids))


# Options of the arguments


def trained_part(
    folder: Path, share: float, checkpoint: str | None = None, *, seed: int = 0
) -> SentenceTransformer:
    model = tiny.static(seed=seed)
    trainer, _ = trainer_of(
        folder,
        {"p": SemanticContrastiveLoss(model)},
        {"p": tiny.pairs()},
        max_steps=3,
        save_strategy="steps",
        save_steps=1,
        keep_trained=share,
    )
    trainer.train(checkpoint)
    return model


@pytest.mark.slow
def test_part_of_the_training_is_kept(tmp_path: Path) -> None:
    part = state_of(trained_part(tmp_path, 0.25))
    whole = state_of(trained_part(tmp_path, 1.0))
    for name, start in tiny.static().state_dict().items():
        expected = torch.lerp(start, whole[name], 0.25)
        torch.testing.assert_close(part[name], expected, rtol=1e-4, atol=1e-6)
    checkpoint = str(tmp_path / "checkpoint-1")
    resumed = trained_part(tmp_path, 0.25, checkpoint)
    assert not changed(part, resumed)
    with pytest.raises(ValueError, match="checkpoint-1 did not begin with the weights of this"):
        trained_part(tmp_path, 0.25, checkpoint, seed=1)
    trained_part(tmp_path, 1.0, checkpoint, seed=1)  # of which nothing stays
    trained_part(tmp_path, 0.25, str(tmp_path / "checkpoint-2"))  # it began as the first one


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_attention_and_length_are_those_of_the_model_again(
    attention: str,
    tmp_path: Path,
) -> None:
    model = tiny.transformer(dropout=0.1)
    model[0].auto_model.set_attn_implementation(attention)

    def settings() -> tuple[set[float], dict[str, Any]]:
        shares = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
        return shares, dict(vars(model[0].auto_model.config))

    before = settings()
    loss = SemanticContrastiveLoss(model)
    in_training: list[tuple[set[float], dict[str, Any]]] = []
    loss.register_forward_pre_hook(lambda *_: in_training.append(settings()))
    trainer, _ = trainer_of(
        tmp_path,
        {"p": loss},
        {"p": tiny.pairs()},
        max_steps=1,
        dropout=0.3,
        precision="bf16",
        train_seq_length=5,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    assert batch["source_input_ids"].shape[1] == 5
    assert model.max_seq_length == 16
    trainer.train()
    ((dropout, config),) = in_training
    assert dropout == {0.3}
    assert "eager" in config.values()
    assert before == settings()
    assert attention in before[1].values()


def test_the_rate_drops_to_a_tenth_after_shares_of_the_steps(tmp_path: Path) -> None:
    drops = [5 / 6, 2 / 6, 4 / 6]
    trainer, _ = run_of("ml-ctl", tmp_path, max_steps=6, lr_drops=drops, warmup_steps=1)
    trainer.create_optimizer_and_scheduler(6)
    rates = []
    for _ in range(6):
        rates.append(trainer.lr_scheduler.get_last_lr()[0])
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    assert rates == pytest.approx([0, 1e-2, 0.8e-3, 0.6e-3, 0.4e-4, 0.2e-5])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep_trained": 1.5}, r"keep_trained 1.5: it has to be in \[0, 1\]"),
        ({"lr_drops": [0.5, 2.0]}, r"lr_drops 2.0: it has to be in \[0, 1\]"),
        ({"dropout": -0.1}, "dropout -0.1"),
        ({"token_dropout": float("nan")}, "token_dropout nan"),
        ({"train_seq_length": 0}, "train_seq_length 0: it has to be 1 or more"),
        ({"train_seq_length": -1}, "train_seq_length -1"),
        ({"lora_rank": 0}, "lora_rank 0"),
        ({"num_train_epochs": 0}, "num_train_epochs 0: it has to be above 0"),
        ({"keep_trained": 0.5, "lora_rank": 2}, "keep_trained 0.5: it is 1 with lora_rank"),
    ],
)
def test_options_that_will_not_do(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        arguments(tmp_path, **options)


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (2, r"train_seq_length 2: it has to be in \[3, 16\]"),  # special tokens alone
        (17, r"train_seq_length 17: it has to be in \[3, 16\]"),
    ],
)
def test_lengths_that_the_encoder_cannot_read_are_refused(
    length: int, said: str, tmp_path: Path
) -> None:
    loss = SemanticContrastiveLoss(tiny.transformer())
    args = arguments(tmp_path, train_seq_length=length)
    with pytest.raises(ValueError, match=said):
        CrossLingualTrainer(loss.model, args, tiny.pairs(), loss=loss)


def test_a_length_that_a_prompt_fills_is_refused(tmp_path: Path) -> None:
    loss = SemanticContrastiveLoss(tiny.transformer())
    args = arguments(tmp_path, train_seq_length=5, prompts={"source": "sun moon star "})
    with pytest.raises(ValueError, match="train_seq_length 5"):
        CrossLingualTrainer(loss.model, args, tiny.pairs(), loss=loss)


def host_loss(model: SentenceTransformer) -> nn.Module:
    return MultipleNegativesRankingLoss(model)


@pytest.mark.parametrize("make", [SemanticContrastiveLoss, host_loss])
def test_texts_that_are_missing_are_refused_by_row_and_column(make: Any, tmp_path: Path) -> None:
    loss = make(tiny.static())
    rows = of_host(tiny.pairs(4)).to_dict()
    rows["target"][2] = None
    lacking = Dataset.from_dict(rows)
    with pytest.raises(ValueError, match="row 2 has no 'target'"):
        CrossLingualTrainer(loss.model, arguments(tmp_path), lacking, loss=loss)
    without = lacking.select([0, 1, 3])
    CrossLingualTrainer(loss.model, arguments(tmp_path), without, loss=loss)


NAMES: list[tuple[dict[str, Any], str]] = [
    ({"prompts": {"sorce": "sun "}}, r"prompts names \['sorce'\], and there are .*'source'"),
    ({"prompts": {"pears": {"source": "sun "}}}, r"prompts names \['pears'\].*'pairs'"),
    ({"prompts": {"pairs": {"sorce": "sun "}}}, r"prompts names \['sorce'\]"),
    ({"prompts": {"source_language": "sun "}}, "prompts names"),  # no text
    ({"router_mapping": {"sorce": "document"}}, r"router_mapping names \['sorce'\]"),
]


@pytest.mark.parametrize(("options", "said"), NAMES)
def test_options_that_name_no_column_and_no_data_set_are_refused(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    loss = SemanticContrastiveLoss(tiny.static())
    args = arguments(tmp_path, **options)
    with pytest.raises(ValueError, match=said):
        CrossLingualTrainer(loss.model, args, {"pairs": tiny.pairs()}, loss=loss)


def test_a_loss_of_no_data_set_is_refused(tmp_path: Path) -> None:
    loss = SemanticContrastiveLoss(tiny.static())
    losses = {"pairs": loss, "pears": loss}
    with pytest.raises(ValueError, match=r"loss names \['pears'\], and there are \['pairs'\]"):
        CrossLingualTrainer(loss.model, arguments(tmp_path), {"pairs": tiny.pairs()}, loss=losses)


@pytest.mark.parametrize("prompts", [None, "sun ", {"source": "sun "}, {"a": {"source": "sun "}}])
def test_one_loss_of_several_data_sets_is_logged_for_each(prompts: Any, tmp_path: Path) -> None:
    loss = SemanticContrastiveLoss(tiny.static())
    args = arguments(
        tmp_path, max_steps=8, prompts=prompts, logging_strategy="steps", logging_steps=8
    )
    datasets = {"a": tiny.pairs(), "b": tiny.pairs()}
    trainer = CrossLingualTrainer(loss.model, args, datasets, loss=loss)
    trainer.train()
    assert {"loss_a", "loss_b"} <= set(trainer.state.log_history[0])


def test_the_users_data_sets_stay_as_they_are(tmp_path: Path) -> None:
    loss = host_loss(tiny.static())
    rows = of_host(tiny.pairs(8))
    args = arguments(tmp_path)
    trainer = CrossLingualTrainer(loss.model, args, {"a": rows}, loss={"a": loss})
    assert "dataset_name" in trainer.train_dataset["a"][0]
    assert "dataset_name" not in rows[0]


def test_a_training_without_a_step_is_an_error(tmp_path: Path) -> None:
    loss = host_loss(tiny.static())
    args = arguments(tmp_path, max_steps=2, dataloader_drop_last=True)
    trainer = CrossLingualTrainer(loss.model, args, of_host(tiny.pairs(3)), loss=loss)
    with pytest.raises(ValueError, match="no step was trained"):
        trainer.train()
