"""Freed memory goes back to the operating system while a run trains on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class GiveBackMemoryCallback(TrainerCallback):
    """Asks the C library to give back what is free, every few steps of a run on a CPU.

    Batches of texts have many shapes, and the C library keeps what it had for each of them: a run of some hundred steps
    holds twice the memory that its largest batch needs. Elsewhere than with glibc, nothing is done.

    Args:
        steps: Steps between two times.

    Example:
        >>> GiveBackMemoryCallback(steps=0)
        Traceback (most recent call last):
        ...
        ValueError: steps must be at least 1, got 0
    """

    def __init__(self, steps: int = 5) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.steps = steps
        self.give_back = _malloc_trim()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Give back what is free."""
        if self.give_back is not None and args.device.type == "cpu" and state.global_step % self.steps == 0:
            self.give_back(0)


def _malloc_trim() -> Callable[[int], int] | None:
    """Glibc's function, or None where the C library has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows, a library needs a name
        return None
