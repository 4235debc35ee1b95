"""Time and peak memory of the losses against the encoder's step, and against other computations.

    OMP_NUM_THREADS=1 python -m benchmarks.losses --output runs/losses.json

Steps are forward and backward passes on given inputs, in float32 on one thread. README.md says what
is compared.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from benchmarks import measuring
from benchmarks.measuring import Comparison, Step
from st_xlret import AsymmetricBNHead, CCPLoss, DocumentEncoder, LanguageMemoryBank, MSMLoss
from st_xlret.columns import Tag
from st_xlret.functional import chunked_cross_entropy
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder

TEMPERATURE = 0.1
WIDE = 768
NARROW = 256
KEYS = 32_768
ENTRIES = 250_002
TOKENIZER = train_tokenizer(["a b c d"] * 4, 60)


def texts(model: SentenceTransformer, rows: int, tokens: int) -> dict[str, Tensor]:
    """One text column of full-length rows."""
    ids = torch.randint(5, len(model.tokenizer), (rows, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def encoder(micro_batches: int = 1) -> Step:
    """A step of XLM-R base's layers on 64 rows of 64 tokens; its vocabulary is small."""
    model = transformer_encoder(TOKENIZER, "base", max_seq_length=64).to("cpu").train()
    features = texts(model, 64, 64)

    def run() -> None:
        model.zero_grad()
        for _ in range(micro_batches):
            model(dict(features))["sentence_embedding"].sum().backward()

    return run


class Batch:
    """Pairs of vectors, a full bank's keys, and their tags.

    The first half of `rows` and the second are the pairs.
    """

    def __init__(
        self, rows: int, keys: int, features: int, languages: int = 1, key_languages: int = 1
    ) -> None:
        torch.manual_seed(0)
        self.rows = F.normalize(torch.randn(rows, features), dim=1).requires_grad_()
        self.keys = F.normalize(torch.randn(keys, features), dim=1)
        pair = torch.arange(rows // 2).repeat(2)
        self.tags: dict[Tag, Tensor] = {
            "language_id": pair % languages,
            "document_id": pair,
            "text_id": torch.arange(rows),
        }
        # Documents and texts of the bank are not those of the batch.
        others = rows + torch.arange(keys)
        self.key_tags: dict[Tag, Tensor] = {
            "language_id": others % key_languages,
            "document_id": others,
            "text_id": others,
        }


class NoHead(AsymmetricBNHead):
    """Leaves vectors as they are."""

    def forward(self, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        return centres, contexts


def ccp(
    rows: int,
    keys: int,
    features: int,
    languages: int = 1,
    key_languages: int = 1,
    head: Any = NoHead,
) -> Step:
    """CCPLoss on given sentence vectors, with the update of its full bank."""
    batch = Batch(rows, keys, features, languages, key_languages)
    bank = LanguageMemoryBank(features, keys)
    model = static_encoder(TOKENIZER, features)
    loss = CCPLoss(model, head(features), bank, temperature=TEMPERATURE)
    loss.state_is_kept = True
    bank.enqueue(
        batch.keys,
        batch.key_tags["language_id"],
        batch.key_tags["document_id"],
        batch.key_tags["text_id"],
    )

    def run() -> None:
        batch.rows.grad = None
        loss.zero_grad()
        centres, contexts = batch.rows.chunk(2)
        loss.compute_loss_from_embeddings(centres, contexts, dict(batch.tags)).backward()

    return run


def one_matrix(rows: int, keys: int, features: int, key_languages: int = 1) -> Step:
    """The same loss by one matrix of all logits, in place wherever autograd allows it."""
    batch = Batch(rows, keys, features, key_languages=key_languages)
    partner = torch.arange(rows).roll(rows // 2)

    def run() -> None:
        batch.rows.grad = None
        z = F.normalize(batch.rows, dim=1)
        tags = {}
        for name, of_rows in batch.tags.items():
            tags[name] = torch.cat([of_rows, batch.key_tags[name]])
        forbidden = batch.tags["language_id"][:, None] != tags["language_id"]
        for name in ("document_id", "text_id"):
            forbidden |= batch.tags[name][:, None] == tags[name]
        forbidden[torch.arange(rows), partner] = False
        logits = (z / TEMPERATURE) @ torch.cat([z, batch.keys]).T
        F.cross_entropy(logits.masked_fill_(forbidden, -torch.inf), partner).backward()

    return run


def vocabulary(chunked: bool) -> Step:
    """A language model's projection and cross-entropy of 307 masked ones of 2048 vectors."""
    torch.manual_seed(0)
    hidden = torch.randn(2048, WIDE, requires_grad=True)
    weight = (torch.randn(ENTRIES, WIDE) * 0.02).requires_grad_()
    chosen = torch.randperm(2048)[:307]
    labels = torch.full((2048,), -100)
    labels[chosen] = torch.randint(ENTRIES, (307,))

    def run_chunked() -> None:
        chunked_cross_entropy(hidden[chosen], weight, None, labels[chosen]).backward()

    def run_all() -> None:
        """As masked language models of transformers do: the label -100 is ignored."""
        F.cross_entropy(F.linear(hidden, weight), labels).backward()

    return run_chunked if chunked else run_all


def document_side(documents: int, sentences: int) -> Step:
    """MSMLoss on given vectors of full documents: document encoder, heads and loss."""
    torch.manual_seed(0)
    vectors = torch.randn(documents * sentences, WIDE, requires_grad=True)
    block = torch.arange(documents).repeat_interleave(sentences)
    tags: dict[Tag, Tensor] = {
        "block_id": block,
        "document_id": block,
        "language_id": torch.zeros_like(block),
    }
    tags["sentence_position"] = torch.arange(sentences).repeat(documents)
    loss = MSMLoss(
        static_encoder(TOKENIZER, WIDE), DocumentEncoder(WIDE, 2, max_sentences=sentences)
    )
    loss.state_is_kept = True
    return lambda: loss.compute_loss_from_embeddings(vectors, tags).backward()


def against_one_matrix(rows: int, features: int, languages: int) -> Comparison:
    """CCPLoss beside one matrix of all logits."""
    size = f"{rows} x {features}, {KEYS} keys of {languages} languages"
    return Comparison(
        f"(b) CCPLoss against one matrix of all logits: {size}",
        {
            "CCPLoss": partial(ccp, rows, KEYS, features, key_languages=languages),
            "one matrix": partial(one_matrix, rows, KEYS, features, key_languages=languages),
        },
        goals={"memory": 1 / 5},
        rounds=5,
    )


COMPARISONS = {
    "encoder": Comparison(
        f"(a) CCPLoss, head and bank of {KEYS} against the encoder: 64 rows of 64 tokens",
        {
            "one language": partial(ccp, 64, KEYS, WIDE, head=AsymmetricBNHead),
            "4 languages mixed": partial(ccp, 64, KEYS, WIDE, 4, 4, head=AsymmetricBNHead),
            "encoder": encoder,
        },
        goals={"time": 0.03},
        rounds=3,
    ),
    "matrix_narrow": against_one_matrix(2048, NARROW, 1),
    "matrix_wide": against_one_matrix(2048, WIDE, 1),
    "matrix_languages": against_one_matrix(64, WIDE, 11),
    "vocabulary": Comparison(
        f"(c) MaskedLMLoss's logits of 307 masked ones of 2048 tokens, {ENTRIES} entries of {WIDE}",
        {"chunked": partial(vocabulary, True), "all": partial(vocabulary, False)},
        goals={"memory": 1 / 4},
    ),
    "msm": Comparison(
        "(d) MSM's document side, 16 documents of 32 sentences, against the encoder's step on them",
        {
            "document side": partial(document_side, 16, 32),
            "encoder": partial(encoder, micro_batches=8),
        },
        goals={"time": 0.10},
    ),
}


if __name__ == "__main__":
    measuring.main(COMPARISONS, __doc__)
