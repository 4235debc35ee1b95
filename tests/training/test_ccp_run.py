"""One Trainer over windows, masked sentences and pairs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import HfArgumentParser

from st_xlret.losses import CCPLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.training import CCPOptions, LossMonitorCallback, LossStateCallback, build_ccp_trainer
from st_xlret.training.ccp_run import build_losses, choose_datasets
from tests import tiny
from tests.training.runs import arguments


def chosen(model: Any, documents: Dataset | None, pairs: Dataset | None, **options: Any) -> list[str]:
    return list(choose_datasets(model, documents, pairs, CCPOptions(**options)))


def test_every_option_has_a_help_and_choices_are_enforced(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(CCPOptions))
    with pytest.raises(SystemExit):
        HfArgumentParser([CCPOptions]).parse_args_into_dataclasses(["--normalization", "layer"])
    assert "asymmetric" in capsys.readouterr().err


def test_defaults_are_the_papers() -> None:
    options = CCPOptions()
    assert (options.window, options.temperature, options.bank_size) == (5, 0.1, 32768)
    assert options.normalization == "asymmetric" and not options.cross_language_negatives
    assert options.language_mixing == 0.0


def test_what_is_given_decides_what_is_trained() -> None:
    documents, pairs = tiny.documents(), tiny.pairs()
    assert chosen(tiny.transformer(), documents, pairs) == ["ccp", "mlm", "pairs"]
    assert chosen(tiny.static(), documents, pairs) == ["ccp", "pairs"]
    assert chosen(tiny.transformer(), None, pairs) == ["pairs"]
    assert chosen(tiny.transformer(), documents, None) == ["ccp", "mlm"]
    assert chosen(tiny.transformer(), documents, pairs, ccp_weight=0) == ["mlm", "pairs"]
    assert chosen(tiny.transformer(), documents, pairs, mlm_weight=0, pairs_weight=0) == ["ccp"]


def test_only_windows_know_their_documents() -> None:
    datasets = choose_datasets(tiny.transformer(), tiny.documents(), None, CCPOptions())
    assert "document" in datasets["ccp"].column_names and "document" not in datasets["mlm"].column_names


@pytest.mark.parametrize("options", [{"ccp_weight": 0, "mlm_weight": 0, "pairs_weight": 0}, {"ccp_weight": 0}])
def test_nothing_to_train_on_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="nothing to train on.*weight above 0"):
        chosen(tiny.static(), tiny.documents(), None, **options)


def test_losses_are_built_as_the_options_say() -> None:
    model = tiny.transformer()
    options = CCPOptions(
        head_features=16,
        bank_size=64,
        bank_scope="per_language",
        temperature=0.2,
        pairs_temperature=0.3,
        normalization="none",
        activation="gelu",
        cross_language_negatives=True,
        same_document_negatives=True,
        mask_probability=0.3,
    )
    losses = build_losses(model, ["ccp", "mlm", "pairs"], options)
    ccp, mlm, pairs = losses["ccp"], losses["mlm"], losses["pairs"]
    assert isinstance(ccp, CCPLoss) and isinstance(mlm, MaskedLMLoss)
    assert isinstance(pairs, SemanticContrastiveLoss)
    assert all(loss.model is model for loss in losses.values())
    assert ccp.bank is not None and (ccp.bank.size, ccp.bank.scope, ccp.bank.features) == (
        64,
        "per_language",
        16,
    )
    assert (ccp.head.in_features, ccp.head.out_features, ccp.head.normalization) == (32, 16, "none")
    assert (ccp.temperature, pairs.temperature, mlm.mask_probability) == (0.2, 0.3, 0.3)
    assert ccp.cross_language_negatives and not ccp.mask_same_document


def test_no_bank_at_size_zero() -> None:
    ccp = build_losses(tiny.static(), ["ccp"], CCPOptions(bank_size=0))["ccp"]
    assert isinstance(ccp, CCPLoss) and ccp.bank is None and ccp.mask_same_document


def test_the_trainer_has_what_resuming_and_watching_need(tmp_path: Path) -> None:
    options = CCPOptions(window=3, alpha=0.2, language_mixing=0.5, pairs_weight=2.0, token_dropout=0.4)
    trainer = build_ccp_trainer(
        tiny.static(), tiny.documents(), tiny.pairs(), options, arguments(tmp_path, max_steps=3)
    )
    kinds = {type(callback) for callback in trainer.callback_handler.callbacks}
    assert {LossStateCallback, LossMonitorCallback} <= kinds
    batches = trainer.args.batch_sampler
    assert (batches.radius, batches.alpha, batches.window_mixing) == (3, 0.2, 0.5)
    assert trainer.args.multi_dataset_batch_sampler.weights == [1.0, 2.0]
    assert trainer.data_collator.token_dropout == 0.4
    trainer.train()
    assert trainer.state.global_step == 3


def test_tokens_are_dropped_for_static_encoders_only(tmp_path: Path) -> None:
    trainer = build_ccp_trainer(
        tiny.transformer(), tiny.documents(), None, CCPOptions(token_dropout=0.4), arguments(tmp_path)
    )
    assert trainer.data_collator.token_dropout == 0.0
