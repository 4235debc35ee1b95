"""Checkpoints that are known to be complete, and to be of the run that is resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch.distributed as dist
from datasets import Dataset
from sentence_transformers.util.distributed import get_world_size
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from st_xlret.files import write_json

MANIFEST_FILE = "manifest.json"
"""The last file of a checkpoint: the sizes of the others, and the options and data of the run."""

_SAMPLED_ROWS = 64
_ROWS_AT_A_TIME = 100_000


class ManifestCallback(TrainerCallback):
    """Writes `manifest.json` into each checkpoint, after everything else. Make it the last callback.

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
                str(path.relative_to(folder)): path.stat().st_size
                for path in sorted(folder.rglob("*"))
                if path.is_file()
            }
            write_json(folder / MANIFEST_FILE, {"files": files, "run": self.record})


def is_complete(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end, and has all of its files."""
    try:
        files = json.loads((checkpoint / MANIFEST_FILE).read_text(encoding="utf-8"))["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, None if there is none. Incomplete ones are removed.

    A killed run or a full disk leaves a checkpoint that was not written to its end.
    """
    while folder.is_dir() and (found := get_last_checkpoint(str(folder))) is not None:
        if is_complete(Path(found)):
            return Path(found)
        shutil.rmtree(found)
    return None


def differences(checkpoint: Path, record: Mapping[str, Any]) -> list[str]:
    """How a run differs from the one that wrote a checkpoint: a line for each option or data set."""
    then = json.loads((checkpoint / MANIFEST_FILE).read_text(encoding="utf-8"))["run"]
    now = json.loads(json.dumps(record, default=str))
    return [
        f"{name} was {then[part].get(name)!r}, is {now[part].get(name)!r}"
        for part in now
        for name in sorted(then[part].keys() | now[part].keys())
        if then[part].get(name) != now[part].get(name)
    ]


def fingerprint(datasets: Any) -> dict[str, str]:
    """What tells whether data sets are still the same ones: their sizes, the lengths of their texts, and some rows."""
    if not isinstance(datasets, Mapping):
        datasets = {"data": datasets}
    return {name: _fingerprint(dataset) for name, dataset in datasets.items()}


def _fingerprint(dataset: Dataset) -> str:
    step = max(1, len(dataset) // _SAMPLED_ROWS)
    rows = dataset.select(range(0, len(dataset), step))[:] if len(dataset) else {}
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True, default=str).encode())
    names = [name for name, feature in dataset.features.items() if getattr(feature, "dtype", None) == "string"]
    for batch in dataset.select_columns(names).with_format("arrow").iter(batch_size=_ROWS_AT_A_TIME) if names else ():
        for name in names:
            digest.update(pc.binary_length(batch[name]).to_numpy().tobytes())
    return f"{len(dataset)} rows, {digest.hexdigest()[:16]}"
