"""The options that the scripts share, and files of options."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from st_xlret.options import parse
from st_xlret.training.data import Pairs
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import TrainingArguments

GROUPS = [EncoderArguments, Pairs, TrainingArguments]


def parsed(*given: str) -> Any:
    return parse(GROUPS, ["--from_scratch", "static", "--use_cpu", *given])


@pytest.mark.parametrize("group", GROUPS[:2])
def test_every_option_has_a_help(group: Any) -> None:
    assert all(option.metadata["help"].endswith(".") for option in fields(group) if option.init)


def test_the_options_of_a_run_are_the_hosts(tmp_path: Path) -> None:
    args = parsed(
        *("--output_dir", str(tmp_path), "--per-device-train-batch-size", "7", "--optim", "adafactor"),
        *("--learning_rate_mapping", '{"head": 0.1}', "--report_to", "none", "--gradient_checkpointing"),
    )[-1]
    assert (args.per_device_train_batch_size, args.optim, args.gradient_checkpointing) == (7, "adafactor", True)
    assert args.learning_rate_mapping == {"head": 0.1} and args.max_steps == 10_000


def test_epochs_replace_steps(tmp_path: Path) -> None:
    assert parsed("--output_dir", str(tmp_path), "--num_train_epochs", "2")[-1].max_steps == -1


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine without a GPU, whose processor computes in bf16 or not."""
    monkeypatch.setattr("st_xlret.training.arguments.default_device", lambda: "cpu")
    return lambda capable: monkeypatch.setattr("st_xlret.precision.computes_in_bf16", lambda device: capable)


@pytest.mark.parametrize(
    ("given", "capable", "expected"),
    [
        ([], True, "bf16"),
        ([], False, "fp32"),
        (["--precision", "fp32"], True, "fp32"),
        (["--precision", "bf16"], False, "bf16"),
        (["--bf16"], False, "bf16"),
        (["--precision", "bf16", "--bf16"], False, "bf16"),
    ],
)
def test_precision(cpu: Any, tmp_path: Path, given: list[str], capable: bool, expected: str) -> None:
    cpu(capable)
    args = parse(GROUPS, ["--from_scratch", "static", "--output_dir", str(tmp_path), *given])[-1]
    assert (args.precision, args.bf16, args.fp16) == (expected, expected == "bf16", False)
    assert args.use_cpu == (expected == "bf16")


def test_precisions_that_contradict_each_other(cpu: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bf16.*fp32"):
        parsed("--output_dir", str(tmp_path), "--precision", "fp32", "--bf16")
    with pytest.raises(SystemExit):
        parsed("--output_dir", str(tmp_path), "--precision", "int8")


def test_yaml_without_a_dot_is_a_number_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "options.yml"
    file.write_text(f"from_scratch: static\noutput_dir: {tmp_path}\nuse_cpu: true\nlearning_rate: 3e-5\n")
    assert parse(GROUPS, [str(file)])[-1].learning_rate == 3e-5
