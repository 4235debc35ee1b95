"""The ablations of MSM: every one reaches the loss, trains and is resumed exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import DatasetDict

from st_xlret.losses import MSMLoss
from st_xlret.modules import DocumentEncoder, ProjectionHead
from tests import tiny
from tests.training_scripts.train_ccp_runs import Stop, add_callback, assert_equal_weights
from training_scripts import train_msm
from training_scripts.studies import train_msm_ablation as program


def msm_of(**options: Any) -> MSMLoss:
    datasets = DatasetDict({"msm": tiny.documents()})
    loss = program.build_losses(tiny.transformer(), datasets, program.AblationArguments(**options))["msm"]
    assert isinstance(loss, MSMLoss)
    return loss


def parts(loss: MSMLoss) -> tuple[int, int]:
    """Document encoders and projection heads of a loss."""
    modules = [module for name, module in loss.named_modules() if not name.startswith("model.")]
    return tuple(sum(isinstance(module, kind) for module in modules) for kind in (DocumentEncoder, ProjectionHead))  # type: ignore[return-value]


def test_defaults_are_those_of_train_msm() -> None:
    datasets = DatasetDict({"msm": tiny.documents()})
    plain: Any = train_msm.build_losses(tiny.transformer(), datasets, train_msm.MSMArguments())["msm"]
    assert msm_of().get_config_dict() == plain.get_config_dict() and parts(msm_of()) == parts(plain) == (1, 2)


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


def test_a_second_document_encoder_needs_languages() -> None:
    with pytest.raises(ValueError, match="--document_encoder separate.*--separate_languages"):
        program.AblationArguments(document_encoder="separate", separate_languages=[])


def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    options = "--from_scratch tiny --vocabulary 150 --per_device_train_batch_size 3 --block_sentences 4 --use_cpu "
    options += "--learning_rate 1e-2 --max_seq_length 16 --max_steps 8 --save_steps 3 --sum_mlm --mini_batch_size 3 "
    options += "--document_encoder separate-with-heads --document_layers 1"

    def train(name: str, *more: str) -> dict[str, Any]:
        given = [*options.split(), "--documents", str(documents), "--output_dir", str(tmp_path / name), *more]
        return program.main(given)

    train("whole")
    with monkeypatch.context() as patch:
        add_callback(train_msm, patch, Stop(5))
        with pytest.raises(SystemExit):
            train("run")
    torch.manual_seed(123)
    command = train("run", "--resume")["command"]
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")
    assert command.startswith("python -m training_scripts.studies.train_msm_ablation --from_scratch tiny")
