"""What all benchmarks share: steps that run in turn, the memory of one step in a fresh process, and the table."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from st_xlret.evaluation import markdown_table
from st_xlret.files import write_json

CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass
class Step:
    """What is measured: returns a number that equal ways have in common; what has to be put back before the next."""

    run: Callable[[], Tensor]
    reset: Callable[[], Any] = lambda: None


Build = Callable[[], Step]


@dataclass
class Comparison:
    """Steps, and which of them is set against which.

    Attributes:
        title: What is compared, with the sizes.
        steps: Name -> function that makes the step.
        ratios: Pairs of names.
        goals: "time" or "memory" -> largest ratio.
        rounds: Runs whose median time is taken. With 0 the time is that of the run in which the memory is measured.
        memory: Whether the memory is measured.
        times: Name -> how many times its seconds count.
        needs: An optional package.
    """

    title: str
    steps: Mapping[str, Build]
    ratios: list[tuple[str, str]]
    goals: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    memory: bool = True
    times: dict[str, float] = field(default_factory=dict)
    needs: str | None = None


def backward(loss: Tensor) -> Tensor:
    """The loss, once its backward pass is done."""
    loss.backward()
    return loss.detach()


def interleaved(builds: Mapping[str, Build], rounds: int) -> dict[str, dict[str, float]]:
    """Run the steps in turn, `rounds` times: the median seconds of each, and its value."""
    torch.set_num_threads(1)
    steps = {name: build() for name, build in builds.items()}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step.reset()
            runs[name].append(_timed(step))
    middle = {name: statistics.median(run["seconds"] for run in done) for name, done in runs.items()}
    return {name: {**runs[name][0], "seconds": middle[name]} for name in steps}


def in_fresh_process(build: Build) -> dict[str, float]:
    """Run a step once in a process of its own: its seconds, its value and, on Linux, `peak_bytes`.

    The peak is what the step adds to the resident memory, without its inputs.
    """
    # The C library then gives freed tensors back at once, instead of keeping what it happens to.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    # A server that has imported everything and computed nothing is forked: clean as a new process, and fast.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.losses"])
    with context.Pool(1) as process:
        return process.apply(_run_once, (build,))


def _run_once(build: Build) -> dict[str, float]:
    from benchmarks.losses import ccp

    torch.set_num_threads(1)
    ccp(8, 16, 8).run()  # loads what is loaded on first use
    step = build()
    gc.collect()
    if not CLEAR_REFS.exists():
        return _timed(step)
    CLEAR_REFS.write_text("5")  # resets the peak to what is resident now
    before = _resident("VmRSS")
    once = _timed(step)
    # A page is the least that can be seen.
    return {**once, "peak_bytes": max(mmap.PAGESIZE, _resident("VmHWM") - before)}


def _timed(step: Step) -> dict[str, float]:
    # Processor time of the one thread: what other programs do meanwhile counts less than on the clock.
    start = time.process_time()
    value = step.run()
    return {"seconds": time.process_time() - start, "value": float(value)}


def _resident(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def measure(comparison: Comparison) -> dict[str, Any]:
    """Value, seconds and peak bytes of each step, and the ratios."""
    figures: dict[str, dict[str, float]] = {name: {} for name in comparison.steps}
    if comparison.memory:
        figures = {name: in_fresh_process(build) for name, build in comparison.steps.items()}
    if comparison.rounds:
        for name, found in interleaved(comparison.steps, comparison.rounds).items():
            figures[name] |= found
    for name, factor in comparison.times.items():
        figures[name]["seconds"] *= factor
    ratios = []
    for one, other in comparison.ratios:
        for measured, key in (("time", "seconds"), ("memory", "peak_bytes")):
            if key in figures[one]:
                ratio, goal = figures[one][key] / figures[other][key], comparison.goals.get(measured)
                ratios.append({"of": one, "to": other, "measure": measured, "ratio": ratio, "goal": goal})
    return {"title": comparison.title, "figures": figures, "ratios": ratios}


def table(result: Mapping[str, Any]) -> str:
    """A comparison in Markdown: a row for each ratio."""
    lines = []
    for ratio in result["ratios"]:
        key, unit = {"time": ("seconds", 1.0), "memory": ("peak_bytes", 2.0**20)}[ratio["measure"]]
        ours, theirs = (result["figures"][ratio[part]][key] / unit for part in ("of", "to"))
        met = ratio["goal"] is not None and ratio["ratio"] <= ratio["goal"]
        goal = "" if ratio["goal"] is None else f"{ratio['goal']:.2f}: {'met' if met else 'missed'}"
        measured = {"time": "time, s", "memory": "memory, MiB"}[ratio["measure"]]
        lines.append([ratio["of"], ratio["to"], measured, f"{ours:.4g} / {theirs:.4g}", f"{ratio['ratio']:.3f}", goal])
    return f"{result['title']}\n\n{markdown_table(['ours', 'rival', 'measure', 'figures', 'ratio', 'goal'], lines)}"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu, about = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    for line in about.read_text().splitlines() if about.exists() else []:
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
    return {"cpu": cpu, "cores": os.cpu_count(), "torch": torch.__version__}


def main(
    comparisons: Callable[[bool], Mapping[str, Comparison]], description: str | None, given: list[str] | None = None
) -> dict[str, Any]:
    """Measure what the command line asks for, show tables, and return the figures.

    Args:
        comparisons: Quick or not -> name -> comparison. A quick one has toy sizes.
        description: Text above the options in `--help`.
        given: The command line. By default that of the program.
    """
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=description)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--only", nargs="+", choices=list(comparisons(True)), help="these comparisons instead of all")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, no more")
    arguments = parser.parse_args(given)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    results: dict[str, Any] = {"machine": machine(), "quick": arguments.quick, "comparisons": {}}
    every = comparisons(arguments.quick)
    for name in tqdm(arguments.only or every, unit="comparison"):
        if (package := every[name].needs) and not find_spec(package):
            tqdm.write(f"{every[name].title}: left out, {package} is not installed")
            continue
        results["comparisons"][name] = measure(every[name])
        tqdm.write(f"\n{table(results['comparisons'][name])}")
    if arguments.output:
        write_json(arguments.output, results)
    return results
