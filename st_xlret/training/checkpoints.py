"""The checkpoints of a run: which are complete, and which to keep."""

import json
import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

LOSS_STATE_FILE = "loss_state.safetensors"
"""The last file of a checkpoint: where it is, the checkpoint is complete."""

_UNFINISHED = "unfinished"
"""An empty file, the first of a checkpoint of a script: whose folder it is until it is complete."""


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
    """Make the folder of a checkpoint, before the host writes into it, and mark it as a run's.

    What another program wrote under its name is moved aside.
    """
    if folder.exists() and not _is_of_a_run(folder):
        moved = folder.rename(f"{folder}.{time.time_ns()}")
        logger.warning("%s was not of this run, or not whole: it is %s now", folder, moved)
    folder.mkdir(exist_ok=True, parents=True)
    (folder / _UNFINISHED).touch()


def finish_checkpoint(folder: Path) -> None:
    """Delete the file of `begin_checkpoint`, once the state of the losses is written.

    A checkpoint that was not begun so has none: those of a Trainer without a script.
    """
    (folder / _UNFINISHED).unlink(missing_ok=True)


def _is_of_a_run(folder: Path) -> bool:
    """Whether a run has begun a folder, or has completed it and nobody has changed it since."""
    if (folder / _UNFINISHED).exists():
        return True
    return (folder / LOSS_STATE_FILE).exists() and find_foreign(folder) is None


@dataclass(frozen=True)
class CheckpointRecord:
    """What a complete checkpoint says of its run, in the metadata of the state of the losses.

    Attributes:
        options: What the run is made of, as JSON has it.
        files: The size of each file of the checkpoint, by its name.
        start: The fingerprint of the weights that the run began with, where they count.
    """

    options: dict[str, Any]
    files: dict[str, int]
    start: str | None = None

    def as_metadata(self) -> dict[str, str]:
        """The record as texts, which `read_record` reads."""
        texts = {"options": json.dumps(self.options), "files": json.dumps(self.files)}
        if self.start is not None:
            texts["start"] = self.start
        return texts


def read_record(checkpoint: Path) -> CheckpointRecord:
    """The record of a complete checkpoint."""
    file = checkpoint / LOSS_STATE_FILE
    try:
        with safe_open(file, "pt") as opened:
            texts = opened.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    options = json.loads(texts.get("options", "null")) or {}
    files = json.loads(texts.get("files", "{}"))
    return CheckpointRecord(options, files, texts.get("start"))


def sizes_of_files(folder: Path) -> dict[str, int]:
    """The files of a checkpoint, but for what says that it is complete, and their sizes."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder and path.name not in (LOSS_STATE_FILE, _UNFINISHED):
            sizes[path.relative_to(folder).as_posix()] = path.lstat().st_size
    return sizes


def find_foreign(checkpoint: Path) -> str | None:
    """A file in a complete checkpoint that the run did not write, or not as it is; else None.

    Of a link it is the link itself.
    """
    if checkpoint.is_symlink():
        return checkpoint.name
    written = read_record(checkpoint).files
    for name, size in sizes_of_files(checkpoint).items():
        if written.get(name) != size:
            return name
    return None


def delete_old_checkpoints(folder: Path, keep: int, best: str | None) -> None:
    """Delete all but the newest `keep` complete checkpoints of a run, 1 at least, and the best one.

    What somebody has put into one stays, and so does that checkpoint.
    """
    name_of_best = Path(best or "").name
    for checkpoint in complete_checkpoints(folder)[:-keep]:
        if checkpoint.name == name_of_best:
            continue
        foreign = find_foreign(checkpoint)
        if foreign is None:
            shutil.rmtree(checkpoint, ignore_errors=True)
        else:
            logger.warning("%s stays, because the run did not write its %s", checkpoint, foreign)
