"""Contrastive loss over queries and passages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.batches.rows import DistinctRows
from st_xlret.functional import retrieval_contrastive_loss
from st_xlret.losses.base import Batches, CrossLingualLoss
from st_xlret.losses.embedding import check_mini_batch, embed, embed_columns, gather_columns, read_tags
from st_xlret.losses.semantic_contrastive import CITATION


class RetrievalContrastiveLoss(CrossLingualLoss):
    """Retrieval loss L_IR: each query's gold passage against the batch's other passages (Hu et al. 2023, Eq. 1).

    The equation is [`retrieval_contrastive_loss`][st_xlret.functional.retrieval_contrastive_loss]. The loss takes two
    or more text columns: queries, gold passages, and any number of columns of hard negatives. Its values are those of
    the host's `MultipleNegativesRankingLoss` with `scale = 1 / temperature`. In contrast to it, this loss computes its
    logits in float32 under autocast, does not use questions of the same paragraph as negatives of each other (with a
    `CrossLingualDataCollator`), and has a value that the callbacks log and check.

    Args:
        model: The encoder. With a `Router`, the columns take the routes that the collator's `router_mapping` names.
        temperature: Divisor of the cosines. The default is the host's (a scale of 20); Eq. 1 as printed has 1.
        weight: Factor on the loss.
        gather_across_devices: Use the passages of all ranks as negatives.
        mini_batch_num_tokens: Tokens per micro-batch of the encoder, padding included: larger batches use gradient
            caching (see `st_xlret.losses.embedding.embed`); None for none.
        batches: How batches are drawn, see `CrossLingualLoss`. Default: `DistinctRows()`.
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
        weight: float = 1.0,
        gather_across_devices: bool = True,
        mini_batch_num_tokens: int | None = None,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        self.temperature, self.weight = temperature, weight
        self.gather_across_devices = gather_across_devices
        self.mini_batch_num_tokens = check_mini_batch(model, mini_batch_num_tokens, "mini_batch_num_tokens")
        self.uses_gradient_cache = self.mini_batch_num_tokens is not None  # wrappers of the host ask

    def default_batches(self) -> DistinctRows:
        """Questions none of which has another one's passage."""
        return DistinctRows()

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of N queries, gold passages and any columns of hard negatives, a scalar; ignores `labels`.

        Raises:
            ValueError: If there are fewer than two columns.
        """
        columns = self.read_columns(sentence_features, labels)
        tags = read_tags(columns)
        if all("offsets" in features for features in columns):
            vectors = embed_columns(self.model, columns)
        else:
            # Queries are short and passages long: together, the queries would be padded to the passages.
            most: dict[str, Any] = {"mini_batch_num_tokens": self.mini_batch_num_tokens}
            vectors = [embed(self.model, columns[0], **most), *embed_columns(self.model, columns[1:], **most)]
        return self._record(self.compute_loss_from_embeddings(vectors, tags))

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
        )
