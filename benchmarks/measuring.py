"""CPU seconds of interleaved runs, and the peak memory of one step in a fresh process."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.steps import Step, ccp

CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
Build = Callable[[], Step]


def interleaved(builds: Mapping[str, Build], rounds: int) -> dict[str, dict[str, float]]:
    """Run the steps in turn, ``rounds`` times: the median seconds of each, and its loss."""
    torch.set_num_threads(1)
    steps = {name: build() for name, build in builds.items()}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step.reset()
            runs[name].append(_timed(step))
    middle = {name: statistics.median(run["seconds"] for run in done) for name, done in runs.items()}
    return {name: {**runs[name][0], "seconds": middle[name], "runs": rounds} for name in steps}


def in_fresh_process(build: Build) -> dict[str, float]:
    """Run a step once in a process of its own: its seconds, its loss and ``peak_bytes``.

    The peak is what the step adds to the resident memory, so its inputs are left out. Linux only: elsewhere
    there is no ``peak_bytes``.
    """
    # The C library then gives freed tensors back at once, instead of keeping what it happens to.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    # A server that has imported everything and computed nothing is forked: clean as a new process, and fast.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with context.Pool(1) as process:
        return process.apply(_run_once, (build,))


def _run_once(build: Build) -> dict[str, float]:
    torch.set_num_threads(1)
    ccp(8, 16, 8).run()  # loads what is loaded on first use
    step = build()
    gc.collect()
    if not CLEAR_REFS.exists():
        return _timed(step)
    CLEAR_REFS.write_text("5")  # resets the peak to what is resident now
    before = resident("VmRSS")
    once = _timed(step)
    # A page is the least that can be seen.
    return {**once, "peak_bytes": max(mmap.PAGESIZE, resident("VmHWM") - before)}


def _timed(step: Step) -> dict[str, float]:
    # Processor time of the one thread: what other programs do meanwhile counts less than on the clock.
    start = time.process_time()
    loss = step.run()
    return {"seconds": time.process_time() - start, "loss": float(loss), "runs": 1}


class Stages:
    """The time of each part of a program, and the most memory that this process had in it. Linux only."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, Any]] = {}
        self.anonymous_before = resident("RssAnon")

    @contextmanager
    def __call__(self, name: str) -> Iterator[dict[str, Any]]:
        """Measure a part; what is put into the dictionary becomes one of its figures."""
        CLEAR_REFS.write_text("5")  # resets the peak to what is resident now
        figures: dict[str, Any] = {"bytes_before": resident("VmRSS"), "anonymous_bytes_before": resident("RssAnon")}
        ended, peak = threading.Event(), [0]

        def watch() -> None:
            # The system keeps the peak of all resident memory, and none of its anonymous part.
            while not ended.wait(0.02):
                peak[0] = max(peak[0], resident("RssAnon"))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        started, processor = time.perf_counter(), time.process_time()
        yield figures
        figures |= {"seconds": time.perf_counter() - started, "processor_seconds": time.process_time() - processor}
        ended.set()
        watching.join()
        figures |= {"peak_bytes": resident("VmHWM"), "peak_anonymous_bytes": max(peak[0], resident("RssAnon"))}
        self.figures[name] = figures


def resident(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])
