"""The output folder of a run: used by one run at a time, and by none that would lose something."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from accelerate import PartialState
from filelock import FileLock

from st_xlret.files import atomic_directory, check_output_directory, check_output_file
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.checkpoints import complete_checkpoints, find_foreign

WRITER = "train"
"""Whose mark the results of a run bear."""

_MADE = ("tokenizer", "negatives")
"""The folders of `make_folder`, which a new run may replace with `overwrite` alone."""


def claim_folder(args: ScriptArguments, options: dict[str, Any]) -> FileLock | None:
    """Lock and check the output folder of a run, before any work.

    The lock is that of the first process. An `OSError` refuses a folder that another run uses, or
    in which this one would replace what it may not. Exits from a run that is to be resumed and is
    finished.

    Args:
        args: The arguments of the run.
        options: Its other options, which may name files that are read.
    """
    folder = Path(str(args.output_dir))
    lock = None
    if args.process_index == 0:
        lock = _lock_folder(folder)
    _exit_if_finished(folder, args)
    _check_folder(folder, args, _flattened_values(options))
    return lock


def _lock_folder(folder: Path) -> FileLock:
    """Make the folder of a run, and keep other runs out; an `OSError` if it is in use."""
    folder.mkdir(parents=True, exist_ok=True)
    # A singleton: in a notebook, a run that has failed does not keep out the next one.
    lock = FileLock(folder / ".lock", is_singleton=True)
    lock.acquire(timeout=0)
    return lock


def _exit_if_finished(folder: Path, args: ScriptArguments) -> None:
    """Exit from a run that is to be resumed, and has its results."""
    if args.resume and not args.overwrite and (folder / "results.json").is_file():
        print(
            f"the run in {folder} is finished: there is nothing to resume; "
            "--overwrite starts it anew"
        )
        sys.exit(0)


def _flattened_values(options: dict[str, Any]) -> list[Any]:
    """The values of options, and those in lists."""
    values = []
    for value in options.values():
        if isinstance(value, list):
            values.extend(value)
        else:
            values.append(value)
    return values


def _check_folder(folder: Path, args: ScriptArguments, inputs: list[Any]) -> None:
    """Refuse a folder in which a run would replace what it may not, or what it reads."""
    if not args.resume:
        _check_checkpoints(folder, args, inputs)
        for name in _MADE:
            check_output_directory(folder / name, args.overwrite, inputs=inputs)
    may_replace = args.overwrite or args.resume
    check_output_directory(folder / "model", may_replace, inputs=inputs)
    check_output_file(folder / "results.json", ours=WRITER)
    check_output_file(folder / "training.png", ours=WRITER)


def _check_checkpoints(folder: Path, args: ScriptArguments, inputs: list[Any]) -> None:
    """Refuse a folder with checkpoints, unless they may be deleted and are not read."""
    for checkpoint in folder.glob("checkpoint-*"):
        if not args.overwrite:
            raise FileExistsError(
                f"{checkpoint} is of a run: --resume continues, --overwrite deletes it"
            )
        if _holds_one_of(checkpoint.resolve(), inputs):
            raise FileExistsError(f"{checkpoint} holds what is read")
    _check_deletable(folder)


def _check_deletable(folder: Path) -> None:
    """Refuse to delete the checkpoints of a run, if somebody has put something into one."""
    for checkpoint in complete_checkpoints(folder):
        foreign = find_foreign(checkpoint)
        if foreign is not None:
            raise FileExistsError(
                f"{checkpoint} is not deleted, because the run did not write its {foreign}: "
                "move it away, or give another path"
            )


def _holds_one_of(folder: Path, inputs: Iterable[Any]) -> bool:
    """Whether a folder, with its links resolved, is or holds one of the inputs."""
    for value in inputs:
        path = Path(os.path.realpath(os.path.expanduser(str(value))))
        if folder == path or folder in path.parents:
            return True
    return False


def delete_earlier_run(folder: Path) -> None:
    """Delete what says that a run is finished, its picture, and its checkpoints."""
    _check_deletable(folder)  # hours may have passed
    for name in ("results.json", "training.png"):
        check_output_file(folder / name, ours=WRITER).unlink(missing_ok=True)
    for checkpoint in complete_checkpoints(folder):
        shutil.rmtree(checkpoint, ignore_errors=True)


def make_folder(
    args: ScriptArguments,
    name: str,
    make: Callable[[Path], Any],
    *,
    keep: bool,
) -> str:
    """A folder in that of the run, which rank 0 fills by `make`; the other ranks wait for it.

    All ranks call it together. With `keep`, it stays as an earlier run left it.
    """
    folder = Path(str(args.output_dir), name)
    state = PartialState()
    with state.main_process_first():
        is_kept = keep and folder.is_dir()
        if state.is_main_process and not is_kept:
            with atomic_directory(folder, overwrite=True) as temporary:
                make(temporary)
    return str(folder)
