"""Memory that goes back to the operating system during a run."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from st_xlret.training import memory_callback
from st_xlret.training.memory_callback import GiveBackMemoryCallback


def steps_that_gave_back(callback: GiveBackMemoryCallback, device: str, steps: int = 7) -> list[int]:
    found: list[int] = []
    state: Any = SimpleNamespace(global_step=0)
    callback.give_back = lambda _: found.append(state.global_step) or 1  # type: ignore[func-returns-value]
    args: Any = SimpleNamespace(device=SimpleNamespace(type=device))
    for state.global_step in range(1, steps + 1):
        callback.on_step_end(args, state, None)  # type: ignore[arg-type]
    return found


def test_every_few_steps_on_a_cpu() -> None:
    assert steps_that_gave_back(GiveBackMemoryCallback(steps=3), "cpu") == [3, 6]
    assert steps_that_gave_back(GiveBackMemoryCallback(steps=3), "cuda") == []


def test_it_is_the_c_librarys_own_function() -> None:
    there = hasattr(ctypes.CDLL(None), "malloc_trim")
    give_back = GiveBackMemoryCallback().give_back
    assert (give_back is not None) == there
    assert give_back is None or give_back(0) in (0, 1)


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail(name: object) -> None:
        raise error("no such library")

    monkeypatch.setattr(memory_callback.ctypes, "CDLL", fail)
    callback = GiveBackMemoryCallback(steps=1)
    assert callback.give_back is None
    callback.on_step_end(SimpleNamespace(device=SimpleNamespace(type="cpu")), SimpleNamespace(global_step=1), None)  # type: ignore[arg-type]
