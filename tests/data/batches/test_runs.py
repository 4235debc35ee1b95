"""Runs of numbers by group, in memory and mapped from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from st_xlret.data.batches import runs
from st_xlret.data.batches.runs import Runs, RunsByGroup
from st_xlret.files import scratch
from st_xlret.files.scratch import ScratchList, scratch_array


@pytest.fixture(params=["in memory", "mapped"])
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    if request.param == "mapped":
        monkeypatch.setattr(scratch, "IN_MEMORY", 16)
        monkeypatch.setattr(runs, "_AT_A_TIME", 3)
    monkeypatch.setattr(runs, "scratch_folder", lambda: tmp_path / "scratch")
    return tmp_path / "scratch"


def test_scratch_arrays_and_lists_leave_no_file(folder: Path) -> None:
    array = scratch_array(100, np.int32, folder)
    array[:] = np.arange(100)
    numbers = ScratchList(np.int64, folder)
    for begin in range(0, 100, 7):
        numbers.extend(np.arange(begin, min(begin + 7, 100)))
    assert len(numbers) == 100 and numbers.finish().tolist() == array.tolist() == list(range(100))
    assert len(numbers) == 0 and numbers.finish().tolist() == []
    assert not folder.exists() or not list(folder.iterdir())


def test_a_full_disk_is_an_error_and_not_a_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scratch, "IN_MEMORY", 16)
    monkeypatch.setattr(scratch.os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        scratch_array(100, np.int64, folder)


def test_runs_are_the_numbers_that_were_given(folder: Path) -> None:
    generator = np.random.default_rng(0)
    group = np.repeat(generator.integers(0, 4, 40), generator.integers(1, 6, 40))
    found, begin = RunsByGroup(), 0
    while begin < len(group):
        # Chunks of any length, in runs that are shorter than they could be.
        end = min(begin + int(generator.integers(1, 30)), len(group))
        numbers = np.arange(begin, end)
        found.extend(numbers, np.ones(len(numbers), dtype=np.int64), group[begin:end])
        begin = end
    for number, of_group in enumerate(found.finish(5)):
        expected = np.flatnonzero(group == number)
        assert len(of_group) == len(expected)
        assert np.concatenate([np.empty(0), *of_group.chunks()]).tolist() == expected.tolist()
        places = generator.integers(0, len(expected), 10) if len(expected) else np.empty(0, dtype=np.int64)
        assert of_group[places].tolist() == expected[places].tolist()


def test_consecutive_runs_of_a_group_are_one() -> None:
    found = RunsByGroup()
    found.extend(np.array([0, 2, 5, 9]), np.array([2, 3, 4, 1]), np.array([0, 0, 1, 1]))
    first, second = found.finish(2)
    assert (len(first.starts), len(second.starts)) == (1, 1) and len(Runs(first.starts, first.ends)) == 5
