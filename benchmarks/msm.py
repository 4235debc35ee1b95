"""Time and peak memory of MSM's document side against the sentence encoder's step.

    OMP_NUM_THREADS=1 python -m benchmarks.msm --output runs/msm.json

The document side is the document encoder, the two projection heads and the loss on given sentence vectors, forward and
backward. The sentence encoder's step is forward and backward over micro-batches of ``--mini-batch-size`` sentences, of
which one is measured and multiplied; gradient caching would add a forward pass to it and is left out. Beside them: the
document encoder that materialises every copy. README.md beside this file says how it measures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from benchmarks.ccp_losses import Comparison, machine, measure, show
from benchmarks.steps import Step, VectorsAreGiven, backward, encoder
from st_xlret import DocumentEncoder, MSMLoss
from st_xlret.files import write_json_atomically
from st_xlret.functional import masked_sentence_loss

GOAL = 0.10


def vectors_of(documents: int, sentences: int, features: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Random sentence vectors of full documents of one language, and their tags."""
    torch.manual_seed(0)
    vectors = torch.randn(documents * sentences, features, requires_grad=True)
    block = torch.arange(documents).repeat_interleave(sentences)
    tags = {"block_id": block, "document_id": block, "language_id": torch.zeros_like(block)}
    return vectors, {**tags, "sentence_position": torch.arange(sentences).repeat(documents)}


def document_side(documents: int, sentences: int, features: int, layers: int, rows_at_once: int | None = None) -> Step:
    """MSMLoss on given sentence vectors, without dropout so that rivals compute the same."""
    vectors, tags = vectors_of(documents, sentences, features)
    model: Any = VectorsAreGiven(features)
    options = {} if rows_at_once is None else {"rows_at_once": rows_at_once}
    documents_encoder = DocumentEncoder(features, layers, max_sentences=sentences, dropout=0.0, **options)
    loss = MSMLoss(model, documents_encoder)
    return Step(lambda: backward(loss.compute_loss_from_embeddings(vectors, tags)), partial(_forget, vectors, loss))


def every_copy(documents: int, sentences: int, features: int, layers: int) -> Step:
    """The same by running every copy of every document through whole layers."""
    vectors, tags = vectors_of(documents, sentences, features)
    model: Any = VectorsAreGiven(features)
    made = DocumentEncoder(features, layers, max_sentences=sentences, dropout=0.0)
    loss = MSMLoss(model, made)
    everything = torch.ones(len(vectors), dtype=torch.bool)

    def run() -> Tensor:
        itself = torch.eye(sentences, dtype=torch.bool)[..., None]
        copies = torch.where(itself, made.mask_vector, vectors.view(documents, 1, sentences, features))
        rows = made.norm(copies + made.positions.weight).flatten(0, 1)
        for layer in made.layers:
            rows = layer(rows)
        predictions = rows.unflatten(0, (documents, sentences)).diagonal(dim1=1, dim2=2).mT.flatten(0, 1)
        p, h = loss.networks.project(predictions, vectors, everything, None)
        return backward(masked_sentence_loss(p, h, tags["document_id"]))

    return Step(run, partial(_forget, vectors, loss))


def _forget(vectors: Tensor, loss: MSMLoss) -> None:
    vectors.grad = None
    loss.zero_grad()


def comparison(args: argparse.Namespace) -> Comparison:
    """The steps and what is set against what."""
    sizes = (args.documents, args.sentences, args.features, args.layers)
    steps: dict[str, Callable[[], Step]] = {
        "document side": partial(document_side, *sizes),
        "document side, one go": partial(document_side, *sizes, rows_at_once=args.documents * args.sentences**2),
        "every copy": partial(every_copy, *sizes),
        "micro-batch": partial(encoder, args.encoder, args.mini_batch_size, args.tokens),
    }
    title = (
        f"MSM's document side ({args.layers} layers of {args.features}, {args.documents} documents of {args.sentences} "
        f"sentences) against the encoder ({args.encoder}, {args.mini_batch_size} of {args.tokens} tokens at a time)"
    )
    against = [(name, "every copy") for name in ("document side", "document side, one go")]
    return Comparison(title, steps, [*against, ("document side", "micro-batch")], rounds=args.rounds)


def against_the_whole_step(result: dict[str, Any], micro_batches: float, goal: float | None) -> None:
    """Add the figure that counts: the document side's time by that of the encoder on all sentences."""
    figures = result["figures"]
    figures["encoder"] = {**figures["micro-batch"], "seconds": figures["micro-batch"]["seconds"] * micro_batches}
    for name in ("document side", "document side, one go", "every copy"):
        ratio = figures[name]["seconds"] / figures["encoder"]["seconds"]
        row = {"of": name, "to": "encoder", "measure": "time", "ratio": ratio, "goal": None, "met": None}
        if goal is not None and name == "document side":
            row |= {"goal": goal, "met": ratio <= goal}
        result["ratios"].append(row)


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--documents", type=int, default=16, help="documents of a batch (16)")
    parser.add_argument("--sentences", type=int, default=32, help="sentences of a document (32)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a sentence (64)")
    parser.add_argument("--encoder", default="base", help="size of the sentence encoder (base: 12 layers of 768)")
    parser.add_argument("--features", type=int, default=768, help="size of sentence vectors (768)")
    parser.add_argument("--layers", type=int, default=2, help="layers of the document encoder (2)")
    parser.add_argument("--mini-batch-size", type=int, default=64, help="sentences of a micro-batch (64)")
    parser.add_argument("--rounds", type=int, default=1, help="times each step is run for its median time (1)")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, no more")
    args = parser.parse_args()
    if args.quick:
        args.documents, args.sentences, args.tokens, args.encoder = 3, 4, 8, "tiny"
        args.features, args.mini_batch_size = 32, 4
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    result = measure(comparison(args))
    against_the_whole_step(result, args.documents * args.sentences / args.mini_batch_size, None if args.quick else GOAL)
    print(show(result))
    if args.output:
        whole = {"machine": machine(), "quick": args.quick, **result}
        write_json_atomically(args.output, whole)


if __name__ == "__main__":
    main()
