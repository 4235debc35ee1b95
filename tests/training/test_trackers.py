"""What the host's trackers see of a run: the losses by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.training import LossMonitorCallback
from st_xlret.training.monitor_callback import show_losses_to_trackers
from tests.training.runs import interleaved_run


def test_tensorboard_has_every_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer, _ = interleaved_run(
        tmp_path / "run",
        max_steps=8,
        report_to="tensorboard",
        logging_strategy="steps",
        logging_steps=8,
        callbacks=[LossMonitorCallback],
    )
    show_losses_to_trackers(trainer)
    trainer.train()
    folder = next((tmp_path / "board").rglob("events.out.*")).parent
    read = events.EventAccumulator(str(folder))
    read.Reload()
    assert {"train/loss_ccp", "train/loss_mlm", "train/loss_pairs"} <= {*read.Tags()["scalars"]}
