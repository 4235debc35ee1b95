"""Time and peak memory of an optimizer step of a static encoder: lazy Adam, torch's SparseAdam and AdamW.

    OMP_NUM_THREADS=1 python -m benchmarks.static_encoder --output runs/static_encoder.json

Forward pass, backward pass and update of a table of vectors, on batches of texts whose words are as frequent as in real
text (Zipf), one thread; the loss is a dot product, so that the table is what is measured. A peak is what a step adds to
the resident memory of a fresh process (Linux): the table and both moments are left out. lazy Adam and SparseAdam take
the same steps, which the tests check.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.ccp_losses import Comparison, machine, measure
from benchmarks.reporting import as_markdown, write
from benchmarks.steps import Step
from st_xlret.training.lazy_adam import LazyAdamW, LazyEmbeddingBag

Sizes = tuple[int, int, int, int]


def step(way: str, sizes: Sizes) -> Step:
    """One update of a table (vocabulary, features) by a batch of (texts, words in each)."""
    vocabulary, features, texts, words = sizes
    torch.manual_seed(0)
    if way == "lazy Adam":
        table: nn.EmbeddingBag = LazyEmbeddingBag(vocabulary, features)
        optimizer: torch.optim.Optimizer = LazyAdamW(table.parameters(), lr=1e-3, weight_decay=0.0)
    else:
        table = nn.EmbeddingBag(vocabulary, features, sparse=way == "SparseAdam")
        optimizer = (
            torch.optim.SparseAdam(table.parameters(), lr=1e-3)
            if way == "SparseAdam"
            else torch.optim.AdamW(table.parameters(), lr=1e-3, weight_decay=0.0)
        )
    frequencies = torch.distributions.Categorical(1 / torch.arange(1, vocabulary + 1).float())
    rows, offsets = frequencies.sample((texts * words,)), torch.arange(0, texts * words, words)
    direction = torch.randn(texts, features)

    def run() -> torch.Tensor:
        loss = (table(rows, offsets) * direction).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run()  # the moments are there before
    return Step(run, lambda: None)


def comparison(sizes: Sizes, rounds: int) -> Comparison:
    """What is compared, at these sizes."""
    ways = ("lazy Adam", "SparseAdam", "AdamW")
    vocabulary, features, texts, words = sizes
    return Comparison(
        f"An update of {vocabulary} x {features} by {texts} texts of {words} words",
        {way: partial(step, way, sizes) for way in ways},
        [("lazy Adam", "SparseAdam"), ("lazy Adam", "AdamW")],
        rounds=rounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures; their table goes beside it as .md")
    parser.add_argument("--vocabulary", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--texts", type=int, default=1024, help="in a batch, both sides together")
    parser.add_argument("--words", type=int, default=14, help="in a text")
    parser.add_argument("--rounds", type=int, default=9, help="steps whose median is taken")
    args = parser.parse_args()
    sizes = args.vocabulary, args.features, args.texts, args.words
    results: dict[str, Any] = {
        "machine": machine(),
        "sizes": dict(zip(("vocabulary", "features", "texts", "words"), sizes, strict=True)),
        "comparisons": {"update": measure(comparison(sizes, args.rounds))},
    }
    print(as_markdown(results))
    if args.output:
        write(results, args.output)


if __name__ == "__main__":
    main()
