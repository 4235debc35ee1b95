"""One run at a time in an output folder."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

LOCK_FILE = ".lock"


def lock_output(folder: str | Path) -> None:
    """Claim an output folder for this process until it ends, and remove what killed runs left half-written.

    The lock is a file with the process and the host of its owner. The lock of a process of this host that no longer
    runs is replaced.

    Args:
        folder: The output folder; made where it is missing.

    Raises:
        FileExistsError: If another process has the lock. The message names it.
    """
    file = Path(folder) / LOCK_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    me = {"process": os.getpid(), "host": socket.gethostname(), "started": _start_of(os.getpid())}
    while True:
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            owner = _owner(file)
            if owner is not None and not _is_stale(owner):
                raise FileExistsError(
                    f"{folder} is in use by process {owner.get('process')} on {owner.get('host')}: give another "
                    f"--output_dir, or, if that process is gone, delete {file}"
                ) from None
            file.unlink(missing_ok=True)
            continue
        with os.fdopen(descriptor, "w") as opened:
            json.dump(me, opened)
        break
    atexit.register(unlock_output, folder)
    for leftover in Path(folder).glob(".*.tmp*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def unlock_output(folder: str | Path) -> None:
    """Give the lock of this process on a folder back, if it has it."""
    file = Path(folder) / LOCK_FILE
    owner = _owner(file)
    if owner and (owner.get("process"), owner.get("host")) == (os.getpid(), socket.gethostname()):
        file.unlink(missing_ok=True)


def _owner(file: Path) -> dict[str, object] | None:
    with suppress(OSError, ValueError):
        read = json.loads(file.read_text())
        if isinstance(read, dict):
            return read
    return None


def _is_stale(owner: dict[str, object]) -> bool:
    process = owner.get("process")
    if owner.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    # The number may have been given to another process since.
    return owner.get("started") != _start_of(process)


def _start_of(process: int) -> str | None:
    """When a process started, in clock ticks since the system did; None where the system does not tell."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return None
