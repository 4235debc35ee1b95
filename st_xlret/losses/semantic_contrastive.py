"""Contrastive loss over parallel sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.functional import info_nce_loss
from st_xlret.losses.base import CrossLingualLoss, gather_tags, read_tags
from st_xlret.losses.duplicates import translation_groups
from st_xlret.losses.embedding import embed_in_one_pass
from st_xlret.losses.passage_side import PassageSide

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
    """L_sema (Eq. 2 of lang-contrastive): parallel sentences close, the batch's 2(N - 1) other rows away.

    Takes two text columns, row-aligned translations; batches may mix language pairs. With a
    :class:`~st_xlret.CrossLingualDataCollator`, pairs that have a text in common are no negatives of each
    other, so that neither a pair that occurs twice nor a sentence with two translations does harm. It acts on
    the passage encoder only: with a ``Router``, on its route "document", see
    :class:`~st_xlret.losses.passage_side.PassageSide`.

    Args:
        model: The encoder, shared or a ``Router`` of two.
        temperature: Divisor of the cosines.
        weight: Factor on the loss: the paper trains with 0.01 beside its retrieval loss.
        gather_across_devices: Use all ranks' rows as negatives.

    Raises:
        ValueError: If the temperature is not positive.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = SemanticContrastiveLoss(model)
        >>> value = loss([model.preprocess(["a", "b"]), model.preprocess(["c", "d"])])
        >>> value.ndim
        0
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.07,
        weight: float = 1.0,
        gather_across_devices: bool = True,
    ) -> None:
        super().__init__(model)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature, self.weight = temperature, weight
        self.gather_across_devices = gather_across_devices
        self.passage_side = PassageSide(model)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Loss of a batch of parallel sentences.

        Args:
            sentence_features: Two text columns of N rows.
            labels: Ignored.

        Returns:
            A scalar.

        Raises:
            ValueError: If there are not exactly two columns, or one was made for the query encoder.
        """
        columns = list(sentence_features)
        if len(columns) != 2:
            raise ValueError(f"SemanticContrastiveLoss takes two text columns, got {len(columns)}")
        tags = read_tags(columns)
        source, target = embed_in_one_pass(self.model, self.passage_side(columns))
        return self._record(self.compute_loss_from_embeddings(source, target, tags), tags.get("language_id"))

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Loss of row-aligned vectors (N, d) and (N, d) with tags (2N,), of which ``text_id`` is read."""
        if self.gather_across_devices and get_world_size() > 1:
            source, target = all_gather_with_grad(source), all_gather_with_grad(target)
            tags = gather_tags(tags, columns=2)
        group = translation_groups(tags["text_id"]) if "text_id" in tags else None
        return self.weight * info_nce_loss(source, target, temperature=self.temperature, text=group)

    def get_config_dict(self) -> dict[str, Any]:
        """Options, for the model card."""
        return {
            "temperature": self.temperature,
            "weight": self.weight,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper."""
        return CITATION
