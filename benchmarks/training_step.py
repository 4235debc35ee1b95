"""What an optimizer step costs: in fp32 and bf16, without dropout, with fewer weights to train.

    OMP_NUM_THREADS=1 python -m benchmarks.training_step --pairs 64 --rounds 3 \\
        --model intfloat/multilingual-e5-small

A step is what the Trainer does for a batch: forward and backward passes of SemanticContrastiveLoss
on pairs of full-length texts, clipping, AdamW, and gradients set to none. The ways run in turn on
one thread; the figures are medians of processor time. Training in bf16 on a CPU takes eager
attention, see `CrossLingualTrainer`.
"""

import argparse
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from benchmarks.losses import texts
from benchmarks.measuring import Step, median_seconds
from st_xlret import SemanticContrastiveLoss
from st_xlret.precision import autocast
from st_xlret.tables import markdown_table
from st_xlret.training.preparation import changed_attention, changed_dropout
from st_xlret.training.trainable import freeze_word_embeddings


@dataclass(frozen=True)
class Way:
    """How a step is computed."""

    precision: Literal["fp32", "bf16"]
    attention: str | None = None
    dropout: float | None = None
    freezes_embeddings: bool = False


WAYS = {
    "fp32": Way("fp32"),
    "fp32, `--dropout 0`": Way("fp32", dropout=0.0),
    "bf16 with PyTorch's fused attention": Way("bf16"),
    "bf16 (`--precision auto`)": Way("bf16", "eager"),
    "bf16, `--dropout 0`": Way("bf16", "eager", dropout=0.0),
    "bf16, `--freeze_embeddings --dropout 0`": Way("bf16", "eager", 0.0, True),
}


def trained_weights(model: SentenceTransformer) -> list[nn.Parameter]:
    """The weights that are not frozen."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def step(model: SentenceTransformer, way: Way, pairs: int) -> Step:
    """An optimizer step on a batch of pairs of 32 tokens."""
    loss = SemanticContrastiveLoss(model)
    weights = trained_weights(model)
    # A rate of 0 costs as much, and leaves the encoder as it is for the other ways.
    optimizer = torch.optim.AdamW(weights, lr=0.0, weight_decay=0.0)
    batch = [texts(model, pairs, 32) for _ in "ab"]

    def run() -> None:
        with changed_dropout(model, way.dropout), changed_attention(model, way.attention):
            with autocast(way.precision, "cpu"):
                value = loss([dict(features) for features in batch])
            value.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    run()  # makes the optimizer's moments
    return run


def main() -> None:
    """Measure what the command line asks for, and print the table."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument("--model", required=True, help="Hub name or folder of an encoder")
    parser.add_argument("--pairs", type=int, default=32, help="pairs in a batch (default: 32)")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each way (default: 5)")
    options = parser.parse_args()
    whole = SentenceTransformer(options.model, device="cpu").train()
    frozen = SentenceTransformer(options.model, device="cpu").train()
    freeze_word_embeddings(frozen)
    models = {}
    steps = {}
    for name, way in WAYS.items():
        models[name] = frozen if way.freezes_embeddings else whole
        steps[name] = partial(step, models[name], way, options.pairs)
    seconds = median_seconds(steps, options.rounds)
    rows = []
    for name, time in seconds.items():
        trained = sum(weight.numel() for weight in trained_weights(models[name]))
        times_as_fast = seconds["fp32"] / time
        rows.append([name, f"{time:.3g}", f"{times_as_fast:.1f}", f"{trained / 1e6:.1f}"])
    print(markdown_table(["step", "time, s", "times as fast", "weights trained, M"], rows))


if __name__ == "__main__":
    main()
