"""What an optimizer step on an encoder costs: in fp32 and bf16, without dropout, with fewer weights to train.

    python -m benchmarks.training_step --model intfloat/multilingual-e5-small --output runs/training_step.json

A step is what the Trainer does for a batch: forward and backward passes of SemanticContrastiveLoss on pairs of
full-length texts, clipping, AdamW, and gradients set to none. The ways run in turn on one thread; the figures are
medians of processor time.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers.utils import logging as transformers_logging

from benchmarks.ccp_losses import machine
from benchmarks.measuring import interleaved
from benchmarks.steps import Step
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.files import write_json_atomically
from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.modules import train_tokenizer, transformer_encoder
from st_xlret.precision import autocast
from st_xlret.training.layers import dropout, stepwise_attention
from st_xlret.training.quick_dropout import quick_dropout_layers
from st_xlret.training.trainable import add_lora, freeze_word_embeddings

Batch = list[dict[str, Tensor]]

LORA_RANK = 16


@dataclass(frozen=True)
class Way:
    """What is trained, and how."""

    trained: str = "all weights"
    precision: str = "bf16"
    checkpointing: bool = False
    dropout: float | None = None
    fused_attention: bool = False
    torch_dropout: bool = False


FROZEN = "frozen word embeddings"
WAYS = {
    "fp32": Way(precision="fp32", fused_attention=True),
    "fp32, PyTorch's dropout": Way(precision="fp32", fused_attention=True, torch_dropout=True),
    "fp32, no dropout": Way(precision="fp32", fused_attention=True, dropout=0.0),
    "bf16": Way(),
    "bf16, PyTorch's dropout": Way(torch_dropout=True),
    "bf16, PyTorch's fused attention": Way(fused_attention=True),
    "bf16, no dropout": Way(dropout=0.0),
    "bf16, no dropout, PyTorch's fused attention": Way(dropout=0.0, fused_attention=True),
    "bf16, frozen word embeddings": Way(FROZEN),
    "bf16, frozen word embeddings, no dropout": Way(FROZEN, dropout=0.0),
    f"bf16, LoRA of rank {LORA_RANK}": Way("LoRA"),
    "bf16, gradient checkpointing": Way(checkpointing=True),
}


def encoder(name: str | None, trained: str) -> SentenceTransformer:
    """The encoder of a name, or a tiny one from scratch, with some of its weights to be trained."""
    if name is None:
        model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=60), "tiny").to("cpu")
    else:
        model = SentenceTransformer(name, device="cpu")
    if trained == "LoRA":
        add_lora(model, LORA_RANK)
    if trained == FROZEN:
        freeze_word_embeddings(model)
    return model.train()


def texts(model: SentenceTransformer, rows: int, tokens: int) -> dict[str, Tensor]:
    """One text column of full-length rows."""
    ids = torch.randint(5, len(model.tokenizer), (rows, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def step(model: SentenceTransformer, optimizer: Optimizer, way: Way, batch: Batch) -> Step:
    """An optimizer step on a batch of pairs."""
    loss = SemanticContrastiveLoss(model)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    transformer: Any = model.transformers_model

    def run() -> Tensor:
        if way.checkpointing:
            transformer.gradient_checkpointing_enable()
        else:
            transformer.gradient_checkpointing_disable()
        with ExitStack() as layers:
            if way.dropout is not None:
                layers.enter_context(dropout(model, way.dropout))
            if not way.torch_dropout:
                layers.enter_context(quick_dropout_layers(model))
            if not way.fused_attention:
                layers.enter_context(stepwise_attention(model))
            with autocast(way.precision, "cpu"):
                value = loss([dict(features) for features in batch])
            value.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    run()  # makes the optimizer's moments
    return Step(run)


def measure(name: str | None, pairs: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds of each way, and how many times as fast as fp32 it is."""
    steps, trained = {}, {}
    for kind in ("all weights", FROZEN, "LoRA"):
        model = encoder(name, kind)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        # A rate of 0 costs as much, and leaves the encoder as it is for the other ways.
        optimizer = torch.optim.AdamW(weights, lr=0.0, weight_decay=0.0)
        torch.manual_seed(0)
        batch = [texts(model, pairs, tokens) for _ in "ab"]
        for name_of_way, way in WAYS.items():
            if way.trained == kind:
                steps[name_of_way] = step(model, optimizer, way, batch)
                trained[name_of_way] = sum(weight.numel() for weight in weights)
    timed = interleaved({way: partial(Step, steps[way].run) for way in WAYS}, rounds)
    figures = {
        way: {**figure, "speed": timed["fp32"]["seconds"] / figure["seconds"], "trained": trained[way]}
        for way, figure in timed.items()
    }
    return {"model": name, "rows": 2 * pairs, "tokens": tokens, "rounds": rounds, "figures": figures}


def show(result: dict[str, Any]) -> str:
    """The figures as a table."""
    rows = [
        [way, f"{figure['seconds']:.3g}", f"{figure['speed']:.2f}", f"{figure['trained'] / 1e6:.1f}"]
        for way, figure in result["figures"].items()
    ]
    table = markdown_table(["step", "time, s", "times as fast", "weights trained, M"], rows)
    return f"{result['rows']} texts of {result['tokens']} tokens, median of {result['rounds']} steps\n\n{table}"


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--model", help="Hub name or folder of an encoder; without it, a tiny one that shows it runs")
    parser.add_argument("--pairs", type=int, default=32, help="pairs in a batch (default: 32)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a text (default: 32)")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each way (default: 5)")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    args = parser.parse_args()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    result = {"machine": machine(), **measure(args.model, args.pairs, args.tokens, args.rounds)}
    print(show(result))
    if args.output:
        write_json_atomically(args.output, result)


if __name__ == "__main__":
    main()
