"""One run at a time in an output folder."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from st_xlret.training import lock
from st_xlret.training.lock import LOCK_FILE, lock_output, unlock_output


def write_lock(folder: Path, process: int, host: str | None = None, started: str | None = None) -> None:
    owner = {"process": process, "host": host or socket.gethostname(), "started": started}
    (folder / LOCK_FILE).write_text(json.dumps(owner))


@pytest.fixture
def other_process() -> Iterator[int]:
    """The number of a process that runs."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def test_the_lock_names_its_owner_and_is_given_back(tmp_path: Path) -> None:
    lock_output(tmp_path / "new")
    owner = json.loads((tmp_path / "new" / LOCK_FILE).read_text())
    assert (owner["process"], owner["host"]) == (os.getpid(), socket.gethostname())
    unlock_output(tmp_path / "new")
    assert not (tmp_path / "new" / LOCK_FILE).exists()


def test_a_folder_in_use_is_refused(tmp_path: Path, other_process: int) -> None:
    from st_xlret.training.lock import _start_of

    write_lock(tmp_path, other_process, started=_start_of(other_process))
    with pytest.raises(FileExistsError, match=f"process {other_process} on {socket.gethostname()}"):
        lock_output(tmp_path)
    unlock_output(tmp_path)
    assert (tmp_path / LOCK_FILE).exists()


def test_a_folder_in_use_on_another_host_is_refused(tmp_path: Path) -> None:
    write_lock(tmp_path, 1, "elsewhere")
    with pytest.raises(FileExistsError, match="on elsewhere"):
        lock_output(tmp_path)


@pytest.mark.parametrize("started", [None, "1"])
def test_a_number_that_another_process_has_now_is_stale(tmp_path: Path, other_process: int, started: str) -> None:
    write_lock(tmp_path, other_process, started=started)
    lock_output(tmp_path)
    assert json.loads((tmp_path / LOCK_FILE).read_text())["process"] == os.getpid()
    unlock_output(tmp_path)


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_stale_and_torn_locks_are_replaced(tmp_path: Path, content: str | None) -> None:
    if content is None:
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        write_lock(tmp_path, process.pid)
    else:
        (tmp_path / LOCK_FILE).write_text(content)
    lock_output(tmp_path)
    unlock_output(tmp_path)


def test_of_two_that_find_a_stale_lock_one_gets_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(tmp_path, 1 << 22, started="1")  # above the largest number that Linux gives a process
    owner = lock._owner
    # Both look at the lock before either takes it, unless they look one after the other.

    def slow_owner(file: Path) -> dict[str, object] | None:
        found = owner(file)
        time.sleep(0.3)
        return found

    monkeypatch.setattr(lock, "_owner", slow_owner)
    fork = multiprocessing.get_context("fork")
    got = fork.Queue()

    def take() -> None:
        try:
            lock.lock_output(tmp_path)
            got.put(True)
            time.sleep(1)
        except FileExistsError:
            got.put(False)

    both = [fork.Process(target=take) for _ in "12"]
    for process in both:
        process.start()
    assert sorted(got.get(timeout=60) for _ in both) == [False, True]
    for process in both:
        process.join()


def test_leftovers_of_killed_runs_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.ab12.tmp").mkdir()
    (tmp_path / ".model.ab12.tmp" / "half").touch()
    (tmp_path / ".results.ab12.tmp.json").touch()
    (tmp_path / "model").mkdir()
    lock_output(tmp_path)
    unlock_output(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
