"""CrossLingualTrainer meets what the losses ask for, counts and logs, and stops on what is not finite."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.losses import (
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor
from transformers.trainer_utils import HPSearchBackend

from st_xlret.batches import LengthGroupedBatches, Rows
from st_xlret.losses import CCPLoss, RetrievalContrastiveLoss, SemanticContrastiveLoss
from st_xlret.modules import with_two_encoders
from st_xlret.training import CrossLingualTrainer, CrossLingualTrainingArguments
from tests import tiny
from tests.training.runs import PARTS, arguments, changed, run_of, state_of, trainer_of


def of_host(pairs: Dataset) -> Dataset:
    return pairs.select_columns(["source", "target"])


def test_each_loss_draws_its_own_batches_as_often_as_its_ratio_says_beside_those_of_the_host(
    tmp_path: Path,
) -> None:
    model = tiny.static(features=16)
    ccp, pairs = CCPLoss(model, bank_size=8, ratio=4.0), SemanticContrastiveLoss(model, ratio=2.0)
    losses = {
        "ccp": ccp,
        "pairs": MatryoshkaLoss(model, pairs, [16, 8]),
        "host": MultipleNegativesRankingLoss(model),
    }
    datasets = {"ccp": tiny.documents(40), "pairs": tiny.pairs(80), "host": of_host(tiny.pairs(80))}
    trainer = CrossLingualTrainer(model, arguments(tmp_path, max_steps=8), datasets, loss=losses)
    counts = Counter[str]()
    for batch in trainer.get_train_dataloader():
        counts[batch["dataset_name"]] += 1
        if batch["dataset_name"] == "ccp":
            centres, contexts = batch["sentence_document_id"].chunk(2)
            assert (
                torch.equal(centres, contexts) and len(batch["sentence_language_id"].unique()) == 1
            )
        else:
            assert len(batch["source_text_id"]) == 4
    assert counts["ccp"] > counts["pairs"] > counts["host"] > 0
    trainer.train()
    assert len(ccp.bank) and ccp.state_is_kept and pairs.state_is_kept


def test_samplers_of_the_arguments_and_of_the_loss_replace_the_default(tmp_path: Path) -> None:
    model = tiny.transformer()
    loss = SemanticContrastiveLoss(model, batches=LengthGroupedBatches(model.tokenizer))
    cases = {
        None: "LengthGroupedBatchSampler",
        Rows(): "LanguageBatchSampler",
        "batch_sampler": "DefaultBatchSampler",
    }
    for chosen, expected in cases.items():
        trainer = CrossLingualTrainer(
            model, arguments(tmp_path, batch_sampler=chosen), tiny.pairs(), loss=loss
        )
        sampler = trainer.get_train_dataloader().batch_sampler
        assert type(getattr(sampler, "batch_sampler", sampler)).__name__ == expected


def test_what_would_train_nothing_or_the_wrong_thing_is_refused_before_the_first_step(
    tmp_path: Path,
) -> None:
    model, wide = tiny.static(), tiny.static(features=16)
    loss = CCPLoss(model, bank_size=8)
    wrapped = MatryoshkaLoss(wide, SemanticContrastiveLoss(tiny.static(features=16)), [16, 8])

    def start(loss: Any, model: Any, data: Dataset, *, weights: Any = None, **options: Any) -> None:
        optimizer = weights and torch.optim.SGD(weights, lr=0.1)
        args = arguments(tmp_path, max_steps=1, **options)
        CrossLingualTrainer(model, args, data, loss=loss, optimizers=(optimizer, None)).train()

    for other, model_of_run, data, options, said in (
        (loss, model, tiny.documents(), {"weights": [*model.parameters()]}, "lacks parameters"),
        (loss, tiny.static(), tiny.documents(), {}, "another model"),
        (wrapped, wide, tiny.pairs(), {}, "another model"),
        (loss, model, tiny.documents(), {"freeze_embeddings": True}, "nothing of the encoder"),
        (
            loss,
            model,
            tiny.documents(),
            {"weights": [*model.parameters()], "lora_rank": 2},
            "lora_rank",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            start(other, model_of_run, data, **options)
    start(loss, model, tiny.documents(), weights=[*model.parameters(), *loss.owned_parameters()])


def test_an_evaluation_reads_what_a_training_reads_and_the_same_batches_each_time(
    tmp_path: Path,
) -> None:
    model, rows = tiny.static(), tiny.documents().remove_columns("position")
    titles = rows.add_column("title", ["sun"] * 60).select_columns(["title", *rows.column_names])
    args = arguments(tmp_path, dataloader_num_workers=1, dataloader_persistent_workers=True)
    trainer = CrossLingualTrainer(
        model, args, {"a": rows}, {"a": rows}, {"a": CCPLoss(model, bank_size=0)}
    )
    assert (
        len({trainer.evaluate(given)["eval_a_loss"] for given in (None, None, {"a": titles})}) == 1
    )


@pytest.mark.parametrize("chosen", [None, "batch_sampler"])
def test_data_sets_that_come_later_are_refused_if_they_are_not_selected(
    tmp_path: Path, chosen: Any
) -> None:
    loss, rows = SemanticContrastiveLoss(tiny.static()), tiny.pairs(8)
    trainer = CrossLingualTrainer(
        loss.model, arguments(tmp_path, batch_sampler=chosen), rows, rows, loss=loss
    )
    trainer.train_dataset = trainer.eval_dataset = other = rows.add_column("id", list("abcdefgh"))
    for start in (trainer.train, trainer.evaluate, lambda: trainer.predict(other)):
        with pytest.raises(ValueError, match="'id'"):
            start()


def test_each_training_with_model_init_has_a_model_and_losses_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trainer_with(**options: Any) -> CrossLingualTrainer:
        args = arguments(tmp_path, max_steps=3, freeze_embeddings=True)
        return CrossLingualTrainer(args=args, train_dataset=tiny.documents(), **options)

    trainer = trainer_with(
        model_init=lambda: tiny.transformer(), loss=lambda model: CCPLoss(model, bank_size=8)
    )
    trainer.train()
    start, first = tiny.transformer().state_dict(), state_of(trainer.loss)
    moved = changed(start, trainer.model)
    assert moved and not [name for name in moved if "word_embeddings" in name]
    trainer.train()
    assert trainer.loss.model is trainer.model and not changed(first, trainer.loss)
    # A search, whose trials choose arguments of ours, too.
    monkeypatch.setattr(
        "transformers.integrations.integration_utils.is_wandb_available", lambda: True
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=SimpleNamespace(id=0)))
    trainer.hp_search_backend = HPSearchBackend.WANDB
    trainer.train(trial={"keep_trained": 0.0})
    assert not changed(start, trainer.model)
    with pytest.raises(ValueError, match="token_dropout"):
        trainer.train(trial={"token_dropout": 0.5})
    with pytest.raises(ValueError, match="as a function"):
        trainer_with(model_init=lambda: tiny.transformer(), loss=CCPLoss(tiny.transformer()))


@pytest.mark.parametrize(
    "make", [SentenceTransformerTrainingArguments, CrossLingualTrainingArguments]
)
def test_arguments_of_the_host_are_taken_over_and_its_epoch_where_no_loss_declares_a_ratio(
    tmp_path: Path, make: Any
) -> None:
    model, rows = tiny.static(), tiny.pairs()
    datasets = {"many": rows.select(range(36)), "few": rows.select(range(36, 40))}
    options = {
        "per_device_train_batch_size": 4,
        "report_to": "none",
        "use_cpu": True,
        "save_strategy": "no",
    }
    args = make(str(tmp_path), multi_dataset_batch_sampler="proportional", **options)

    def batches(**ratio: float) -> Counter[str]:
        losses = {
            name: SemanticContrastiveLoss(model, ratio=ratio.get(name, 1.0)) for name in datasets
        }
        trainer = CrossLingualTrainer(model, args, datasets, loss=losses)
        return Counter(batch["dataset_name"] for batch in trainer.get_train_dataloader())

    assert batches() == {"many": 9, "few": 1}
    assert batches(many=0.0) == {"few": 10}
    args, loss = make(str(tmp_path), **options), MultipleNegativesRankingLoss(model)
    trainer = CrossLingualTrainer(
        model, args, {name: of_host(part) for name, part in datasets.items()}, loss=loss
    )
    texts = [
        text
        for batch in trainer.get_train_dataloader()
        for text in batch["source_text_id"].tolist()
    ]
    assert len(texts) == 40 and max(Counter(texts).values()) == max(
        Counter(rows["source"]).values()
    )
    assert trainer.train().global_step == 30
    assert (
        trainer.args.precision == "fp32" or make is CrossLingualTrainingArguments
    )  # its default is the machine's


def test_a_host_loss_does_not_lose_the_texts_of_a_column_named_document(tmp_path: Path) -> None:
    model = tiny.static()
    pairs = of_host(tiny.pairs()).rename_columns({"source": "query", "target": "document"})
    loss = MultipleNegativesRankingLoss(model)
    for rows in (pairs, pairs.to_iterable_dataset()):
        with pytest.raises(ValueError, match="'document'"):
            CrossLingualTrainer(model, arguments(tmp_path), rows, loss=loss)
    CrossLingualTrainer(
        model, arguments(tmp_path), pairs.rename_column("document", "positive"), loss=loss
    )


# Prompts and routes


def test_columns_of_queries_take_their_encoder_and_prompt_and_other_routes_are_left_to_the_user(
    tmp_path: Path,
) -> None:
    model = with_two_encoders(tiny.transformer())
    model.prompts = {"query": "sun ", "document": "", "passage": "moon "}
    for column in ("query", "anchor", "question_1"):
        rows = Dataset.from_dict({column: ["bear"] * 4, "positive": ["fish"] * 4})
        trainer = CrossLingualTrainer(
            model, arguments(tmp_path), rows, loss=RetrievalContrastiveLoss(model)
        )
        batch = next(iter(trainer.get_train_dataloader()))
        assert batch[f"{column}_task"] == "query" and batch["positive_task"] == "document"
        for name, text in ((column, "sun bear"), ("positive", "moon fish")):
            assert batch[f"{name}_input_ids"][0].tolist() == tiny.tokenizer()(text)["input_ids"]
    router = Router({"fr": [tiny.static()[0]], "de": [tiny.static()[0]]}, default_route="fr")
    model = SentenceTransformer(modules=[router], device="cpu")
    with pytest.raises(ValueError, match="router_mapping"):
        CrossLingualTrainer(
            model, arguments(tmp_path), tiny.pairs(), loss=SemanticContrastiveLoss(model)
        )


@pytest.mark.parametrize("names", [("train", "eval"), ("query", "question")])
def test_data_to_evaluate_on_have_prompts_and_routes_whatever_their_names_and_columns(
    names: tuple[str, str], tmp_path: Path
) -> None:
    model = with_two_encoders(tiny.transformer())
    model.prompts = {"query": "sun ", "document": "moon "}
    texts = ["bear wolf", "fish bird", "star leaf", "root tree"]
    trained = Dataset.from_dict({"query": texts, "positive": texts[::-1]})
    measured = Dataset.from_dict({"question": texts, "answer": texts[::-1], "negative": texts})
    loss = RetrievalContrastiveLoss(model)
    trainer = CrossLingualTrainer(
        model,
        arguments(tmp_path),
        {names[0]: trained},
        {names[1]: measured},
        loss={name: loss for name in names},
    )
    (batch,) = trainer.get_eval_dataloader(trainer.eval_dataset[names[1]])
    for column, task, prompt in (("question", "query", "sun"), ("answer", "document", "moon")):
        words = tiny.tokenizer().decode(batch[f"{column}_input_ids"][0], skip_special_tokens=True)
        assert batch[f"{column}_task"] == task and words.startswith(prompt)
    before = trainer.evaluate()
    for name, weight in model.named_parameters():
        if "sub_modules.query" in name:
            weight.data *= 1.5
    assert trainer.evaluate()[f"eval_{names[1]}_loss"] != before[f"eval_{names[1]}_loss"]


def test_no_prompt_is_a_prompt_that_is_given(tmp_path: Path) -> None:
    model = tiny.transformer()
    model.prompts = {"query": "sun ", "document": ""}
    rows = Dataset.from_dict({"query": ["bear"] * 4, "positive": ["fish"] * 4})
    loss = RetrievalContrastiveLoss(model)
    for prompts, text in ((None, "sun bear"), ("", "bear"), ({"query": "moon "}, "moon bear")):
        args = arguments(tmp_path, prompts=prompts)
        trainer = CrossLingualTrainer(model, args, rows, loss=loss)
        batch = next(iter(trainer.get_train_dataloader()))
        assert batch["query_input_ids"][0].tolist() == tiny.tokenizer()(text)["input_ids"]


# One step on the sum of all losses


def naive_gradients(
    trainer: CrossLingualTrainer, weights: dict[str, Tensor], batches: list[dict[str, Any]]
) -> dict:
    """Of the sum of all losses on these batches, in one backward pass."""
    for name, parameter in trainer.model.named_parameters():
        parameter.data = weights[f"semantic/model.{name}"]
    trainer.model.zero_grad()
    total: Any = 0.0
    for batch in batches:
        features, labels = trainer.collect_features(
            {k: v for k, v in batch.items() if k != "dataset_name"}
        )
        total = total + trainer.loss[batch["dataset_name"]](features, labels)
    total.backward()
    return {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("rounds", "two_encoders"), [(1, True), (2, False)])
def test_joint_gradients_are_those_of_the_summed_loss(
    rounds: int, two_encoders: bool, tmp_path: Path
) -> None:
    options = {
        "max_steps": 2,
        "max_grad_norm": 0.0,
        "gradient_accumulation_steps": rounds,
        "dropout": 0.0,
    }
    trainer, recorded = run_of("joint", tmp_path, two_encoders=two_encoders, **options)
    assert trainer.args.gradient_accumulation_steps == 3 * rounds
    trainer.train()
    batches = list(trainer.get_train_dataloader())
    if two_encoders:
        batch = next(batch for batch in batches if batch["dataset_name"] == "retrieval")
        routes = [batch[f"{column}_task"] for column in ("query", "positive", "negative_1")]
        assert routes == ["query", "document", "document"]
    for step, (gradients, weights) in enumerate(
        zip(recorded.gradients, recorded.weights, strict=True)
    ):
        of_step = batches[3 * rounds * step : 3 * rounds * (step + 1)]
        assert [batch["dataset_name"] for batch in of_step] == [*PARTS] * rounds
        for name, expected in naive_gradients(trainer, weights, of_step).items():
            gradient = gradients[f"semantic/model.{name}"]
            torch.testing.assert_close(gradient, expected / rounds, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize("kind", ["ccp", "joint"])
def test_the_mean_of_each_loss_is_logged_and_the_joint_loss_is_their_sum(
    kind: str, tmp_path: Path
) -> None:
    trainer, recorder = run_of(
        kind, tmp_path, max_steps=9, logging_strategy="steps", logging_steps=4
    )
    trainer.train()
    recorder.steps.clear()
    trainer.train()  # the last step of before is in no line
    lines = [line for line in trainer.state.log_history if "loss" in line]
    for line, first in zip(lines, (0, 4), strict=True):
        steps = [(name, value) for step, name, value in recorder.steps if first <= step < first + 4]
        assert {key for key in line if key.startswith("loss_")} == {
            f"loss_{name}" for name, _ in steps
        }
        for name in {name for name, _ in steps}:
            values = [value for other, value in steps if other == name]
            assert line[f"loss_{name}"] == pytest.approx(sum(values) / len(values), abs=1e-4)
        if kind == "joint":
            assert line["loss"] == pytest.approx(
                sum(line[f"loss_{part}"] for part in PARTS), abs=2e-4
            )


# What it logs, counts and refuses


def test_not_a_number_stops_the_run_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = tiny.transformer(dropout=0.1)
    parts = [(type(part), getattr(part, "p", None)) for part in model.modules()]
    options: dict[str, Any] = {"freeze_embeddings": True, "lora_rank": 2, "dropout": 0.5}
    options |= {"max_steps": 4, "gradient_accumulation_steps": 2}
    loss, factors = (
        SemanticContrastiveLoss(model),
        iter([1.0, 1.0, float("nan")]),
    )  # of the first batches
    loss.register_forward_hook(lambda module, inputs, value: value * next(factors))
    trainer, recorder = trainer_of(
        tmp_path, {"parallel": loss}, {"parallel": tiny.pairs()}, **options
    )
    with pytest.raises(FloatingPointError, match="parallel is nan at step 2"):
        trainer.train()
    assert len(recorder.weights) == 1
    assert [(type(part), getattr(part, "p", None)) for part in model.modules()] == parts
    assert all(weight.requires_grad and weight.isfinite().all() for weight in model.parameters())


def test_weights_that_are_not_finite_reach_no_checkpoint(tmp_path: Path) -> None:
    trainer, _ = run_of("ccp", tmp_path, max_steps=1)
    for module, name in ((trainer.loss["ccp"].head, "head"), (trainer.model, "word_embeddings")):
        torch.nn.init.constant_(next(module.parameters()), float("nan"))
        with pytest.raises(FloatingPointError, match=name):
            trainer.save_model(str(tmp_path / "checkpoint-1"))
    assert not (tmp_path / "checkpoint-1").exists()


TEXTS = [" ".join(tiny.WORDS[: 1 + i % 3]) for i in range(16)]


@pytest.mark.parametrize(("make", "special"), [(tiny.transformer, True), (tiny.static, False)])
def test_tokens_are_counted_without_padding_and_without_evaluation(
    tmp_path: Path, make: Any, special: bool
) -> None:
    model, data = make(), Dataset.from_dict({"source": TEXTS, "target": TEXTS[::-1]})
    count = sum(
        len(tiny.tokenizer()(text, add_special_tokens=special)["input_ids"]) for text in TEXTS
    )
    args = arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2)
    trainer = CrossLingualTrainer(
        model, args, data, data.select(range(8)), SemanticContrastiveLoss(model)
    )
    trainer.train()
    assert trainer.state.num_input_tokens_seen == 2 * count


# Options of the arguments


def test_part_of_the_training_is_kept(tmp_path: Path) -> None:
    def trained(share: float, checkpoint: str | None = None) -> SentenceTransformer:
        model, options = tiny.static(), {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
        loss = {"p": SemanticContrastiveLoss(model)}
        trainer_of(tmp_path, loss, {"p": tiny.pairs()}, **options, keep_trained=share)[0].train(
            checkpoint
        )
        return model

    part, whole = state_of(trained(0.25)), state_of(trained(1.0))
    for name, start in tiny.static().state_dict().items():
        torch.testing.assert_close(
            part[name], torch.lerp(start, whole[name], 0.25), rtol=1e-4, atol=1e-6
        )
    assert not changed(part, trained(0.25, str(tmp_path / "checkpoint-1")))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_attention_and_length_are_those_of_the_model_again(
    attention: str, tmp_path: Path
) -> None:
    model = tiny.transformer(dropout=0.1)
    model[0].auto_model.set_attn_implementation(attention)

    def settings() -> tuple[set[float], str]:
        shares = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
        return shares, model[0].auto_model.config._attn_implementation

    loss, in_training = SemanticContrastiveLoss(model), list[Any]()
    loss.register_forward_pre_hook(lambda *_: in_training.append(settings()))
    options = {"max_steps": 1, "dropout": 0.3, "precision": "bf16", "train_seq_length": 5}
    trainer, _ = trainer_of(tmp_path, {"p": loss}, {"p": tiny.pairs()}, **options)
    assert (
        next(iter(trainer.get_train_dataloader()))["source_input_ids"].shape[1] == 5
        and model.max_seq_length == 16
    )
    trainer.train()
    assert in_training == [({0.3}, "eager")] and settings() == ({0.1}, attention)


def test_the_rate_drops_to_a_tenth_after_shares_of_the_steps(tmp_path: Path) -> None:
    trainer, _ = run_of(
        "ml-ctl", tmp_path, max_steps=6, lr_drops=[5 / 6, 2 / 6, 4 / 6], warmup_steps=1
    )
    trainer.create_optimizer_and_scheduler(6)
    rates = []
    for _ in range(6):
        rates += trainer.lr_scheduler.get_last_lr()[:1]
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    assert rates == pytest.approx([0, 1e-2, 0.8e-3, 0.6e-3, 0.4e-4, 0.2e-5])
