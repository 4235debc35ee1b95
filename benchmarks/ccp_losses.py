"""Time and peak memory of CCPLoss and MaskedLMLoss against the encoder and other ways to the same losses.

    python -m benchmarks.ccp_losses --output runs/ccp_losses.json

Times are medians of interleaved runs, forward and backward, in CPU seconds of one thread. A peak is what one
step adds to the resident memory of a fresh process (Linux), its inputs left out. README.md beside this file
says what is compared.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from benchmarks.measuring import in_fresh_process, interleaved
from benchmarks.steps import (
    EVERY_SIMILARITY,
    Step,
    ccp,
    concatenated,
    cross_batch_memory,
    encoder,
    multiple_negatives,
    vocabulary,
)
from st_xlret.files import write_json_atomically


@dataclass
class Comparison:
    """Steps, and which of them is set against which."""

    title: str
    steps: Mapping[str, Callable[[], Step]]
    ratios: list[tuple[str, str]]
    goals: dict[str, float] = field(default_factory=dict)  # bounds on the ratios of a measure
    rounds: int = 0  # 0: the time is that of the single run in which the memory is measured
    memory: bool = True
    needs: str | None = None  # an optional package


def comparisons(quick: bool) -> dict[str, Comparison]:
    """What is compared, by name, at the sizes of the figures or (``quick``) at toy sizes."""
    wide, narrow, keys, entries = (32, 16, 96, 500) if quick else (768, 256, 32768, 250002)
    rows, pair_rows, many_rows, tokens = (8, 8, 16, 60) if quick else (64, 512, 2048, 2048)
    masked = round(0.15 * tokens)
    size, length = ("tiny", 8) if quick else ("base", 64)
    found: dict[str, Comparison] = {
        "encoder": Comparison(
            f"(a) CCPLoss, head and bank of {keys} against the encoder, {rows} rows of {length} tokens",
            {
                "one language": partial(ccp, rows, keys, wide, head=True),
                "mixed": partial(ccp, rows, keys, wide, languages=4, head=True),
                "encoder": partial(encoder, size, rows, length),
            },
            [("one language", "encoder"), ("mixed", "encoder")],
            rounds=3,
            memory=False,
            goals={"time": 0.03},
        ),
        "in_batch": Comparison(
            f"(b) CCPLoss without bank against MultipleNegativesRankingLoss, {many_rows} rows of {wide}",
            {
                "CCPLoss": partial(ccp, many_rows, 0, wide),
                "MNRL, same similarities": partial(multiple_negatives, many_rows, wide, EVERY_SIMILARITY),
                "MNRL, default (a quarter)": partial(multiple_negatives, many_rows, wide, EVERY_SIMILARITY[:1]),
            },
            [("CCPLoss", "MNRL, same similarities"), ("CCPLoss", "MNRL, default (a quarter)")],
            rounds=7,
        ),
    }
    for name, inner, count in (("ntxent", "NTXentLoss", rows), ("supcon", "SupConLoss", pair_rows)):
        rival = f"CrossBatchMemory({inner})"
        found[name] = Comparison(
            f"(b) CCPLoss against {rival}, {count} rows and {keys} keys of {narrow}",
            {
                "CCPLoss": partial(ccp, count, keys, narrow),
                rival: partial(cross_batch_memory, count, keys, narrow, inner),
            },
            [("CCPLoss", rival)],
            rounds=3,
            needs="pytorch_metric_learning",
        )
    for name, features in (("naive_narrow", narrow), ("naive_wide", wide)):
        found[name] = Comparison(
            f"(c) CCPLoss against one matrix of all logits, {many_rows} rows and {keys} keys of {features}",
            {
                "CCPLoss": partial(ccp, many_rows, keys, features),
                "one matrix": partial(concatenated, many_rows, keys, features),
            },
            [("CCPLoss", "one matrix")],
            rounds=5,
            goals={"memory": 1 / 5},
        )
    found["naive_languages"] = Comparison(
        f"(c) CCPLoss against one matrix of all logits, {rows} rows of one language and {keys} keys of 11, of {wide}",
        {
            "CCPLoss": partial(ccp, rows, keys, wide, key_languages=11),
            "one matrix": partial(concatenated, rows, keys, wide, key_languages=11),
        },
        [("CCPLoss", "one matrix")],
        rounds=7,
    )
    in_chunks = f"(d) MaskedLMLoss's {masked} x {entries} logits in chunks"
    for name, way, title, rounds in (
        ("vocabulary", "masked", "against all at once", 3),
        ("vocabulary_frozen", "masked frozen", "against all at once, without the weight's gradient", 0),
        ("vocabulary_host", "all", f"against the host's logits of all {tokens} tokens", 0),
    ):
        chunked = "chunked frozen" if "frozen" in way else "chunked"
        steps = {w: partial(vocabulary, masked, tokens, wide, entries, w) for w in (chunked, way)}
        found[name] = Comparison(
            f"{in_chunks} {title}", steps, [(chunked, way)], goals={"memory": 1 / 4}, rounds=rounds
        )
    if quick:
        for comparison in found.values():
            comparison.goals = {}
    return found


def measure(comparison: Comparison) -> dict[str, Any]:
    """Loss, seconds and peak bytes of each step, and the ratios."""
    figures: dict[str, dict[str, float]] = {name: {} for name in comparison.steps}
    if comparison.memory:
        figures = {name: in_fresh_process(build) for name, build in comparison.steps.items()}
    if comparison.rounds:
        for name, times in interleaved(comparison.steps, comparison.rounds).items():
            figures[name] |= times
    measures = {"time": "seconds"}
    if all("peak_bytes" in figure for figure in figures.values()):
        measures["memory"] = "peak_bytes"
    ratios = []
    for one, other in comparison.ratios:
        for measure, key in measures.items():
            ratio, goal = figures[one][key] / figures[other][key], comparison.goals.get(measure)
            met = None if goal is None else ratio <= goal
            ratios.append({"of": one, "to": other, "measure": measure, "ratio": ratio, "goal": goal, "met": met})
    return {"title": comparison.title, "figures": figures, "ratios": ratios}


def show(result: dict[str, Any]) -> str:
    """A comparison as a small table."""
    lines = [f"\n{result['title']}"]
    for name, figure in result["figures"].items():
        peak = f"{figure['peak_bytes'] / 2**20:10.0f} MiB" if "peak_bytes" in figure else ""
        times = f"{1000 * figure['seconds']:10.1f} ms (of {figure['runs']:.0f})"
        lines.append(f"  {name:32}{times}{peak}   loss {figure['loss']:.5f}")
    for ratio in result["ratios"]:
        verdict = "" if ratio["goal"] is None else f" (goal {ratio['goal']:.2f}, met: {ratio['met']})"
        lines.append(f"  {ratio['measure']:24}{ratio['of']} / {ratio['to']} = {ratio['ratio']:.4f}{verdict}")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpu, about = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    for line in about.read_text().splitlines() if about.exists() else []:
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
    return {"cpu": cpu, "cores": os.cpu_count(), "torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    names = list(comparisons(quick=True))
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--only", nargs="+", choices=names, help="these comparisons instead of all")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, no more")
    args = parser.parse_args()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    chosen = {name: c for name, c in comparisons(args.quick).items() if not args.only or name in args.only}
    results: dict[str, Any] = {"machine": machine(), "quick": args.quick, "comparisons": {}}
    for name, comparison in tqdm(chosen.items(), unit="comparison"):
        if comparison.needs and not find_spec(comparison.needs):
            tqdm.write(f"\n{comparison.title}: left out, {comparison.needs} is not installed")
            continue
        results["comparisons"][name] = measure(comparison)
        tqdm.write(show(results["comparisons"][name]))
    if args.output:
        write_json_atomically(args.output, results)


if __name__ == "__main__":
    main()
