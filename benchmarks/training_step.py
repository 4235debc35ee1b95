"""What an optimizer step on an encoder costs: in fp32 and bf16, without dropout, with fewer weights to train.

    OMP_NUM_THREADS=1 python -m benchmarks.training_step --model intfloat/multilingual-e5-small --pairs 64 --rounds 3

A step is what the Trainer does for a batch: forward and backward passes of SemanticContrastiveLoss on pairs of
full-length texts, clipping, AdamW, and gradients set to none. The ways run in turn on one thread; the figures are
medians of processor time. Without --model, a tiny encoder shows that it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from benchmarks.losses import encoder_of, texts
from benchmarks.measuring import Step, interleaved, machine
from st_xlret import SemanticContrastiveLoss
from st_xlret.evaluation import markdown_table
from st_xlret.files import write_json
from st_xlret.precision import autocast
from st_xlret.training.trainable import add_lora, attention_of, dropout_of, freeze_word_embeddings

LORA_RANK = 16


@dataclass(frozen=True)
class Way:
    """What is trained, and how. Training in bf16 on a CPU takes eager attention, see `CrossLingualTrainer`."""

    trained: str = "all weights"
    precision: str = "bf16"
    dropout: float | None = None
    attention: str | None = "eager"
    checkpointing: bool = False


WAYS = {
    "fp32": Way(precision="fp32", attention=None),
    "fp32, no dropout": Way(precision="fp32", attention=None, dropout=0.0),
    "bf16, PyTorch's fused attention": Way(attention=None),
    "bf16": Way(),
    "bf16, no dropout": Way(dropout=0.0),
    "bf16, frozen word embeddings": Way("frozen word embeddings"),
    "bf16, frozen word embeddings, no dropout": Way("frozen word embeddings", dropout=0.0),
    f"bf16, LoRA of rank {LORA_RANK}": Way("LoRA"),
    "bf16, gradient checkpointing": Way(checkpointing=True),
}


def step(model: SentenceTransformer, way: Way, pairs: int, tokens: int) -> Step:
    """An optimizer step on a batch of pairs."""
    loss = SemanticContrastiveLoss(model)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    # A rate of 0 costs as much, and leaves the encoder as it is for the other ways.
    optimizer = torch.optim.AdamW(weights, lr=0.0, weight_decay=0.0)
    torch.manual_seed(0)
    batch = [texts(model, pairs, tokens) for _ in "ab"]
    transformer: Any = model.transformers_model

    def run() -> torch.Tensor:
        if way.checkpointing:
            transformer.gradient_checkpointing_enable()
        else:
            transformer.gradient_checkpointing_disable()
        with dropout_of(model, way.dropout), attention_of(model, way.attention):
            with autocast(way.precision, "cpu"):
                value = loss([dict(features) for features in batch])
            value.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    run()  # makes the optimizer's moments
    return Step(run)


def measure(name: str | None, pairs: int, tokens: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of each way, the weights that it trains, and how many times as fast as fp32 it is."""
    steps, trained = {}, {}
    for kind in dict.fromkeys(way.trained for way in WAYS.values()):
        model = encoder_of("tiny", tokens) if name is None else SentenceTransformer(name, device="cpu").train()
        if kind == "LoRA":
            add_lora(model, LORA_RANK)
        elif kind == "frozen word embeddings":
            freeze_word_embeddings(model)
        for key in [key for key, way in WAYS.items() if way.trained == kind]:
            steps[key] = partial(Step, step(model, WAYS[key], pairs, tokens).run)
            trained[key] = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    timed = interleaved({key: steps[key] for key in WAYS}, rounds)
    slowest = timed["fp32"]["seconds"]
    return {
        key: {**found, "speed": slowest / found["seconds"], "trained": trained[key]} for key, found in timed.items()
    }


def show(figures: Mapping[str, Mapping[str, float]]) -> str:
    """The figures as a table."""
    rows = [
        [way, f"{figure['seconds']:.3g}", f"{figure['speed']:.2f}", f"{figure['trained'] / 1e6:.1f}"]
        for way, figure in figures.items()
    ]
    return markdown_table(["step", "time, s", "times as fast", "weights trained, M"], rows)


def main() -> None:
    """Measure what the command line asks for, and show the table."""
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--model", help="Hub name or folder of an encoder")
    parser.add_argument("--pairs", type=int, default=32, help="pairs in a batch (default: 32)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a text (default: 32)")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each way (default: 5)")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    given = parser.parse_args()
    figures = measure(given.model, given.pairs, given.tokens, given.rounds)
    print(show(figures))
    if given.output:
        sizes = {"model": given.model, "rows": 2 * given.pairs, "tokens": given.tokens, "rounds": given.rounds}
        write_json(given.output, {"machine": machine(), **sizes, "figures": figures})


if __name__ == "__main__":
    main()
