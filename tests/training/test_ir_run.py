"""One Trainer over questions, translations and other sentences."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import HfArgumentParser

from st_xlret.data.batches.joint import PairsAndOthersBatchSampler
from st_xlret.data.batches.windows import LanguageBatchSampler
from st_xlret.training import LossMonitorCallback, LossStateCallback
from st_xlret.training.ir_run import (
    IRBatches,
    IROptions,
    build_ir_losses,
    choose_ir_datasets,
    freeze_unused,
    routes,
    with_two_encoders,
)
from tests import tiny
from tests.training.ir_runs import ir_run, questions


def test_every_option_has_a_help_and_choices_are_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(IROptions))
    with pytest.raises(SystemExit):
        HfArgumentParser([IROptions]).parse_args_into_dataclasses(["--language-reduction", "median"])
    assert "paper" in capsys.readouterr().err
    with pytest.raises(ValueError, match="--language-weight must not be negative, got -1"):
        IROptions(language_weight=-1)


def test_defaults_are_the_papers() -> None:
    options = IROptions()
    assert (options.semantic_weight, options.language_weight, options.language_reduction) == (0.01, 0.001, "paper")
    assert options.pairs_mixing == 1.0


def chosen(pairs: Any = None, others: Any = None, **options: Any) -> list[str]:
    return list(choose_ir_datasets(questions(), pairs, others, IROptions(**options)))


def test_what_is_given_decides_what_is_trained() -> None:
    pairs, others = tiny.pairs(), tiny.texts()
    assert chosen(pairs, others) == ["semantic", "language", "retrieval"]
    assert chosen(pairs, others, language_weight=0) == ["semantic", "retrieval"]
    assert chosen(pairs, None, semantic_weight=0) == ["language", "retrieval"]
    assert chosen(None, others, semantic_weight=0, language_weight=0) == ["retrieval"]
    with pytest.raises(ValueError, match="cross-lingual losses need parallel sentences, of some languages at least"):
        chosen(None, others)


def test_losses_are_built_as_the_options_say() -> None:
    options = IROptions(
        scale=7.0, semantic_weight=0.3, semantic_temperature=0.2, language_weight=0.4, language_reduction="sum"
    )
    losses: Any = build_ir_losses(tiny.static(), ["semantic", "language", "retrieval"], options)
    assert (losses["semantic"].weight, losses["semantic"].temperature) == (0.3, 0.2)
    assert (losses["language"].weight, losses["language"].reduction) == (0.4, "sum")
    assert (losses["retrieval"].weight, losses["retrieval"].scale) == (1.0, 7.0)


def test_each_dataset_has_its_sampler_and_size() -> None:
    datasets = choose_ir_datasets(questions(), tiny.pairs(), tiny.texts(), IROptions())
    batches = IRBatches(pairs=5, others=3)
    samplers = {name: batches(dataset, 4, False, None, None, 1) for name, dataset in datasets.items()}
    assert isinstance(samplers["language"], PairsAndOthersBatchSampler)
    assert type(samplers["semantic"]) is type(samplers["retrieval"]) is LanguageBatchSampler
    assert {name: len(next(iter(sampler))) for name, sampler in samplers.items()} == {
        "semantic": 5,
        "language": 8,
        "retrieval": 4,
    }
    assert len(next(iter(IRBatches()(datasets["language"], 4)))) == 8


def test_columns_take_their_routes() -> None:
    datasets = choose_ir_datasets(questions(), tiny.pairs(), tiny.texts(), IROptions())
    assert routes(tiny.static(), datasets) == {}
    found = routes(with_two_encoders(tiny.static()), datasets)
    passages = dict.fromkeys(["source", "target", "other"], "document")
    assert found["language"] == passages
    assert found["retrieval"] == {"query": "query", "positive": "document", "negative_1": "document"}


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_auxiliary_losses_act_on_passages_alone(make: Any, tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, model=make(), two_encoders=True, max_steps=1)
    sides = trainer.model[0].sub_modules
    for batch in list(trainer.get_train_dataloader())[:3]:
        trainer.model.zero_grad()
        name = batch["dataset_name"]
        trainer.compute_loss(trainer.model, batch).backward()
        query = any(p.grad is not None and p.grad.any() for p in sides["query"].parameters())
        passage = any(p.grad is not None and p.grad.any() for p in sides["document"].parameters())
        assert (query, passage) == (name == "retrieval", True), name


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_two_encoders_start_equal_and_are_saved_as_the_hosts(make: Any, tmp_path: Path) -> None:
    model = make()
    expected = model.encode(["sun moon"])
    two = with_two_encoders(model)
    assert (two.encode_query(["sun moon"]) == expected).all() and (two.encode_document(["sun moon"]) == expected).all()
    shared = {id(p) for p in two[0].sub_modules["query"].parameters()}
    assert not shared & {id(p) for p in two[0].sub_modules["document"].parameters()}
    trainer, _ = ir_run(tmp_path, model=two, max_steps=2)
    trainer.train()
    two.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for encode in ("encode_query", "encode_document", "encode"):
        torch.testing.assert_close(
            torch.tensor(getattr(loaded, encode)(["sun moon"])), torch.tensor(getattr(two, encode)(["sun moon"]))
        )
    assert (two.encode_query(["sun moon"]) != two.encode_document(["sun moon"])).any()
    with pytest.raises(ValueError, match="has a Router, and so encoders of its own, already"):
        with_two_encoders(two)


def test_what_no_route_uses_is_frozen() -> None:
    model = with_two_encoders(tiny.transformer())
    assert {name.split(".pooler.")[1] for name in freeze_unused(model)} == {"dense.weight", "dense.bias"}
    assert all(p.grad is None and p.requires_grad == (".pooler." not in name) for name, p in model.named_parameters())
    assert freeze_unused(with_two_encoders(tiny.static())) == []


def test_without_other_sentences_the_language_loss_takes_pairs_alone(tmp_path: Path) -> None:
    trainer, recorder = ir_run(tmp_path, others=None, max_steps=2)
    trainer.train()
    assert [name for _, name, _ in recorder.steps] == ["semantic", "language", "retrieval"] * 2
    assert "other" not in trainer.train_dataset["language"].column_names


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, max_steps=2)
    loss = trainer.loss["retrieval"]
    computed = loss.compute_loss_from_embeddings
    loss.compute_loss_from_embeddings = lambda *args: computed(*args) * float("nan")
    with pytest.raises(FloatingPointError, match=r"the loss 'retrieval' is nan at step 1, in a batch of en"):
        trainer.train()


def test_what_the_trainer_is_given(tmp_path: Path) -> None:
    trainer, _ = ir_run(tmp_path, max_steps=1)
    kinds = [type(callback) for callback in trainer.callback_handler.callbacks]
    assert LossStateCallback in kinds and LossMonitorCallback in kinds
    assert isinstance(trainer.args.batch_sampler, IRBatches)
    assert trainer.data_collator.token_dropout == 0.0
    options = IROptions(token_dropout=0.2)
    assert ir_run(tmp_path, model=tiny.static(), options=options)[0].data_collator.token_dropout == 0.2
    assert ir_run(tmp_path, options=options)[0].data_collator.token_dropout == 0.0
