"""Time and peak memory of top_k against the searches of Sentence Transformers, mteb and faiss.

    OMP_NUM_THREADS=1 python -m benchmarks.search --output runs/search.json

Given embeddings, exact search, one thread. A peak is what a search adds to the resident memory of a fresh
process (Linux); queries and corpus are left out, except that a corpus on disk starts on disk, so that what
stays of it in memory counts. In the JSON, ``loss`` is the sum of the scores found. The default sizes need 10 GB
of memory and 4 GB of disk.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.ccp_losses import Comparison, machine, measure
from benchmarks.reporting import as_markdown, write
from benchmarks.search_steps import RIVALS, faiss_flat, streamed, streamed_from_disk, ways, write_corpus


def comparisons(args: argparse.Namespace, folder: Path) -> dict[str, Comparison]:
    """What is compared, at these sizes; the corpora on disk are in ``folder``."""
    sizes = f"{args.queries} queries, {args.corpus} x {args.dimension}, k = {args.k}"
    found = {
        "rivals": Comparison(
            f"Retrieval, {sizes}, corpus in memory",
            ways(args.queries, args.corpus, args.dimension, args.k),
            [("top_k", rival) for rival in RIVALS],
            goals={"time": 1.0, "memory": 0.5},
            rounds=args.rounds,
        ),
        "growth": Comparison(
            f"top_k over a float16 memory map, {sizes}, and {args.growth} times the corpus",
            {
                name: partial(streamed_from_disk, args.queries, folder / f"{times}.npy", args.k)
                for name, times in (("larger", args.growth), ("smaller", 1))
            },
            [("larger", "smaller")],
            goals={"memory": 1.1},
        ),
    }
    rows = max(1, args.corpus // 8)
    for queries in args.few:
        found[f"{queries} queries"] = Comparison(
            f"Blocks of torch against faiss's flat index, {queries} queries, {rows} x {args.dimension}, k = {args.k}",
            {
                "top_k": partial(streamed, queries, rows, args.dimension, args.k),
                "faiss flat": partial(faiss_flat, queries, rows, args.dimension, args.k),
            },
            [("top_k", "faiss flat")],
            rounds=max(3, args.rounds),
            memory=False,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures; their tables go beside it as .md")
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--corpus", type=int, default=1_000_000, help="rows of the corpus")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--growth", type=int, default=4, help="the larger corpus on disk, in multiples of the other")
    parser.add_argument(
        "--few", type=int, nargs="*", default=[1, 8, 32, 128, 1_000], help="numbers of queries against faiss"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="runs whose median time is taken; 0: the run whose memory is measured"
    )
    parser.add_argument("--folder", type=Path, help="where the corpora on disk are put meanwhile")
    parser.add_argument("--only", nargs="+", help="these comparisons: rivals, growth, '1 queries' and so on")
    args = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(), "sizes": sizes_of(args), "comparisons": {}}
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        chosen = {key: c for key, c in comparisons(args, folder).items() if not args.only or key in args.only}
        for key, comparison in tqdm(chosen.items(), unit="comparison"):
            if key == "growth":
                for times in sorted({1, args.growth}):
                    write_corpus(folder / f"{times}.npy", times * args.corpus, args.dimension)
            results["comparisons"][key] = measure(comparison)
    print(as_markdown(results))
    if args.output:
        write(results, args.output)


def sizes_of(args: argparse.Namespace) -> dict[str, int]:
    return {name: getattr(args, name) for name in ("queries", "corpus", "dimension", "k", "growth")}


if __name__ == "__main__":
    main()
