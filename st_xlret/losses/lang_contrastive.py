"""Language contrastive loss over parallel and non-parallel sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.batches import Rows
from st_xlret.functional.contrastive import Reduction, language_contrastive_loss
from st_xlret.losses.base import Batches, CrossLingualLoss
from st_xlret.losses.embedding import PassageSide, embed_columns
from st_xlret.losses.semantic_contrastive import CITATION


class LangContrastiveLoss(CrossLingualLoss):
    """Language contrastive loss L_lang over translations and other sentences (Hu et al. 2023, Eq. 3).

    Every sentence is drawn to be equally similar to the two sides of a translation, by
    [`language_contrastive_loss`][st_xlret.functional.language_contrastive_loss]. The loss takes two text columns of
    row-aligned translations, and optionally a third column of sentences without translations, for example in languages
    that have no parallel data. Batches mix languages. The loss acts on the passage encoder only: with a `Router`, on
    its route "document".

    Args:
        model: The encoder, shared or a `Router` of two.
        weight: Factor on the loss. The paper trains with 0.001 beside its retrieval loss, and with `reduction="paper"`.
        reduction: "mean" over all terms, which does not depend on how many sentences a batch has and is not the
            paper's; "paper" for the divisor that Eq. 3 shows, R (R - 2) for R sentences; or "sum".
        gather_across_devices: Compare with the rows of all ranks.
        batches: How batches are drawn, see `CrossLingualLoss`. Default: `Rows()`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = LangContrastiveLoss(model)
        >>> columns = [["a", "b"], ["c", "d"]]      # two translations
        >>> loss([model.preprocess(texts) for texts in columns]).item() > 2 * 0.693
        True
    """

    least_columns, most_columns = 2, 3
    takes = "two columns of translations and at most one of further sentences"
    citation = CITATION

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        weight: float = 1.0,
        reduction: Reduction = "mean",
        gather_across_devices: bool = True,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        self.weight = weight
        self.reduction: Reduction = reduction
        self.gather_across_devices = gather_across_devices
        self.passage_side = PassageSide(model)

    def default_batches(self) -> Rows:
        """Pairs, each with a further sentence where the data set has any, as `pairs_and_others` puts it there."""
        return Rows()

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of two columns of N translations and a further one, a scalar; `labels` are ignored.

        Raises:
            ValueError: If there are not two or three columns, a column was made for the query encoder, or there is a
                single pair and nothing else.
        """
        columns = self.read_columns(sentence_features, labels)
        vectors = embed_columns(self.model, self.passage_side(columns))
        return self._record(self.compute_loss_from_embeddings(*vectors))

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, others: Tensor | None = None) -> Tensor:
        """Compute the loss of row-aligned vectors (N, d) and (N, d), and further ones (M, d)."""
        if self.gather_across_devices and get_world_size() > 1:
            source, target = all_gather_with_grad(source), all_gather_with_grad(target)
            others = None if others is None else all_gather_with_grad(others)
        return self.weight * language_contrastive_loss(source, target, others, reduction=self.reduction)
