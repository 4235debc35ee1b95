"""One Trainer over blocks of documents, or over what the rivals take of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import HfArgumentParser

from st_xlret.data import BlockBatchSampler, LanguageBatchSampler, SpanDataCollator, WindowBatchSampler
from st_xlret.losses import CCPLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.losses.msm import MSMLoss
from st_xlret.modules.document_encoder import DocumentEncoder
from st_xlret.modules.projection import ProjectionHead
from st_xlret.training import LossMonitorCallback, LossStateCallback, MSMOptions, build_msm_trainer
from st_xlret.training.msm_run import MSMBatches, build_losses, choose_datasets, set_pooling
from tests import tiny
from tests.training.runs import Recorder, arguments

OBJECTIVES = ("msm", "crop", "ict", "ccp", "mlm")
SMALL = {"block_sentences": 4, "span_sentences": 3, "bank_size": 8, "negatives": 16}


def small(**options: Any) -> MSMOptions:
    return MSMOptions(**{**SMALL, **options})


def chosen(model: Any, *, pairs: bool = False, **options: Any) -> list[str]:
    return list(choose_datasets(model, tiny.documents(), tiny.pairs() if pairs else None, MSMOptions(**options)))


def msm_of(**options: Any) -> MSMLoss:
    loss = build_losses(tiny.transformer(), ["msm"], MSMOptions(**options))["msm"]
    assert isinstance(loss, MSMLoss)
    return loss


def test_every_option_has_a_help_and_choices_are_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(MSMOptions))
    with pytest.raises(SystemExit):
        HfArgumentParser([MSMOptions]).parse_args_into_dataclasses(["--objective", "nsp"])
    assert "crop" in capsys.readouterr().err


def parts(loss: MSMLoss) -> tuple[int, int]:
    """Document encoders and projection heads of a loss."""
    modules = [m for name, m in loss.named_modules() if not name.startswith("model.")]
    return sum(isinstance(m, DocumentEncoder) for m in modules), sum(isinstance(m, ProjectionHead) for m in modules)


def test_defaults_are_the_papers() -> None:
    loss = msm_of()
    settings = loss.get_config_dict()
    expected = {"heads": "separate", "num_negatives": 512, "mu": 0.5, "temperature": 0.1, "mlm": None}
    expected |= {"document_encoder_layers": 2, "intra_document_negatives": True, "cross_language_negatives": False}
    assert settings | expected == settings and parts(loss) == (1, 2)
    # The encoder reads a batch of 512 sentences in parts, so that it fits small memory; a static one needs not.
    assert loss.mini_batch_size == 128 and loss.uses_gradient_cache
    static = build_losses(tiny.static(), ["msm"], MSMOptions())["msm"]
    assert isinstance(static, MSMLoss) and static.mini_batch_size is None
    encoder = next(m for m in loss.modules() if isinstance(m, DocumentEncoder))
    assert encoder.max_sentences == 32 and MSMOptions().pooling == "cls"


def test_every_row_of_the_ablations_is_reachable() -> None:
    apart = msm_of(document_encoder="separate", separate_languages=["en", "de"])
    assert parts(apart) == (2, 2) and apart.get_config_dict()["language_groups"] == [["en", "de"]]
    assert parts(msm_of(document_encoder="separate-with-heads")) == (2, 4)
    assert [parts(msm_of(projection=kind))[1] for kind in ("separate", "shared", "none")] == [2, 1, 0]
    for option, key, values in (
        ("mu", "mu", {0.0: 0.0, 0.3: 0.3, 0.7: 0.7}),
        ("cross_document_only", "intra_document_negatives", {True: False}),
        ("negatives", "num_negatives", {256: 256, 4096: 4096, 0: None}),
        ("document_layers", "document_encoder_layers", {1: 1, 4: 4, 6: 6}),
        ("mini_batch_size", "mini_batch_size", {7: 7, 0: None}),
    ):
        for given, expected in values.items():
            assert msm_of(**{option: given}).get_config_dict()[key] == expected


def test_masked_words_alternate_are_summed_or_left_out() -> None:
    model = tiny.transformer()
    assert chosen(model) == ["msm", "mlm"]
    assert chosen(model, mlm="sum") == chosen(model, mlm="none") == chosen(model, mlm_weight=0) == ["msm"]
    assert chosen(tiny.static()) == ["msm"]
    summed = msm_of(mlm="sum", mlm_weight=0.3, mask_probability=0.2).mlm
    assert isinstance(summed, MaskedLMLoss) and (summed.weight, summed.mask_probability) == (0.3, 0.2)


def test_what_is_given_decides_what_is_trained() -> None:
    model = tiny.transformer()
    assert chosen(model, pairs=True) == ["msm", "mlm", "pairs"]
    assert chosen(model, pairs=True, pairs_weight=0, objective="ict") == ["ict", "mlm"]
    assert chosen(model, objective="mlm", mlm="none") == ["mlm"]
    assert list(choose_datasets(model, None, tiny.pairs(), MSMOptions())) == ["pairs"]
    with pytest.raises(ValueError, match=r"nothing to train on.*weight above 0"):
        chosen(tiny.static(), objective="mlm")


def test_each_objective_has_its_loss() -> None:
    kinds = {"msm": MSMLoss, "crop": SemanticContrastiveLoss, "ict": SemanticContrastiveLoss, "ccp": CCPLoss}
    options = {"bank_size": 64, "span_temperature": 0.3, "temperature": 0.2}
    for name, kind in {**kinds, "mlm": MaskedLMLoss}.items():
        losses = build_losses(tiny.transformer(), [name], MSMOptions(objective=name, **options))  # type: ignore[arg-type]
        assert list(losses) == [name] and type(losses[name]) is kind
        if isinstance(losses[name], SemanticContrastiveLoss | CCPLoss):
            assert losses[name].temperature == (0.2 if name == "ccp" else 0.3)


def test_every_objective_reads_about_as_many_sentences() -> None:
    dataset = tiny.documents(count=400, sentences=6)
    pieces = {"crop_shortest": 0.25, "crop_longest": 0.75}
    read = {}
    for name in OBJECTIVES:
        options = MSMOptions(objective=name, block_sentences=6, span_sentences=3, **pieces)  # type: ignore[arg-type]
        part = choose_datasets(tiny.transformer(), dataset, None, options)[name]
        sampler = MSMBatches(options)(part, 10)
        read[name] = np.mean([len(batch) for batch in sampler])
        expected = {"ccp": WindowBatchSampler, "mlm": LanguageBatchSampler}.get(name, BlockBatchSampler)
        assert type(sampler) is expected
    assert all(57 <= mean <= 60 for mean in read.values())
    # A row of pairs is two texts.
    assert len(next(iter(MSMBatches(MSMOptions(block_sentences=6))(tiny.pairs(), 10)))) == 30


def test_a_batch_can_be_of_documents_and_single_sentences_can_stay() -> None:
    dataset = tiny.documents().select_columns(["sentence", "language", "document", "position"])
    batches = MSMBatches(small(batch_by="documents", single_sentences="negatives", alpha=0.9))
    sampler: Any = batches(dataset, 3, seed=5)
    assert (sampler.sentences_per_batch, sampler.shortest, sampler.seed) == (None, 1, 5)
    assert batches.counts is not None and batches.counts.documents == 12


def trainer_of(folder: Path, options: MSMOptions, *, seed: int = 0, **changed: Any) -> tuple[Any, Recorder]:
    model = tiny.transformer(dropout=0.1, seed=seed)
    torch.manual_seed(seed + 1)
    trainer = build_msm_trainer(
        model, tiny.documents(8, 5), None, options, arguments(folder, per_device_train_batch_size=2, **changed)
    )
    recorder = Recorder(trainer.loss)
    trainer.callback_handler.callbacks.insert(0, recorder)
    return trainer, recorder


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_run_of_every_objective(tmp_path: Path, objective: str) -> None:
    trainer, recorder = trainer_of(tmp_path, small(objective=objective, pooling="mean"), max_steps=6)
    assert {LossStateCallback, LossMonitorCallback} <= {type(c) for c in trainer.callback_handler.callbacks}
    assert isinstance(trainer.data_collator, SpanDataCollator) == (objective in ("crop", "ict"))
    before = [p.clone() for p in trainer.model.parameters()]
    trainer.train()
    assert trainer.state.global_step == 6
    assert {name for _, name, _ in recorder.steps} == {objective, "mlm"}
    assert any(not torch.equal(p, q) for p, q in zip(before, trainer.model.parameters(), strict=True))


def final_state(trainer: Any) -> dict[str, Tensor]:
    owned = {f"{name}/{k}": v for name, loss in trainer.loss.items() for k, v in loss.owned_state().items()}
    return {k: v.clone() for k, v in (trainer.model.state_dict() | owned).items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mlm": "sum", "document_encoder": "separate-with-heads", "mini_batch_size": 3},
        {"mini_batch_size": 0},
        {"objective": "crop"},
        {"objective": "ict"},
    ],
)
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path, options: dict[str, Any]) -> None:
    steps = {"max_steps": 24, "save_strategy": "steps", "save_steps": 16}
    whole, recorded = trainer_of(tmp_path, small(**options), **steps)
    whole.train()
    assert whole.state.epoch > 1
    resumed, repeated = trainer_of(tmp_path, small(**options), seed=7, **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-16"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 16] != []
    expected = final_state(whole)
    for name, tensor in final_state(resumed).items():
        assert torch.equal(tensor, expected[name]), name


def test_the_model_is_plain_and_pools_as_told() -> None:
    for pooling in ("cls", "mean"):
        model = set_pooling(tiny.transformer(), pooling)
        modules = list(model)
        assert len(modules) == 2 and isinstance(modules[1], Pooling) and modules[1].pooling_mode == pooling
        tokens = model.preprocess(["sun moon star"])
        output = model(dict(tokens))
        first, mean = output["token_embeddings"][0, 0], output["token_embeddings"][0].mean(0)
        assert torch.allclose(output["sentence_embedding"][0], first if pooling == "cls" else mean, atol=1e-6)
    static = tiny.static()
    assert isinstance(set_pooling(static, "cls"), SentenceTransformer) and len(list(static)) == 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"objective": "ict", "mlm": "sum"}, "--mlm sum goes with --objective msm alone, got ict"),
        ({"document_encoder": "separate", "separate_languages": []}, "needs --separate-languages"),
        ({"block_sentences": 1}, "--block-sentences must be at least 2, got 1"),
        ({"negatives": -1}, "--negatives must not be negative, got -1"),
    ],
)
def test_options_that_will_not_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MSMOptions(**options)
