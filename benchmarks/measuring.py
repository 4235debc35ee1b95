"""What the benchmarks share: steps that run in turn, the memory of one in a process, and tables."""

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
from typing import Any, TypeAlias

import torch

from st_xlret.files import check_output_file, write_json
from st_xlret.tables import records_table

Step: TypeAlias = Callable[[], Any]  # what is measured


@dataclass
class Comparison:
    """Ways to do the same, of which the last is the rival of the others.

    `goals` are the largest ratios to it.
    """

    title: str
    ways: Mapping[str, Callable[[], Step]]
    goals: dict[str, float] = field(default_factory=dict)
    rounds: int = 1


def median_seconds(ways: Mapping[str, Callable[[], Step]], rounds: int) -> dict[str, float]:
    """Run the steps in turn on one thread, and take the median of each."""
    torch.set_num_threads(1)
    steps = {name: make() for name, make in ways.items()}
    seconds = [{name: _seconds(step) for name, step in steps.items()} for _ in range(rounds)]
    return {name: statistics.median(of_round[name] for of_round in seconds) for name in steps}


def peak_memory(make: Callable[[], Step]) -> float:
    """Run a step once in a process of its own: the most MiB that it adds to resident memory."""
    # The C library then gives freed tensors back at once, instead of keeping what it happens to.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    with multiprocessing.get_context("forkserver").Pool(1) as process:
        return process.apply(_added_memory, (make,))


def _added_memory(make: Callable[[], Step]) -> float:
    from benchmarks.losses import ccp

    torch.set_num_threads(1)
    ccp(8, 16, 8)()  # loads what is loaded on first use
    step = make()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is resident now
    before = _resident("VmRSS")
    step()
    least = mmap.PAGESIZE / 2**20  # a page is the least that can be seen
    return max(least, _resident("VmHWM") - before)


def _seconds(step: Step) -> float:
    # Of the one thread: what other programs do meanwhile counts less than on the clock.
    start = time.process_time()
    step()
    return time.process_time() - start


def _resident(name: str) -> float:
    _, _, rest = Path("/proc/self/status").read_text().partition(f"{name}:")
    return int(rest.split()[0]) / 1024


def measure(comparison: Comparison) -> list[dict[str, str]]:
    """A row of the table for each way but the rival."""
    memory = {name: peak_memory(make) for name, make in comparison.ways.items()}
    seconds = median_seconds(comparison.ways, comparison.rounds)
    *ours, rival = comparison.ways
    rows = []
    for name in ours:
        row = {"ours": name, "rival": rival}
        for measured, unit, figures in (("time", "s", seconds), ("memory", "MiB", memory)):
            one = figures[name]
            other = figures[rival]
            ratio = one / other
            row[f"{measured}, {unit}"] = f"{one:.3g} / {other:.3g}"
            row[f"ratio of {measured}"] = f"{ratio:.3g}"
            goal = comparison.goals.get(measured)
            if goal is not None:
                verdict = "met" if ratio <= goal else "missed"
                row[f"ratio of {measured}"] += f" ({goal:.2f}: {verdict})"
        rows.append(row)
    return rows


def _checked_output(file: str) -> Path:
    return check_output_file(file, ours="benchmark")


def main(comparisons: Mapping[str, Comparison], description: str | None) -> None:
    """Measure what the command line asks for, and print the tables."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=description
    )
    parser.add_argument("--output", type=_checked_output, help="JSON file for the figures")
    parser.add_argument(
        "--only", nargs="+", choices=list(comparisons), help="these comparisons instead of all"
    )
    options = parser.parse_args()
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    results: dict[str, Any] = {"machine": machine}
    for name in options.only or comparisons:
        results[name] = rows = measure(comparisons[name])
        table = records_table(rows)
        print(f"\n{comparisons[name].title}\n\n{table}", flush=True)
    if options.output:
        write_json(options.output, results, ours="benchmark")
