"""Peak memory of the three losses of lang-contrastive: one backward pass for their sum, or one for each part.

    python -m benchmarks.joint_backward --output runs/joint_backward.json

Peaks are what one step adds to the resident memory of a fresh process (Linux), weights and inputs left out.
"sequential" is what JointTrainer does; its gradients equal those of "sum", which the tests check.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers.utils import logging as transformers_logging

from benchmarks.ccp_losses import machine
from benchmarks.measuring import in_fresh_process
from benchmarks.steps import Step
from st_xlret.files import write_json_atomically
from st_xlret.losses import CrossLingualLoss, LangContrastiveLoss, RetrievalContrastiveLoss, SemanticContrastiveLoss
from st_xlret.modules import train_tokenizer, transformer_encoder

PARTS = ["semantic", "language", "retrieval"]
WAYS = ["sum", "sequential", *PARTS]


def texts(model: SentenceTransformer, rows: int, tokens: int) -> dict[str, Tensor]:
    """One text column of full-length rows."""
    ids = torch.randint(5, len(model.tokenizer), (rows, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def step(way: str, size: Any, rows: int, tokens: int) -> Step:
    """A step on questions, passages with a hard negative, translations and other sentences.

    Args:
        way: "sum" for one backward pass, "sequential" for one of each part, or a part alone.
        size: Encoder from scratch.
        rows: Questions, pairs and other sentences.
        tokens: Tokens of a passage; questions and sentences have a quarter.
    """
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
    model = transformer_encoder(tokenizer, size, max_seq_length=tokens).to("cpu").train()
    losses: dict[str, CrossLingualLoss] = {
        "semantic": SemanticContrastiveLoss(model, weight=0.01),
        "language": LangContrastiveLoss(model, weight=0.001, reduction="paper"),
        "retrieval": RetrievalContrastiveLoss(model),
    }
    short = max(4, tokens // 4)
    lengths = {"semantic": [short] * 2, "language": [short] * 3, "retrieval": [short, tokens, tokens]}
    batches = {part: [texts(model, rows, length) for length in lengths[part]] for part in PARTS}
    # Gradients and the optimizer's memory are the same in all ways: they are there before.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def value(part: str) -> Tensor:
        return losses[part]([dict(features) for features in batches[part]])

    def run() -> Tensor:
        if way == "sum":
            total = torch.stack([value(part) for part in PARTS]).sum()
            total.backward()
            return total.detach()
        total = torch.zeros(())
        for part in PARTS if way == "sequential" else [way]:
            loss = value(part)
            loss.backward()
            total = total + loss.detach()
        return total

    return Step(run, partial(model.zero_grad, set_to_none=False))


def measure(size: Any, rows: int, tokens: int) -> dict[str, Any]:
    """Peak bytes and seconds of each way, and the ratios."""
    figures = {way: in_fresh_process(partial(step, way, size, rows, tokens)) for way in WAYS}
    result: dict[str, Any] = {"size": size, "rows": rows, "tokens": tokens, "figures": figures}
    if all("peak_bytes" in figure for figure in figures.values()):
        peaks = {way: figure["peak_bytes"] for way, figure in figures.items()}
        result["ratios"] = {
            "sequential / sum": peaks["sequential"] / peaks["sum"],
            "sequential / largest part": peaks["sequential"] / max(peaks[part] for part in PARTS),
        }
    return result


def show(result: dict[str, Any]) -> str:
    """The figures as a small table."""
    lines = [f"{result['size']}, {result['rows']} rows, passages of {result['tokens']} tokens"]
    for way, figure in result["figures"].items():
        peak = f"{figure['peak_bytes'] / 2**20:8.0f} MiB" if "peak_bytes" in figure else ""
        lines.append(f"  {way:12}{1000 * figure['seconds']:10.0f} ms{peak}   loss {figure['loss']:.5f}")
    return "\n".join([*lines, *(f"  {name} = {ratio:.3f}" for name, ratio in result.get("ratios", {}).items())])


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, no more")
    args = parser.parse_args()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    result = {
        "machine": machine(),
        "quick": args.quick,
        **measure(*(("tiny", 4, 16) if args.quick else ("small", 48, 128))),
    }
    print(show(result))
    if args.output:
        write_json_atomically(args.output, result)


if __name__ == "__main__":
    main()
