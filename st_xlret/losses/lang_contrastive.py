"""Language contrastive loss over parallel and non-parallel sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.functional.language_contrastive import Reduction, language_contrastive_loss
from st_xlret.losses.base import CrossLingualLoss, read_tags
from st_xlret.losses.embedding import embed_in_one_pass
from st_xlret.losses.passage_side import PassageSide
from st_xlret.losses.semantic_contrastive import CITATION


class LangContrastiveLoss(CrossLingualLoss):
    """L_lang (Eq. 3 of lang-contrastive): every sentence is as near to the one side of a translation as to the other.

    Takes two text columns, row-aligned translations, and possibly a third of sentences without a translation,
    in languages that have no parallel data, say. Batches mix languages. It acts on the passage encoder only:
    with a ``Router``, on its route "document", see :class:`~st_xlret.losses.passage_side.PassageSide`.

    Args:
        model: The encoder, shared or a ``Router`` of two.
        weight: Factor on the loss: the paper trains with 0.001 beside its retrieval loss.
        reduction: "mean" over all terms, "sum", or "paper", see
            :func:`~st_xlret.functional.language_contrastive_loss`.
        gather_across_devices: Compare with all ranks' rows.

    Raises:
        ValueError: If the reduction is unknown.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = LangContrastiveLoss(model)
        >>> columns = [["a", "b"], ["c", "d"], ["a b", "c d"]]      # two translations, two further sentences
        >>> loss([model.preprocess(texts) for texts in columns]).item() > 2 * 0.693
        True
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        weight: float = 1.0,
        reduction: Reduction = "mean",
        gather_across_devices: bool = True,
    ) -> None:
        super().__init__(model)
        if reduction not in ("mean", "sum", "paper"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'paper', got {reduction!r}")
        self.weight = weight
        self.reduction: Reduction = reduction
        self.gather_across_devices = gather_across_devices
        self.passage_side = PassageSide(model)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Loss of a batch of parallel and further sentences.

        Args:
            sentence_features: Two text columns of N rows, translations of each other, and at most one more of
                sentences without translation.
            labels: Ignored.

        Returns:
            A scalar.

        Raises:
            ValueError: If there are not two or three columns, a column was made for the query encoder, or
                there is a single pair and nothing else.
        """
        columns = list(sentence_features)
        if len(columns) not in (2, 3):
            raise ValueError(
                f"LangContrastiveLoss takes two text columns of translations and at most one of further "
                f"sentences, got {len(columns)}"
            )
        languages = read_tags(columns).get("language_id")
        vectors = embed_in_one_pass(self.model, self.passage_side(columns))
        return self._record(self.compute_loss_from_embeddings(*vectors), languages)

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, others: Tensor | None = None) -> Tensor:
        """Loss of row-aligned vectors (N, d) and (N, d), and further ones (M, d)."""
        if self.gather_across_devices and get_world_size() > 1:
            source, target = all_gather_with_grad(source), all_gather_with_grad(target)
            others = None if others is None else all_gather_with_grad(others)
        return self.weight * language_contrastive_loss(source, target, others, reduction=self.reduction)

    def get_config_dict(self) -> dict[str, Any]:
        """Options, for the model card."""
        return {
            "weight": self.weight,
            "reduction": self.reduction,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper."""
        return CITATION
