"""What batches of many different lengths cost in bf16 on a CPU, beside batches padded to multiples of 16 tokens.

    MALLOC_ARENA_MAX=1 python -m benchmarks.batch_lengths --model intfloat/multilingual-e5-small

oneDNN compiles kernels for each length that it meets, and keeps them. A run is a number of forward and backward passes
of the encoder's first layers on texts of random lengths, the same ones for both, in a fresh process. The memory is what
they add to the resident memory at its peak (Linux).
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.functional import pad

from benchmarks.measuring import in_fresh_process
from benchmarks.steps import Step
from benchmarks.training_step import encoder, texts
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.precision import autocast
from st_xlret.training.layers import dropout, stepwise_attention

MULTIPLES = {"as they are": 1, "multiples of 16": 16}


def passes(name: str | None, layers: int, rows: int, steps: int, longest: int, multiple: int) -> Step:
    """Passes over batches whose lengths are rounded up to a multiple; what was added is masked."""
    torch.manual_seed(0)
    model: SentenceTransformer = encoder(name, "frozen word embeddings")
    transformer: Any = model.transformers_model
    transformer.encoder.layer = transformer.encoder.layer[:layers]
    lengths = torch.randint(8, longest, (steps,)).tolist()

    def run() -> Tensor:
        value = torch.zeros(())
        for length in lengths:
            added = (0, -length % multiple)
            features = texts(model, rows, length)
            features["input_ids"] = pad(features["input_ids"], added, value=model.tokenizer.pad_token_id)
            features["attention_mask"] = pad(features["attention_mask"], added)
            with dropout(model, 0), stepwise_attention(model):
                with autocast("bf16", "cpu"):
                    value = model(features)["sentence_embedding"].float().square().mean()
                value.backward()
            model.zero_grad()
        return value.detach()

    return Step(run)


def measure(name: str | None, layers: int, rows: int, steps: int, longest: int) -> dict[str, dict[str, float]]:
    """Seconds of processor time of a step, and the bytes that all steps add, for each way to pad."""
    found = {}
    for way, multiple in MULTIPLES.items():
        once = in_fresh_process(partial(passes, name, layers, rows, steps, longest, multiple))
        found[way] = {"seconds": once["seconds"] / steps, "bytes": once.get("peak_bytes", float("nan"))}
    return found


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Measure, and show a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="The encoder. A tiny one from scratch by default.")
    parser.add_argument("--layers", type=int, default=2, help="Layers of it to keep (default: 2).")
    parser.add_argument("--texts", type=int, default=8, help="Texts in a batch (default: 8).")
    parser.add_argument("--steps", type=int, default=100, help="Batches (default: 100).")
    parser.add_argument("--longest", type=int, default=160, help="Tokens of the longest batch (default: 160).")
    given = parser.parse_args(arguments)
    found = measure(given.model, given.layers, given.texts, given.steps, given.longest)
    rows = [[way, f"{figure['seconds']:.3f}", f"{figure['bytes'] / 2**20:.0f}"] for way, figure in found.items()]
    print(markdown_table(["lengths", "processor seconds a step", "memory of all steps, MiB"], rows))
    return found


if __name__ == "__main__":
    main()
