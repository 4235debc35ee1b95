"""What padding costs in training on a CPU: batches as the host pads them, beside short and long texts read apart.

    OMP_NUM_THREADS=1 python -m benchmarks.short_and_long --model intfloat/multilingual-e5-small --documents DOCUMENTS

A step is a forward and a backward pass on a batch of sentences, drawn at random from documents of all their languages
and cut to --longest tokens. Without --documents, the texts are of random tokens, and their lengths spread as
those of sentences do. Both run in turn on one thread; the time is the median of the processor time, the memory what
one step adds to the resident memory of a fresh process at its peak (Linux).
"""

from __future__ import annotations

import argparse
import random
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measuring import in_fresh_process, interleaved
from benchmarks.steps import Step
from benchmarks.training_step import FROZEN, encoder
from st_xlret.data import load_documents
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.files import write_json_atomically
from st_xlret.modules.encoding import few_lengths
from st_xlret.precision import autocast
from st_xlret.training.by_length import short_and_long_apart
from st_xlret.training.layers import dropout, stepwise_attention

APART = {"whole batches": False, "short and long texts apart": True}
PRECISIONS = ("fp32", "bf16")


def sentences(documents: list[str], count: int) -> list[str]:
    """Random sentences of some documents of each language."""
    found: list[str] = list(load_documents(documents, max_documents_per_language=200)["sentence"])
    return random.Random(0).sample(found, min(count, len(found)))


@dataclass(frozen=True)
class Setting:
    """The batch of all ways."""

    model: str | None
    texts: list[str]
    rows: int
    longest: int
    dropout: float | None


def features_of(model: Any, setting: Setting) -> dict[str, Tensor]:
    """A batch as a collator makes it, of given texts or of random ones."""
    if setting.texts:
        model.max_seq_length = setting.longest
        found: dict[str, Tensor] = model.preprocess(setting.texts, **few_lengths(model))
        return found
    generator = torch.Generator().manual_seed(0)
    # Half of them below 24 tokens, a sixth above 44, as sentences are.
    lengths = (24 * torch.randn(setting.rows, generator=generator).mul(0.6).exp()).long().clamp(3, setting.longest)
    width = -(-int(lengths.max()) // 16) * 16
    mask = (torch.arange(width) < lengths[:, None]).long()
    ids = torch.randint(5, len(model.tokenizer), (setting.rows, width), generator=generator)
    return {"input_ids": ids * mask + model.tokenizer.pad_token_id * (1 - mask), "attention_mask": mask}


def step(setting: Setting, precision: str, apart: bool) -> Step:
    """A forward and a backward pass on one batch."""
    torch.manual_seed(0)
    model = encoder(setting.model, FROZEN)
    features = features_of(model, setting)

    def run() -> Tensor:
        with ExitStack() as layers:
            if setting.dropout is not None:
                layers.enter_context(dropout(model, setting.dropout))
            if apart:
                layers.enter_context(short_and_long_apart(model))
            if precision == "bf16":
                layers.enter_context(stepwise_attention(model))
            with autocast(precision, "cpu"):
                value = model(dict(features))["sentence_embedding"][:, 0].float().mean()
            value.backward()
        model.zero_grad()
        return value.detach()

    return Step(run)


def measure(setting: Setting, rounds: int) -> dict[str, Any]:
    """Seconds and bytes of each way in each precision, and the share of padding in the batch."""
    mask = features_of(encoder(setting.model, FROZEN), setting)["attention_mask"]
    figures: dict[str, Any] = {"padding": 1 - mask.float().mean().item(), "rows": len(mask), "tokens": mask.shape[1]}
    for precision in PRECISIONS:
        builds = {way: partial(step, setting, precision, apart) for way, apart in APART.items()}
        timed = interleaved(builds, rounds)
        bytes_of = {way: in_fresh_process(builds[way]).get("peak_bytes", float("nan")) for way in APART}
        figures[precision] = {way: {**timed[way], "bytes": bytes_of[way]} for way in APART}
    return figures


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = []
    for precision in PRECISIONS:
        whole = figures[precision]["whole batches"]
        for way, found in figures[precision].items():
            ratios = [found[name] / whole[name] for name in ("seconds", "bytes")]
            seconds, mebibytes = f"{found['seconds']:.2f}", f"{found['bytes'] / 2**20:.0f}"
            rows.append([f"{precision}, {way}", seconds, f"{ratios[0]:.2f}", mebibytes, f"{ratios[1]:.2f}"])
    head = f"{figures['rows']} texts padded to {figures['tokens']} tokens, {figures['padding']:.0%} of it padding"
    return f"{head}\n\n" + markdown_table(["step", "time, s", "ratio", "memory, MiB", "ratio"], rows)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, and show a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="The encoder. A tiny one from scratch by default.")
    parser.add_argument("--documents", nargs="*", default=[], help="Files and folders of documents.")
    parser.add_argument("--rows", type=int, default=128, help="Texts in a batch (default: 128).")
    parser.add_argument("--longest", type=int, default=64, help="Tokens that texts are cut to (default: 64).")
    parser.add_argument("--dropout", type=float, help="Share of dropout. That of the encoder by default.")
    parser.add_argument("--rounds", type=int, default=5, help="Steps of each way (default: 5).")
    parser.add_argument("--output", type=Path, help="JSON file for the figures.")
    given = parser.parse_args(arguments)
    texts = sentences(given.documents, given.rows) if given.documents else []
    figures = measure(Setting(given.model, texts, given.rows, given.longest, given.dropout), given.rounds)
    print(table(figures))
    if given.output:
        write_json_atomically(given.output, figures)
    return figures


if __name__ == "__main__":
    main()
