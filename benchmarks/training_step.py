"""What an optimizer step on an encoder costs: in fp32 and bf16, without dropout, with fewer weights to train.

    OMP_NUM_THREADS=1 python -m benchmarks.training_step --model intfloat/multilingual-e5-small --pairs 64 --rounds 3

A step is what the Trainer does for a batch: forward and backward passes of SemanticContrastiveLoss on pairs of
full-length texts, clipping, AdamW, and gradients set to none. The ways run in turn on one thread; the figures are
medians of processor time. Training in bf16 on a CPU takes eager attention, see `CrossLingualTrainer`.
"""

import argparse
from functools import partial
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from benchmarks.losses import texts
from benchmarks.measuring import Step, median_seconds
from st_xlret import SemanticContrastiveLoss
from st_xlret.evaluation import markdown_table
from st_xlret.precision import autocast
from st_xlret.training.trainable import (
    changed_attention,
    changed_dropout,
    freeze_word_embeddings,
)

# Precision, attention, dropout, and whether word embeddings are frozen.
WAYS: dict[str, tuple[Any, str | None, float | None, bool]] = {
    "fp32": ("fp32", None, None, False),
    "fp32, `--dropout 0`": ("fp32", None, 0.0, False),
    "bf16 with PyTorch's fused attention": ("bf16", None, None, False),
    "bf16 (`--precision auto`)": ("bf16", "eager", None, False),
    "bf16, `--dropout 0`": ("bf16", "eager", 0.0, False),
    "bf16, `--freeze_embeddings --dropout 0`": ("bf16", "eager", 0.0, True),
}


def step(model: SentenceTransformer, way: str, pairs: int) -> Step:
    """An optimizer step on a batch of pairs of 32 tokens."""
    precision, attention, dropout, _ = WAYS[way]
    loss, weights = (
        SemanticContrastiveLoss(model),
        [weight for weight in model.parameters() if weight.requires_grad],
    )
    # A rate of 0 costs as much, and leaves the encoder as it is for the other ways.
    optimizer = torch.optim.AdamW(weights, lr=0.0, weight_decay=0.0)
    batch = [texts(model, pairs, 32) for _ in "ab"]

    def run() -> None:
        with changed_dropout(model, dropout), changed_attention(model, attention):
            with autocast(precision, "cpu"):
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
    whole, frozen = (SentenceTransformer(options.model, device="cpu").train() for _ in range(2))
    freeze_word_embeddings(frozen)
    models = {way: frozen if settings[-1] else whole for way, settings in WAYS.items()}
    steps = {way: partial(step, model, way, options.pairs) for way, model in models.items()}
    seconds, rows = median_seconds(steps, options.rounds), []
    for way, time in seconds.items():
        trained = sum(weight.numel() for weight in models[way].parameters() if weight.requires_grad)
        rows.append([way, f"{time:.3g}", f"{seconds['fp32'] / time:.1f}", f"{trained / 1e6:.1f}"])
    print(markdown_table(["step", "time, s", "times as fast", "weights trained, M"], rows))


if __name__ == "__main__":
    main()
