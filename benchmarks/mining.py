"""Time and peak memory of mine_bitext against two faiss searches and against two of Sentence Transformers.

    OMP_NUM_THREADS=1 python -m benchmarks.mining --output runs/mining.json

Both sides are given as float32 vectors, one thread. A peak is what mining adds to the resident memory of a fresh
process (Linux), its inputs left out. In the JSON, ``loss`` is the sum of the pairs' scores. At the
default size each way takes one to three minutes a run.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ccp_losses import Comparison, machine, measure
from benchmarks.mining_steps import one_pass, two_faiss_searches, two_semantic_searches
from benchmarks.reporting import as_markdown, write


def comparison(rows: int, dimension: int, k: int, rounds: int) -> Comparison:
    """What is compared, at this size."""
    sizes = rows, dimension, k
    return Comparison(
        f"Mining with the ratio margin, {rows} x {rows} x {dimension}, k = {k}",
        {
            "mine_bitext": partial(one_pass, *sizes),
            "two faiss searches": partial(two_faiss_searches, *sizes),
            "two semantic_searches": partial(two_semantic_searches, *sizes),
        },
        [("mine_bitext", "two faiss searches"), ("mine_bitext", "two semantic_searches")],
        goals={"time": 1 / 1.7},
        rounds=rounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures; their table goes beside it as .md")
    parser.add_argument("--rows", type=int, default=50_000, help="sentences on either side")
    parser.add_argument("--dimension", type=int, default=768)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument(
        "--rounds", type=int, default=1, help="runs whose median time is taken; 0: the run whose memory is measured"
    )
    args = parser.parse_args()
    sizes = {"rows": args.rows, "dimension": args.dimension, "k": args.k}
    measured = measure(comparison(args.rows, args.dimension, args.k, args.rounds))
    results: dict[str, Any] = {"machine": machine(), "sizes": sizes, "comparisons": {"mining": measured}}
    print(as_markdown(results))
    if args.output:
        write(results, args.output)


if __name__ == "__main__":
    main()
