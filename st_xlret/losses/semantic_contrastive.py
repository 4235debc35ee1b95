"""Contrastive loss over parallel sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.functional import info_nce_loss
from st_xlret.losses.base import Batches, CrossLingualLoss
from st_xlret.losses.embedding import (
    PassageSide,
    check_mini_batch,
    embed_columns,
    gather_columns,
    read_tags,
    translation_groups,
)

CITATION = """
@inproceedings{hu2023language,
    title = {Language Agnostic Multilingual Information Retrieval with Contrastive Learning},
    author = {Hu, Xiyang and Chen, Xinchi and Qi, Peng and Kong, Deguang and Liu, Kunlun and
        Wang, William Yang and Huang, Zhiheng},
    booktitle = {Findings of the Association for Computational Linguistics: ACL 2023},
    year = {2023},
}
"""


class SemanticContrastiveLoss(CrossLingualLoss):
    """Semantic contrastive loss L_sema over translations (Hu et al. 2023, Eq. 2).

    Translations are drawn together and away from the 2(N - 1) other rows of the batch, by
    [`info_nce_loss`][st_xlret.functional.info_nce_loss]. The loss takes two text columns of row-aligned translations,
    and batches may mix language pairs. Pairs that have a text in common are not negatives of each other. The loss acts
    on the passage encoder only: with a `Router`, on its route "document".

    Args:
        model: The encoder, shared or a `Router` of two.
        temperature: Divisor of the cosines.
        weight: Factor on the loss. The paper trains with 0.01 beside its retrieval loss.
        gather_across_devices: Use the rows of all ranks as negatives.
        mini_batch_num_tokens: Tokens per micro-batch of the encoder, padding included: larger batches use gradient
            caching (see `st_xlret.losses.embedding.embed`); None for none.
        batches: How batches are drawn, see `CrossLingualLoss`. Default: `Rows()`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = SemanticContrastiveLoss(model)
        >>> loss([model.preprocess(["a", "b"]), model.preprocess(["c", "d"])]).ndim
        0
    """

    least_columns = most_columns = 2
    takes = "two columns of translations"
    citation = CITATION

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.07,
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
        self.passage_side = PassageSide(model)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of two text columns of N rows, a scalar; `labels` are ignored.

        Raises:
            ValueError: If there are not exactly two columns, or one was made for the query encoder.
        """
        columns = self.read_columns(sentence_features, labels)
        texts = self.passage_side(columns)
        source, target = embed_columns(self.model, texts, mini_batch_num_tokens=self.mini_batch_num_tokens)
        return self._record(self.compute_loss_from_embeddings(source, target, read_tags(columns)))

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of row-aligned vectors (N, d) and (N, d) with tags (2N,), of which `text_id` is read."""
        if self.gather_across_devices:
            (source, target), tags = gather_columns([source, target], tags)
        group = translation_groups(tags["text_id"]) if "text_id" in tags else None
        return self.weight * info_nce_loss(source, target, temperature=self.temperature, text=group)
