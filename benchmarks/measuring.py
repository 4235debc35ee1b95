"""What the benchmarks share: steps that run in turn, the memory of one step in a fresh process, and the table."""

from __future__ import annotations

import argparse
import gc
import mmap
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from st_xlret.evaluation import markdown_table
from st_xlret.files import write_json


@dataclass
class Step:
    """What is measured, a number that equal ways have in common; and what has to be put back before the next run."""

    run: Callable[[], Tensor]
    reset: Callable[[], Any] = lambda: None


@dataclass
class Comparison:
    """Steps by name, each as a function that makes it, and which of them is set against which.

    With 0 `rounds`, the time is that of the run in which the memory is measured. `goals` are the largest ratios of
    "time" and "memory"; `times` says how many times the seconds of a step count.
    """

    title: str
    steps: Mapping[str, Callable[[], Step]]
    ratios: list[tuple[str, str]]
    goals: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    memory: bool = True
    times: dict[str, float] = field(default_factory=dict)


def interleaved(builds: Mapping[str, Callable[[], Step]], rounds: int) -> dict[str, dict[str, float]]:
    """Run steps in turn on one thread: the median seconds of each, and its value."""
    torch.set_num_threads(1)
    steps = {name: build() for name, build in builds.items()}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step.reset()
            runs[name].append(_timed(step))
    return {name: {**done[0], "s": statistics.median(r["s"] for r in done)} for name, done in runs.items()}


def in_fresh_process(build: Callable[[], Step]) -> dict[str, float]:
    """Run a step once in a process of its own: its seconds, its value, and what it adds to resident memory."""
    # The C library then gives freed tensors back at once, instead of keeping what it happens to.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    with multiprocessing.get_context("forkserver").Pool(1) as process:
        return process.apply(_run_once, (build,))


def _run_once(build: Callable[[], Step]) -> dict[str, float]:
    from benchmarks.losses import ccp

    torch.set_num_threads(1)
    ccp(8, 16, 8).run()  # loads what is loaded on first use
    step = build()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is resident now
    before = _resident("VmRSS")
    once = _timed(step)
    # A page is the least that can be seen.
    return {**once, "MiB": max(mmap.PAGESIZE / 2**20, _resident("VmHWM") - before)}


def _timed(step: Step) -> dict[str, float]:
    start = time.process_time()  # of the one thread: what other programs do meanwhile counts less than on the clock
    value = step.run()
    return {"s": time.process_time() - start, "value": float(value)}


def _resident(name: str) -> float:
    _, _, rest = Path("/proc/self/status").read_text().partition(f"{name}:")
    return int(rest.split()[0]) / 1024


def measure(comparison: Comparison) -> list[dict[str, Any]]:
    """A row of the table for each ratio."""
    figures: dict[str, dict[str, float]] = {name: {} for name in comparison.steps}
    if comparison.memory:
        figures = {name: in_fresh_process(build) for name, build in comparison.steps.items()}
    if comparison.rounds:
        for name, timed in interleaved(comparison.steps, comparison.rounds).items():
            figures[name] |= timed
    for name, factor in comparison.times.items():
        figures[name]["s"] *= factor
    rows = []
    for ours, rival in comparison.ratios:
        row: dict[str, Any] = {"ours": ours, "rival": rival}
        for measured, unit in (("time", "s"), ("memory", "MiB")):
            if unit in figures[ours]:
                one, other, goal = figures[ours][unit], figures[rival][unit], comparison.goals.get(measured)
                met = "" if goal is None else f" ({goal:.2f}: {'met' if one <= goal * other else 'missed'})"
                row[f"{measured}, {unit}"] = f"{one:.3g} / {other:.3g}"
                row[f"ratio of {measured}"] = f"{one / other:.3g}{met}"
        rows.append(row)
    return rows


def main(comparisons: Callable[[], Mapping[str, Comparison]], description: str | None) -> None:
    """Measure what the command line asks for, and print the tables."""
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=description)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--only", nargs="+", choices=list(comparisons()), help="these comparisons instead of all")
    arguments = parser.parse_args()
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__}
    results: dict[str, Any] = {"machine": machine}
    for name in arguments.only or comparisons():
        comparison = comparisons()[name]
        results[name] = rows = measure(comparison)
        table = markdown_table(list(rows[0]), [list(row.values()) for row in rows])
        print(f"\n{comparison.title}\n\n{table}", flush=True)
    if arguments.output:
        write_json(arguments.output, results)
