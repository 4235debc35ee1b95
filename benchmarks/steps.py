"""The steps that are compared: one forward and backward pass each, the rivals on equal inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from st_xlret import AsymmetricBNHead, CCPLoss, LanguageMemoryBank
from st_xlret.functional import chunked_cross_entropy
from st_xlret.modules import train_tokenizer, transformer_encoder

TEMPERATURE = 0.1
EVERY_SIMILARITY = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")


@dataclass
class Step:
    """One forward and backward pass, which returns its loss, and what has to be put back before the next."""

    run: Callable[[], Tensor]
    reset: Callable[[], Any] = lambda: None


def backward(loss: Tensor) -> Tensor:
    """The loss, once its backward pass is done."""
    loss.backward()
    return loss.detach()


@dataclass
class Batch:
    """Pairs of vectors (the first half of ``rows`` and the second), a full bank's keys, and their tags."""

    rows: Tensor
    keys: Tensor
    tags: dict[str, Tensor]
    key_tags: dict[str, Tensor]

    @classmethod
    def of(cls, rows: int, keys: int, features: int, languages: int = 1, key_languages: int | None = None) -> Batch:
        torch.manual_seed(0)
        first = torch.arange(rows // 2).repeat(2) % languages
        vectors = F.normalize(torch.randn(rows, features), dim=1).requires_grad_()
        tags = {
            "language_id": first,
            "document_id": torch.arange(rows // 2).repeat(2),
            "text_id": torch.arange(rows),
        }
        others = rows + torch.arange(keys)  # documents and texts of the bank are not those of the batch
        key_tags = {"language_id": others % (key_languages or languages), "document_id": others, "text_id": others}
        return cls(vectors, F.normalize(torch.randn(keys, features), dim=1), tags, key_tags)


class VectorsAreGiven(nn.Module):
    """Stands where a loss keeps its encoder, or its head where that is to be left out."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.in_features = self.out_features = features

    def get_embedding_dimension(self) -> int:
        return self.in_features

    def forward(self, *vectors: Tensor) -> tuple[Tensor, ...]:
        return vectors


def encoder(size: Any, rows: int, tokens: int) -> Step:
    """The encoder's own step on full-length rows; its small vocabulary makes it cheaper than XLM-R's."""
    tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
    model = transformer_encoder(tokenizer, size, max_seq_length=tokens).to("cpu").train()
    ids = torch.randint(5, len(model.tokenizer), (rows, tokens))
    features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Step(lambda: backward(model(dict(features))["sentence_embedding"].sum()), model.zero_grad)


def ccp(
    rows: int, keys: int, features: int, languages: int = 1, head: bool = False, key_languages: int | None = None
) -> Step:
    """CCPLoss on given sentence vectors, with the update of its full bank."""
    batch = Batch.of(rows, keys, features, languages, key_languages)
    bank = LanguageMemoryBank(features, size=keys) if keys else None
    projection: Any = AsymmetricBNHead(features) if head else VectorsAreGiven(features)
    model: Any = VectorsAreGiven(features)
    loss = CCPLoss(model, projection, bank, temperature=TEMPERATURE)
    if bank is not None:
        bank.enqueue(batch.keys, *batch.key_tags.values())
    full = {name: buffer.clone() for name, buffer in bank.state_dict().items()} if bank else {}

    def reset() -> None:
        batch.rows.grad = None
        loss.zero_grad()
        if bank is not None:
            bank.load_state_dict(full)

    return Step(lambda: backward(loss.compute_loss_from_embeddings(*batch.rows.chunk(2), batch.tags)), reset)


def concatenated(rows: int, keys: int, features: int, key_languages: int | None = None) -> Step:
    """The same loss by one matrix of all logits, in place wherever autograd allows it."""
    batch = Batch.of(rows, keys, features, key_languages=key_languages)
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


def multiple_negatives(rows: int, features: int, directions: tuple[str, ...]) -> Step:
    """The host's in-batch loss: centres against contexts, or (all directions) every row against all."""
    batch = Batch.of(rows, 0, features)
    model: Any = VectorsAreGiven(features)
    loss = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, directions=directions)  # type: ignore[arg-type]
    nothing = torch.zeros(0)
    return Step(
        lambda: backward(loss.compute_loss_from_embeddings(list(batch.rows.chunk(2)), nothing)),
        partial(setattr, batch.rows, "grad", None),
    )


def cross_batch_memory(rows: int, keys: int, features: int, inner: str) -> Step:
    """pytorch-metric-learning's queue. It holds the batch too: with that, the same negatives as ``ccp``."""
    from pytorch_metric_learning import losses

    batch = Batch.of(rows, keys, features)
    memory = losses.CrossBatchMemory(getattr(losses, inner)(temperature=TEMPERATURE), features, keys + rows)
    memory.add_to_memory(batch.keys, batch.key_tags["document_id"], keys)

    def reset() -> None:
        batch.rows.grad, memory.queue_idx = None, keys

    return Step(lambda: backward(memory(batch.rows, batch.tags["document_id"])), reset)


def vocabulary(masked: int, tokens: int, features: int, size: int, way: str) -> Step:
    """A language model's projection and cross-entropy of the masked ones of ``tokens`` vectors."""
    torch.manual_seed(0)
    hidden = torch.randn(tokens, features, requires_grad=True)
    weight = (torch.randn(size, features) * 0.02).requires_grad_("frozen" not in way)
    labels, chosen = torch.randint(size, (tokens,)), torch.randperm(tokens)[:masked]

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
