"""Contrastive loss over queries and passages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.functional.retrieval import retrieval_contrastive_loss
from st_xlret.losses.base import CrossLingualLoss, gather_tags, read_tags
from st_xlret.losses.embedding import embed_in_one_pass
from st_xlret.losses.semantic_contrastive import CITATION


class RetrievalContrastiveLoss(CrossLingualLoss):
    """L_IR (Eq. 1 of lang-contrastive): a query's gold passage against the other passages of the batch.

    Takes two or more text columns: queries, gold passages, and any number of columns of hard negatives. Its
    values are those of the host's ``MultipleNegativesRankingLoss``. What the host's does not do: logits in
    fp32 under autocast; questions of one paragraph in one batch, which are no negatives of each other here
    (with a :class:`~st_xlret.CrossLingualDataCollator`); and a value that the callbacks log and check.

    Args:
        model: The encoder; with a ``Router``, the columns take the routes that the collator's
            ``router_mapping`` names.
        scale: Factor on the cosines, the inverse of a temperature. Eq. 1 as it is printed has 1; 20 is the
            host's.
        weight: Factor on the loss.
        gather_across_devices: Use all ranks' passages as negatives.

    Raises:
        ValueError: If the scale is not positive.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = RetrievalContrastiveLoss(model)
        >>> value = loss([model.preprocess(["a", "b"]), model.preprocess(["a c", "b d"])])
        >>> value.ndim
        0
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        scale: float = 20.0,
        weight: float = 1.0,
        gather_across_devices: bool = True,
    ) -> None:
        super().__init__(model)
        if not scale > 0:
            raise ValueError(f"scale must be positive, got {scale}")
        self.scale, self.weight = scale, weight
        self.gather_across_devices = gather_across_devices

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Loss of a batch of queries and passages.

        Args:
            sentence_features: Text columns of N rows: queries, gold passages, hard negatives.
            labels: Ignored.

        Returns:
            A scalar.

        Raises:
            ValueError: If there are fewer than two columns.
        """
        columns = list(sentence_features)
        if len(columns) < 2:
            raise ValueError(f"RetrievalContrastiveLoss takes queries and passages, got {len(columns)} text column")
        tags = read_tags(columns)
        one_pass = all("offsets" in features for features in columns)
        # Padded queries are short and passages long: together, the queries would be padded to the passages.
        vectors = (embed_in_one_pass if one_pass else embed_columns)(self.model, columns)
        return self._record(self.compute_loss_from_embeddings(vectors, tags), tags.get("language_id"))

    def compute_loss_from_embeddings(self, vectors: list[Tensor], tags: dict[str, Tensor]) -> Tensor:
        """Loss of the columns' vectors, each (N, d), with tags of all columns' rows; ``text_id`` is read."""
        if self.gather_across_devices and get_world_size() > 1:
            tags = gather_tags(tags, columns=len(vectors))
            vectors = [all_gather_with_grad(column) for column in vectors]
        rows, text = len(vectors[0]), tags.get("text_id")
        return self.weight * retrieval_contrastive_loss(
            vectors[0],
            torch.cat(vectors[1:]),
            scale=self.scale,
            query_text=None if text is None else text[:rows],
            passage_text=None if text is None else text[rows:],
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Options, for the model card."""
        return {
            "scale": self.scale,
            "weight": self.weight,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper."""
        return CITATION
