"""The tasks by their names, as `mteb.get_task` and the command of mteb find them."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

DATA_VARIABLE = "XLRET_BENCHMARKS"
"""Environment variable with a folder that has a subfolder for each benchmark: the data of tasks found by name."""


def register(*tasks: type[Any]) -> None:
    """Let mteb find tasks by the names in their metadata.

    Args:
        *tasks: Task classes that can be made without arguments.
    """
    # mteb has no public way to add a task. Without its registry, tasks are passed to `mteb.evaluate` as objects.
    known = getattr(import_module("mteb.get_tasks"), "_TASKS_REGISTRY", None)
    if known is not None:
        known |= {task.metadata.name: task for task in tasks}


def data_folder(data: str | os.PathLike[str] | None, benchmark: str) -> str:
    """The folder that a task was given, or that of its benchmark where it was found by its name.

    Raises:
        ValueError: If there is none.

    Example:
        >>> data_folder("xquad-r", "lareqa")
        'xquad-r'
    """
    if data is not None:
        return os.fspath(data)
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise ValueError(
            f"the data of {benchmark!r} is read from local files: set the environment variable {DATA_VARIABLE} to a "
            f"folder with a subfolder {benchmark!r}, or make the task with its folder, as in LAReQATask('xquad-r')."
        )
    found = Path(folder).expanduser() / benchmark
    if not found.is_dir():
        raise ValueError(f"{found}: there is no such folder ({DATA_VARIABLE}={folder}).")
    return str(found)
