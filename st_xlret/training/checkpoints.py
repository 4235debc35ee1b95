"""Checkpoints that are known to be complete, and to be of the run that is resumed."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch.distributed as dist
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.util.distributed import get_world_size
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_xlret.files import write_json_atomically

logger = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"
"""The last file of a checkpoint: names, sizes and checksums of the others, and the options of the run."""

_LATER_OPTIONS = {"keep_trained": 1.0, "contrastive_ratio": 0.0, "fresh_head": False, "first_last": True}
"""Options that runs of earlier versions had not, and what these runs did."""

_SAMPLED_ROWS = 64
_ROWS_AT_A_TIME = 100_000


class ManifestCallback(TrainerCallback):
    """Writes `manifest.json` into each checkpoint, after everything else.

    Make it the last callback that writes into checkpoints. A checkpoint without a manifest, or with a file that is
    not as its manifest says, is not complete.

    Args:
        record: What the run is made of (options, data), to be compared when it is resumed; anything JSON can hold.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = dict(record)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the manifest of the checkpoint that was just made."""
        if get_world_size() > 1:
            dist.barrier()  # all ranks have written their part
        folder = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
        if args.should_save and folder.is_dir():
            files = {
                str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": checksum(path)}
                for path in sorted(folder.rglob("*"))
                if path.is_file() and path.name != MANIFEST_FILE
            }
            write_json_atomically(folder / MANIFEST_FILE, {"files": files, "run": self.record})


def checksum(file: Path) -> str:
    """The SHA-256 of a file."""
    with open(file, "rb") as opened:
        digest = hashlib.sha256()
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fault_of(checkpoint: Path, *, read_files: bool = True) -> str | None:
    """What is wrong with a checkpoint.

    Args:
        checkpoint: Its folder.
        read_files: Compare checksums too, which reads every file; otherwise only sizes.

    Returns:
        The fault, with the name of the file; None if the checkpoint is complete.
    """
    try:
        manifest = json.loads((checkpoint / MANIFEST_FILE).read_text(encoding="utf-8"))
        expected = {checkpoint / name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
        manifest["run"].items()
    except FileNotFoundError:
        return f"{checkpoint} has no {MANIFEST_FILE}: it was not written to its end"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{checkpoint / MANIFEST_FILE} cannot be read: {error!r}"
    for file, (size, digest) in expected.items():
        if not file.is_file():
            return f"{file} is missing"
        if file.stat().st_size != size:
            return f"{file} has {file.stat().st_size} bytes instead of {size}"
        if read_files and checksum(file) != digest:
            return f"{file} is damaged: its checksum is not the one of {MANIFEST_FILE}"
    return None


def last_complete_checkpoint(folder: str | Path, *, read_files: bool = False) -> Path | None:
    """The newest checkpoint that is complete; the faults of newer ones are logged.

    Args:
        folder: Folder of `checkpoint-<step>` folders.
        read_files: Compare the checksums of its files too.

    Returns:
        The checkpoint, or None if there is none.
    """
    steps = {int(path.name[11:]): path for path in Path(folder).glob("checkpoint-*") if path.name[11:].isdigit()}
    for _, path in sorted(steps.items(), reverse=True):
        fault = fault_of(path, read_files=read_files)
        if fault is None:
            return path
        logger.warning("passed over: %s", fault)
    return None


def remove_unfinished_checkpoint(folder: str | Path, step: int) -> bool:
    """Remove the checkpoint of a step if it was not written to its end, as on a full disk.

    Returns:
        Whether there was one.
    """
    path = Path(folder) / f"checkpoint-{step}"
    if not path.is_dir() or fault_of(path, read_files=False) is None:
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def remove_unfinished_checkpoints(folder: str | Path) -> None:
    """Remove the checkpoints that were never written to their end: nothing of them may end up in later ones."""
    for path in Path(folder).glob("checkpoint-*"):
        if not (path / MANIFEST_FILE).exists():
            shutil.rmtree(path, ignore_errors=True)


def remove_checkpoints(folder: str | Path) -> None:
    """Remove all checkpoints of a run that is started anew."""
    for path in Path(folder).glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)


def differences(checkpoint: Path, record: Mapping[str, Any]) -> list[str]:
    """How a run differs from the one that wrote a checkpoint.

    Args:
        checkpoint: Its folder.
        record: What the run is made of, as for `ManifestCallback`.

    Returns:
        One line for each difference.
    """
    then = _flat(json.loads((checkpoint / MANIFEST_FILE).read_text(encoding="utf-8"))["run"])
    now = _flat(json.loads(json.dumps(record, default=str)))
    # train_search.py, which alone has this option, never had dropout; the others had the encoder's own.
    without_dropout = "options.english_share" in then
    for name, before in {**_LATER_OPTIONS, "dropout": 0.0 if without_dropout else None}.items():
        if f"options.{name}" in now:
            then.setdefault(f"options.{name}", before)
    return [
        f"{name} was {then.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]


def fingerprint(datasets: Any) -> dict[str, str]:
    """What tells whether data sets are still the same ones: their sizes, the lengths of their texts, and some rows.

    Args:
        datasets: A data set, or a mapping of names to data sets.
    """
    if not isinstance(datasets, Mapping):
        datasets = {"data": datasets}
    return {name: _fingerprint(dataset) for name, dataset in datasets.items()}


def _fingerprint(dataset: Dataset) -> str:
    step = max(1, len(dataset) // _SAMPLED_ROWS)
    rows = dataset.select(range(0, len(dataset), step))[:] if len(dataset) else {}
    described = [rows, _lengths(dataset)]
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()[:16]
    return f"{len(dataset)} rows, {digest}"


def _lengths(dataset: Dataset) -> dict[str, str]:
    """For each text column, a checksum of the bytes of each row's text: that is quick for millions of rows."""
    names = [name for name, feature in dataset.features.items() if getattr(feature, "dtype", None) == "string"]
    digests = {name: hashlib.sha256() for name in names}
    if names:
        for batch in dataset.select_columns(names).with_format("arrow").iter(batch_size=_ROWS_AT_A_TIME):
            for name in names:
                digests[name].update(pc.binary_length(batch[name]).to_numpy().tobytes())
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            flat |= {f"{name}.{inner}": found for inner, found in _flat(value).items()}
        else:
            flat[name] = value
    return flat


class BestCheckpointCallback(TrainerCallback):
    """On resume, looks for the best checkpoint so far beside the one that is resumed, and checks that it is complete.

    The host keeps its path, which is wrong once the folder has moved, and reads it only after the last step. A best
    checkpoint that is damaged is forgotten, with a warning; the best of the others is chosen.

    Args:
        checkpoint: The checkpoint that the run is resumed from.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Correct the host's note of the best checkpoint."""
        correct_best_checkpoint(state, self.checkpoint)


def correct_best_checkpoint(state: TrainerState, checkpoint: Path) -> None:
    """Let a state name the best checkpoint where it is now, or none if that one is damaged."""
    if not state.best_model_checkpoint:
        return
    best = checkpoint.parent / Path(state.best_model_checkpoint).name
    fault = fault_of(best)
    if fault is None:
        state.best_model_checkpoint = str(best)
        return
    logger.warning("the best checkpoint so far is lost, the best of the others will be taken: %s", fault)
    state.best_model_checkpoint = state.best_metric = state.best_global_step = None


def restore_finished_run(trainer: SentenceTransformerTrainer, checkpoint: Path) -> bool:
    """Load the result of a run whose last step the checkpoint is of: the host would train one step more.

    Returns:
        Whether the run was finished.
    """
    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    last_step = trainer.args.max_steps if trainer.args.max_steps > 0 else state.max_steps
    if state.global_step < last_step:
        return False
    correct_best_checkpoint(state, checkpoint)
    best = state.best_model_checkpoint if trainer.args.load_best_model_at_end else None
    folder = Path(best) if best else checkpoint
    trainer.model.load_state_dict(SentenceTransformer(str(folder), device="cpu").state_dict())
    trainer.state = state
    return True
