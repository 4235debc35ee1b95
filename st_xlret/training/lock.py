"""One run at a time in an output folder."""

from __future__ import annotations

import atexit
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from st_xlret.files import remove_leftovers, write_json_atomically

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
    with _one_at_a_time(file.parent):
        owner = _owner(file)
        if owner is not None and not _is_stale(owner):
            raise FileExistsError(
                f"{folder} is in use by process {owner.get('process')} on {owner.get('host')}: give another "
                f"--output_dir, or, if that process is gone, delete {file}"
            )
        write_json_atomically(file, me)
        remove_leftovers(file.parent)
    atexit.register(unlock_output, folder)


def unlock_output(folder: str | Path) -> None:
    """Give the lock of this process on a folder back, if it has it."""
    file = Path(folder) / LOCK_FILE
    owner = _owner(file)
    if owner and (owner.get("process"), owner.get("host")) == (os.getpid(), socket.gethostname()):
        file.unlink(missing_ok=True)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time look at the lock and take it: of two that find a stale lock, one gets the folder."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system may have no such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
