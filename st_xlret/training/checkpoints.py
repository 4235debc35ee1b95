"""The checkpoints of a run: which are complete, and which to keep."""

import logging
import shutil
import time
from pathlib import Path

from transformers import TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

LOSS_STATE_FILE = "loss_state.safetensors"
"""The last file of a checkpoint: where it is, the checkpoint is complete."""

_UNFINISHED = "unfinished"
"""An empty file, the first of a checkpoint."""


def checkpoint_folder(args: TrainingArguments, state: TrainerState) -> Path:
    """The folder of the checkpoint of this step."""
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


def complete_checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    checkpoints = {}
    for file in folder.glob(f"checkpoint-*/{LOSS_STATE_FILE}"):
        step = file.parent.name.removeprefix("checkpoint-")
        if step.isdecimal():
            checkpoints[int(step)] = file.parent
    return [checkpoints[step] for step in sorted(checkpoints)]


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, None if there is none."""
    checkpoints = complete_checkpoints(folder)
    return checkpoints[-1] if checkpoints else None


def begin_checkpoint(folder: Path) -> None:
    """Mark a checkpoint before it is written.

    What another program wrote under its name is moved aside.
    """
    if folder.exists() and not _is_of_a_run(folder):
        moved = folder.rename(f"{folder}.{time.time_ns()}")
        logger.warning("%s was not of this run, or not whole: it is %s now", folder, moved)
    folder.mkdir(exist_ok=True, parents=True)
    (folder / _UNFINISHED).touch()


def finish_checkpoint(folder: Path) -> None:
    """Take the mark away: all files are there."""
    (folder / _UNFINISHED).unlink(missing_ok=True)


def _is_of_a_run(folder: Path) -> bool:
    return (folder / _UNFINISHED).exists() or (folder / LOSS_STATE_FILE).exists()


def delete_old_checkpoints(folder: Path, keep: int, best: str | None) -> None:
    """Delete all but the newest complete checkpoints of a run, and the best one."""
    name_of_best = Path(best or "").name
    for checkpoint in complete_checkpoints(folder)[:-keep]:
        if checkpoint.name != name_of_best:
            shutil.rmtree(checkpoint, ignore_errors=True)
