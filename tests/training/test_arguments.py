"""The options that the scripts share, and files of options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from st_xlret.options import parse
from st_xlret.training.data import Pairs
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import TrainingArguments


def parsed(*words: str) -> Any:
    return parse([EncoderArguments, Pairs, TrainingArguments], [*words, "--from_scratch", "static"])[-1]


def test_the_options_of_a_run_are_the_hosts(tmp_path: Path) -> None:
    file = tmp_path / "options.yml"
    file.write_text(f"output_dir: {tmp_path}\nuse_cpu: true\nlearning_rate: 3e-5\n")  # a number, without a dot too
    options = ("--per-device-train-batch-size", "7", "--optim", "adafactor", "--learning_rate_mapping", '{"head": 0.1}')
    args = parsed(str(file), *options)
    assert (args.per_device_train_batch_size, args.optim, args.learning_rate) == (7, "adafactor", 3e-5)
    assert args.learning_rate_mapping == {"head": 0.1} and args.max_steps == 10_000
    assert parsed(str(file), "--num_train_epochs", "2").max_steps == -1, "epochs replace steps"


@pytest.mark.parametrize(
    ("options", "capable", "expected"),
    [
        ("", True, "bf16"),
        ("", False, "fp32"),
        ("--precision fp32", True, "fp32"),
        ("--precision bf16", False, "bf16"),
        ("--bf16", False, "bf16"),
        ("--precision bf16 --bf16", False, "bf16"),
        ("--precision fp32 --bf16", False, ValueError),
        ("--precision int8", False, SystemExit),
    ],
)
def test_precision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: str, capable: bool, expected: Any) -> None:
    """On a machine without a GPU, whose processor computes in bf16 or not."""
    monkeypatch.setattr("st_xlret.training.arguments.default_device", lambda: "cpu")
    monkeypatch.setattr("st_xlret.precision.computes_in_bf16", lambda device: capable)
    words = ["--output_dir", str(tmp_path), *options.split()]
    if not isinstance(expected, str):
        with pytest.raises(expected):
            parsed(*words)
        return
    args = parsed(*words)
    assert (args.precision, args.bf16, args.fp16) == (expected, expected == "bf16", False)
    assert args.use_cpu == (expected == "bf16")
