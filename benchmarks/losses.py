"""Time and peak memory of the losses against the encoder's step, and against other ways to compute the same.

    OMP_NUM_THREADS=1 python -m benchmarks.losses --output runs/losses.json

Steps are forward and backward passes on given inputs, in float32 on one thread. README.md says what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret import AsymmetricBNHead, CCPLoss, DocumentEncoder, MSMLoss
from st_xlret.functional import chunked_cross_entropy
from st_xlret.modules import train_tokenizer, transformer_encoder

TEMPERATURE = 0.1
WIDE, NARROW, KEYS, ENTRIES = 768, 256, 32_768, 250_002


def backward(loss: Tensor) -> Tensor:
    """The loss, once its backward pass is done."""
    loss.backward()
    return loss.detach()


def encoder_of(size: Any, tokens: int) -> SentenceTransformer:
    """An encoder with random weights. Its small vocabulary makes it cheaper than XLM-R's."""
    return transformer_encoder(train_tokenizer(["a b c d"] * 4, 60), size, max_seq_length=tokens).to("cpu").train()


def texts(model: SentenceTransformer, rows: int, tokens: int) -> dict[str, Tensor]:
    """One text column of full-length rows."""
    ids = torch.randint(5, len(model.tokenizer), (rows, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def encoder(rows: int, tokens: int) -> Step:
    """The encoder's own step on full-length rows."""
    model = encoder_of("base", tokens)
    features = texts(model, rows, tokens)
    return Step(lambda: backward(model(dict(features))["sentence_embedding"].sum()), model.zero_grad)


class Batch:
    """Pairs of vectors (the first half of `rows` and the second), a full bank's keys, and their tags."""

    def __init__(self, rows: int, keys: int, features: int, languages: int = 1, key_languages: int = 1) -> None:
        torch.manual_seed(0)
        self.rows = F.normalize(torch.randn(rows, features), dim=1).requires_grad_()
        self.keys = F.normalize(torch.randn(keys, features), dim=1)
        # Documents and texts of the bank are not those of the batch.
        pair, others = torch.arange(rows // 2).repeat(2), rows + torch.arange(keys)
        self.tags = {"language_id": pair % languages, "document_id": pair, "text_id": torch.arange(rows)}
        self.key_tags = {"language_id": others % key_languages, "document_id": others, "text_id": others}


class VectorsAreGiven(nn.Module):
    """Stands where a loss keeps its encoder."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.get_embedding_dimension = lambda: features


class NoHead(AsymmetricBNHead):
    """Leaves vectors as they are."""

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        return centres, contexts


def ccp(rows: int, keys: int, features: int, languages: int = 1, key_languages: int = 1, head: bool = False) -> Step:
    """CCPLoss on given sentence vectors, with the update of its full bank."""
    batch = Batch(rows, keys, features, languages, key_languages)
    model: Any = VectorsAreGiven(features)
    loss = CCPLoss(model, (AsymmetricBNHead if head else NoHead)(features), bank_size=keys, temperature=TEMPERATURE)
    loss.state_is_kept = True
    if loss.bank is not None:
        loss.bank.enqueue(batch.keys, *batch.key_tags.values())
        batch.keys = batch.keys[:0]

    def reset() -> None:
        batch.rows.grad = None
        loss.zero_grad()

    return Step(lambda: backward(loss.compute_loss_from_embeddings(*batch.rows.chunk(2), dict(batch.tags))), reset)


def one_matrix(rows: int, keys: int, features: int, key_languages: int = 1) -> Step:
    """The same loss by one matrix of all logits, in place wherever autograd allows it."""
    batch = Batch(rows, keys, features, key_languages=key_languages)
    partner = torch.arange(rows).roll(rows // 2)

    def loss() -> Tensor:
        z = F.normalize(batch.rows, dim=1)
        tags = {name: torch.cat([tag, batch.key_tags[name]]) for name, tag in batch.tags.items()}
        forbidden = batch.tags["language_id"][:, None] != tags["language_id"]
        for name in ("document_id", "text_id"):
            forbidden |= batch.tags[name][:, None] == tags[name]
        forbidden[torch.arange(rows), partner] = False
        logits = (z / TEMPERATURE) @ torch.cat([z, batch.keys]).T
        return F.cross_entropy(logits.masked_fill_(forbidden, -torch.inf), partner)

    return Step(lambda: backward(loss()), partial(setattr, batch.rows, "grad", None))


def vocabulary(way: str, masked: int = 307, tokens: int = 2048) -> Step:
    """A language model's projection and cross-entropy of the masked ones of `tokens` vectors."""
    torch.manual_seed(0)
    hidden = torch.randn(tokens, WIDE, requires_grad=True)
    weight = (torch.randn(ENTRIES, WIDE) * 0.02).requires_grad_("frozen" not in way)
    labels, chosen = torch.randint(ENTRIES, (tokens,)), torch.randperm(tokens)[:masked]

    def loss() -> Tensor:
        if way.startswith("chunked"):
            return chunked_cross_entropy(hidden[chosen], weight, None, labels[chosen])
        if way.startswith("masked"):
            return F.cross_entropy(F.linear(hidden[chosen], weight), labels[chosen])
        # As transformers' masked language models do: logits of all positions, labels ignored at the others.
        targets = torch.full_like(labels, -100).index_copy(0, chosen, labels[chosen])
        return F.cross_entropy(F.linear(hidden, weight), targets, ignore_index=-100)

    def reset() -> None:
        hidden.grad = weight.grad = None

    return Step(lambda: backward(loss()), reset)


def document_side(documents: int, sentences: int) -> Step:
    """MSMLoss on given vectors of full documents: document encoder, heads and loss."""
    torch.manual_seed(0)
    vectors = torch.randn(documents * sentences, WIDE, requires_grad=True)
    block = torch.arange(documents).repeat_interleave(sentences)
    tags = {"block_id": block, "document_id": block, "language_id": torch.zeros_like(block)}
    tags["sentence_position"] = torch.arange(sentences).repeat(documents)
    model: Any = VectorsAreGiven(WIDE)
    loss = MSMLoss(model, DocumentEncoder(WIDE, 2, max_sentences=sentences))
    loss.state_is_kept = True
    return Step(lambda: backward(loss.compute_loss_from_embeddings(vectors, tags)), loss.zero_grad)


def comparisons() -> Mapping[str, Comparison]:
    """What is compared, by name."""
    matrix: dict[str, Comparison] = {}
    for name, rows, features, languages in (
        ("matrix_narrow", 2048, NARROW, 1),
        ("matrix_wide", 2048, WIDE, 1),
        ("matrix_languages", 64, WIDE, 11),
    ):
        sizes = rows, KEYS, features
        ways: Any = {"CCPLoss": ccp, "one matrix": one_matrix}
        matrix[name] = Comparison(
            f"(b) CCPLoss against one matrix of all logits: {rows} x {features}, {KEYS} keys of {languages} languages",
            {way: partial(step, *sizes, key_languages=languages) for way, step in ways.items()},
            [("CCPLoss", "one matrix")],
            goals={"memory": 1 / 5},
            rounds=5,
        )
    return {
        "encoder": Comparison(
            f"(a) CCPLoss, head and bank of {KEYS} against the encoder: 64 rows of 64 tokens",
            {
                "one language": partial(ccp, 64, KEYS, WIDE, head=True),
                "4 languages mixed": partial(ccp, 64, KEYS, WIDE, 4, 4, head=True),
                "encoder": partial(encoder, 64, 64),
            },
            [("one language", "encoder"), ("4 languages mixed", "encoder")],
            goals={"time": 0.03},
            rounds=3,
            memory=False,
        ),
        **matrix,
        "vocabulary": Comparison(
            f"(c) MaskedLMLoss's logits of 307 masked ones of 2048 tokens, {ENTRIES} entries of {WIDE}",
            {way: partial(vocabulary, way) for way in ("chunked", "masked", "all", "chunked frozen", "masked frozen")},
            [("chunked", "all"), ("chunked", "masked"), ("chunked frozen", "masked frozen")],
            goals={"memory": 1 / 4},
        ),
        "msm": Comparison(
            "(d) MSM's document side, 16 documents of 32 sentences, against the encoder's step on them",
            {"document side": partial(document_side, 16, 32), "encoder": partial(encoder, 64, 64)},
            [("document side", "encoder")],
            goals={"time": 0.10},
            times={"encoder": 16 * 32 / 64},  # in micro-batches, of which one is measured
        ),
    }


if __name__ == "__main__":
    measuring.main(comparisons, __doc__)
