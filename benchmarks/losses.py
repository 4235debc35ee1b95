"""Time and peak memory of the losses against the encoder's step, and against other ways to compute the same.

    OMP_NUM_THREADS=1 python -m benchmarks.losses --output runs/losses.json

Steps are forward and backward passes on given inputs, in float32 on one thread. README.md says what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step, backward
from st_xlret import (
    AsymmetricBNHead,
    CCPLoss,
    DocumentEncoder,
    LangContrastiveLoss,
    LanguageMemoryBank,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.functional import chunked_cross_entropy
from st_xlret.modules import train_tokenizer, transformer_encoder

TEMPERATURE = 0.1
EVERY_SIMILARITY = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
JOINT = ("semantic", "language", "retrieval")


def encoder_of(size: Any, tokens: int) -> SentenceTransformer:
    """An encoder with random weights. Its small vocabulary makes it cheaper than XLM-R's."""
    tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
    return transformer_encoder(tokenizer, size, max_seq_length=tokens).to("cpu").train()


def texts(model: SentenceTransformer, rows: int, tokens: int) -> dict[str, Tensor]:
    """One text column of full-length rows."""
    ids = torch.randint(5, len(model.tokenizer), (rows, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def encoder(size: Any, rows: int, tokens: int) -> Step:
    """The encoder's own step on full-length rows."""
    model = encoder_of(size, tokens)
    features = texts(model, rows, tokens)
    return Step(lambda: backward(model(dict(features))["sentence_embedding"].sum()), model.zero_grad)


@dataclass
class Batch:
    """Pairs of vectors (the first half of `rows` and the second), a full bank's keys, and their tags."""

    rows: Tensor
    keys: Tensor
    tags: dict[str, Tensor]
    key_tags: dict[str, Tensor]

    @classmethod
    def of(cls, rows: int, keys: int, features: int, languages: int = 1, key_languages: int | None = None) -> Batch:
        torch.manual_seed(0)
        vectors = F.normalize(torch.randn(rows, features), dim=1).requires_grad_()
        tags = {
            "language_id": torch.arange(rows // 2).repeat(2) % languages,
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


def ccp(
    rows: int, keys: int, features: int, languages: int = 1, head: bool = False, key_languages: int | None = None
) -> Step:
    """CCPLoss on given sentence vectors, with the update of its full bank."""
    batch = Batch.of(rows, keys, features, languages, key_languages)
    bank = LanguageMemoryBank(features, size=keys) if keys else None
    projection: Any = AsymmetricBNHead(features) if head else VectorsAreGiven(features)
    model: Any = VectorsAreGiven(features)
    loss = CCPLoss(model, projection, bank, bank_size=0, temperature=TEMPERATURE)
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
    """pytorch-metric-learning's queue. It holds the batch too: with that, the same negatives as `ccp`."""
    from pytorch_metric_learning import losses

    batch = Batch.of(rows, keys, features)
    memory = losses.CrossBatchMemory(getattr(losses, inner)(temperature=TEMPERATURE), features, keys + rows)
    memory.add_to_memory(batch.keys, batch.key_tags["document_id"], keys)

    def reset() -> None:
        batch.rows.grad, memory.queue_idx = None, keys

    return Step(lambda: backward(memory(batch.rows, batch.tags["document_id"])), reset)


def vocabulary(masked: int, tokens: int, features: int, size: int, way: str) -> Step:
    """A language model's projection and cross-entropy of the masked ones of `tokens` vectors."""
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


def document_side(documents: int, sentences: int, features: int) -> Step:
    """MSMLoss on given vectors of full documents: document encoder, heads and loss."""
    torch.manual_seed(0)
    vectors = torch.randn(documents * sentences, features, requires_grad=True)
    block = torch.arange(documents).repeat_interleave(sentences)
    tags = {"block_id": block, "document_id": block, "language_id": torch.zeros_like(block)}
    tags["sentence_position"] = torch.arange(sentences).repeat(documents)
    model: Any = VectorsAreGiven(features)
    loss = MSMLoss(model, DocumentEncoder(features, 2, max_sentences=sentences))

    def reset() -> None:
        vectors.grad = None
        loss.zero_grad()

    return Step(lambda: backward(loss.compute_loss_from_embeddings(vectors, tags)), reset)


def joint(way: str, size: Any, rows: int, tokens: int) -> Step:
    """The losses of train_language_agnostic_ir.py on questions, passages with a negative, and other sentences.

    Args:
        way: "sum" for one backward pass, "sequential" for one of each part, or a part alone.
        size: Encoder from scratch.
        rows: Questions, pairs and other sentences.
        tokens: Tokens of a passage; questions and sentences have a quarter.
    """
    torch.manual_seed(0)
    model = encoder_of(size, tokens)
    losses: dict[str, nn.Module] = {
        "semantic": SemanticContrastiveLoss(model, weight=0.01),
        "language": LangContrastiveLoss(model, weight=0.001, reduction="paper"),
        "retrieval": RetrievalContrastiveLoss(model),
    }
    short = max(4, tokens // 4)
    lengths = {"semantic": [short] * 2, "language": [short] * 3, "retrieval": [short, tokens, tokens]}
    collated = {"text_id": torch.arange(rows)}
    batches = {part: [texts(model, rows, length) | collated for length in lengths[part]] for part in JOINT}
    # Gradients and the optimizer's memory are the same in all ways: they are there before.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def run() -> Tensor:
        if way == "sum":
            return backward(torch.stack([losses[part]([dict(x) for x in batches[part]]) for part in JOINT]).sum())
        parts = JOINT if way == "sequential" else (way,)
        return torch.stack([backward(losses[part]([dict(x) for x in batches[part]])) for part in parts]).sum()

    return Step(run, partial(model.zero_grad, set_to_none=False))


def comparisons(quick: bool) -> Mapping[str, Comparison]:
    """What is compared, by name, at the sizes of the figures or (`quick`) at toy sizes."""
    wide, narrow, keys, entries = (32, 16, 96, 500) if quick else (768, 256, 32768, 250002)
    rows, pair_rows, many_rows, tokens = (8, 8, 16, 60) if quick else (64, 512, 2048, 2048)
    masked = round(0.15 * tokens)
    size, length = ("tiny", 8) if quick else ("base", 64)
    found = {
        "encoder": Comparison(
            f"(a) CCPLoss, head and bank of {keys} against the encoder, {rows} rows of {length} tokens",
            {
                "one language": partial(ccp, rows, keys, wide, head=True),
                "mixed": partial(ccp, rows, keys, wide, languages=4, head=True),
                "encoder": partial(encoder, size, rows, length),
            },
            [("one language", "encoder"), ("mixed", "encoder")],
            rounds=3,
            memory=False,
            goals={"time": 0.03},
        ),
        "in_batch": Comparison(
            f"(b) CCPLoss without bank against MultipleNegativesRankingLoss, {many_rows} rows of {wide}",
            {
                "CCPLoss": partial(ccp, many_rows, 0, wide),
                "MNRL, same similarities": partial(multiple_negatives, many_rows, wide, EVERY_SIMILARITY),
                "MNRL, default (a quarter)": partial(multiple_negatives, many_rows, wide, EVERY_SIMILARITY[:1]),
            },
            [("CCPLoss", "MNRL, same similarities"), ("CCPLoss", "MNRL, default (a quarter)")],
            rounds=7,
        ),
    }
    for name, inner, count in (("ntxent", "NTXentLoss", rows), ("supcon", "SupConLoss", pair_rows)):
        rival = f"CrossBatchMemory({inner})"
        steps = {
            "CCPLoss": partial(ccp, count, keys, narrow),
            rival: partial(cross_batch_memory, count, keys, narrow, inner),
        }
        title = f"(b) CCPLoss against {rival}, {count} rows and {keys} keys of {narrow}"
        found[name] = Comparison(title, steps, [("CCPLoss", rival)], rounds=3, needs="pytorch_metric_learning")
    for name, features, count, languages in (
        ("naive_narrow", narrow, many_rows, 1),
        ("naive_wide", wide, many_rows, 1),
        ("naive_languages", wide, rows, 11),
    ):
        found[name] = Comparison(
            f"(c) CCPLoss against one matrix of all logits, {count} rows, {keys} keys of {languages} languages",
            {
                "CCPLoss": partial(ccp, count, keys, features, key_languages=languages),
                "one matrix": partial(concatenated, count, keys, features, key_languages=languages),
            },
            [("CCPLoss", "one matrix")],
            rounds=5,
            goals={"memory": 1 / 5},
        )
    for name, way, title, rounds in (
        ("vocabulary", "masked", "against all at once", 3),
        ("vocabulary_frozen", "masked frozen", "against all at once, without the weight's gradient", 0),
        ("vocabulary_host", "all", f"against the host's logits of all {tokens} tokens", 0),
    ):
        chunked = "chunked frozen" if "frozen" in way else "chunked"
        steps = {each: partial(vocabulary, masked, tokens, wide, entries, each) for each in (chunked, way)}
        title = f"(d) MaskedLMLoss's {masked} x {entries} logits in chunks {title}"
        found[name] = Comparison(title, steps, [(chunked, way)], goals={"memory": 1 / 4}, rounds=rounds)
    documents, sentences, at_once = (3, 4, 4) if quick else (16, 32, 64)
    found["msm"] = Comparison(
        f"(e) MSM's document side, {documents} documents of {sentences} sentences, against the encoder's step on them",
        {
            "document side": partial(document_side, documents, sentences, wide),
            "encoder": partial(encoder, size, at_once, length),
        },
        [("document side", "encoder")],
        times={"encoder": documents * sentences / at_once},  # in micro-batches, of which one is measured
        goals={"time": 0.10},
    )
    ways = ("sequential", "sum", *JOINT)
    joint_size = ("tiny", 4, 16) if quick else ("small", 48, 128)
    found["joint"] = Comparison(
        f"(f) One backward pass for each loss against one for their sum, {joint_size[1]} rows",
        {way: partial(joint, way, *joint_size) for way in ways},
        [("sequential", other) for other in ways[1:]],
    )
    return found


if __name__ == "__main__":
    measuring.main(comparisons, __doc__)
