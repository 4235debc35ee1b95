"""Contrastive loss over parallel sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.functional import info_nce_loss
from st_xlret.losses.base import CrossLingualLoss, check_positive
from st_xlret.losses.columns import embed_in_one_pass, gather_tags, read_tags, translation_groups
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
    """Semantic contrastive loss L_sema over translations (Hu et al. 2023, Eq. 2).

    Translations are drawn together and away from the 2(N - 1) other rows of the batch. The equation is
    [`info_nce_loss`][st_xlret.functional.info_nce_loss]. The loss takes two text columns of row-aligned translations,
    and batches may mix language pairs. With a `CrossLingualDataCollator`, pairs that have a text in common are not
    negatives of each other, so that neither a repeated pair nor a sentence with two translations does harm. The loss
    acts on the passage encoder only: with a `Router`, on its route "document" (see `PassageSide`).

    Args:
        model: The encoder, shared or a `Router` of two.
        temperature: Divisor of the cosines.
        weight: Factor on the loss. The paper trains with 0.01 beside its retrieval loss.
        gather_across_devices: Use the rows of all ranks as negatives.

    Raises:
        ValueError: If the temperature is not positive.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = SemanticContrastiveLoss(model)
        >>> loss([model.preprocess(["a", "b"]), model.preprocess(["c", "d"])]).ndim
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
        check_positive("temperature", temperature)
        self.temperature, self.weight = temperature, weight
        self.gather_across_devices = gather_across_devices
        self.passage_side = PassageSide(model)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch of parallel sentences.

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
        """Compute the loss of row-aligned vectors (N, d) and (N, d) with tags (2N,), of which `text_id` is read."""
        if self.gather_across_devices and get_world_size() > 1:
            source, target = all_gather_with_grad(source), all_gather_with_grad(target)
            tags = gather_tags(tags, columns=2)
        group = translation_groups(tags["text_id"]) if "text_id" in tags else None
        return self.weight * info_nce_loss(source, target, temperature=self.temperature, text=group)

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        return {
            "temperature": self.temperature,
            "weight": self.weight,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper."""
        return CITATION
