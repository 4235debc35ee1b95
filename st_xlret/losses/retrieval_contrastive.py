"""Contrastive loss over queries and passages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.functional import retrieval_contrastive_loss
from st_xlret.losses.base import Batches, CrossLingualLoss
from st_xlret.losses.embedding import check_mini_batch, embed, gather_columns, read_tags
from st_xlret.losses.translations import CITATION


class RetrievalContrastiveLoss(CrossLingualLoss):
    """Retrieval loss L_IR: each query's gold passage against the batch's other passages (Hu et al. 2023, Eq. 1).

    The equation is [`retrieval_contrastive_loss`][st_xlret.functional.retrieval_contrastive_loss]. The loss takes two
    or more text columns: queries, gold passages, and any number of columns of hard negatives. Its values are those of
    the host's `MultipleNegativesRankingLoss` with `scale = 1 / temperature`. In contrast to it, this loss computes its
    logits in float32 under autocast, and uses neither equal passages nor the passages of equal questions as negatives,
    over all ranks (with a `CrossLingualDataCollator`).

    Args:
        model: The encoder. With a `Router`, the columns take the routes that the collator's `router_mapping` names.
        temperature: Divisor of the cosines. The default is the host's (a scale of 20); Eq. 1 as printed has 1.
        similarity: "cosine", or "dot" for inner products of vectors whose lengths are to be learned.
        weight: Factor on the loss.
        gather_across_devices: Use the passages of all ranks as negatives.
        mini_batch_num_tokens: Tokens per micro-batch of the encoder, padding included (gradient caching, see
            `st_xlret.losses.embedding.embed`); None for one pass.
        batches: How batches are drawn, see `CrossLingualLoss`. Default: `Rows()`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = RetrievalContrastiveLoss(model)
        >>> loss([model.preprocess(["a", "b"]), model.preprocess(["a c", "b d"])]).ndim
        0
    """

    least_columns = 2
    takes = "queries, passages and any number of columns of hard negatives"
    citation = CITATION

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        similarity: Literal["cosine", "dot"] = "cosine",
        weight: float = 1.0,
        gather_across_devices: bool = True,
        mini_batch_num_tokens: int | None = None,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        if similarity not in ("cosine", "dot"):
            self.refuse(f"similarity is 'cosine' or 'dot', not {similarity!r}")
        self.temperature, self.similarity, self.weight = temperature, similarity, weight
        self.gather_across_devices = gather_across_devices
        self.mini_batch_num_tokens = check_mini_batch(model, mini_batch_num_tokens)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of N queries, gold passages and any columns of hard negatives, a scalar; ignores `labels`.

        Raises:
            ValueError: If there are fewer than two columns.
        """
        columns = self.read_columns(sentence_features, labels)
        # Queries are short and passages long: together, the queries would be padded to the passages.
        tokens = self.mini_batch_num_tokens
        vectors = [
            v for side in (columns[:1], columns[1:]) for v in embed(self.model, side, mini_batch_num_tokens=tokens)
        ]
        return self.compute_loss_from_embeddings(vectors, read_tags(columns))

    def compute_loss_from_embeddings(self, vectors: list[Tensor], tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of the columns' vectors, each (N, d), and their tags, of which `text_id` is read."""
        if self.gather_across_devices:
            vectors, tags = gather_columns(vectors, tags)
        rows, text = len(vectors[0]), tags.get("text_id")
        return self.weight * retrieval_contrastive_loss(
            vectors[0],
            torch.cat(vectors[1:]),
            temperature=self.temperature,
            query_text=None if text is None else text[:rows],
            passage_text=None if text is None else text[rows:],
            normalize=self.similarity == "cosine",
        )
