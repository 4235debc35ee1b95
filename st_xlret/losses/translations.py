"""The losses of lang-contrastive over translations: semantic, and language contrastive."""

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Unpack

from st_xlret.citations import CITATIONS
from st_xlret.columns import Layout
from st_xlret.functional import info_nce_loss, language_contrastive_loss
from st_xlret.functional.language import Reduction
from st_xlret.losses.base import Columns, CrossLingualLoss, unwrap_model
from st_xlret.losses.contrastive import (
    PairContrastiveLoss,
    WeightedContrastiveLoss,
    WeightedOptions,
)
from st_xlret.modules.encoders import routers_of


class SemanticContrastiveLoss(PairContrastiveLoss):
    """Semantic contrastive loss L_sema over translations (Hu et al. 2023, Eq. 2).

    Translations, two text columns, are drawn together and away from the 2(N - 1) other rows of the
    batch, by [`info_nce_loss`][st_xlret.functional.info_nce_loss]. Pairs that have a text in common
    are not negatives of each other. The loss acts on the passage encoder only: with a `Router`, on
    its route "document". The paper trains with a weight of 0.01 beside its retrieval loss.

    Args:
        temperature: Divisor of the cosines.
        **options: `weight` and the other arguments of `WeightedContrastiveLoss`.
    """

    data = "translations"
    equation = staticmethod(info_nce_loss)
    paper = "Hu et al., Eq. 2"
    citation = CITATIONS["hu2023language"]
    takes = "two columns of translations"

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of two text columns of N rows."""
        columns = self.read_columns(sentence_features, labels)
        _check_passage_encoder(self, columns)
        source, target = self.embed_columns(columns)
        tags = self.concatenate_tags(columns)
        return self.compute_loss_from_embeddings(source, target, tags)


class LangContrastiveLoss(WeightedContrastiveLoss):
    """Language contrastive loss L_lang over translations and others (Hu et al. 2023, Eq. 3).

    Every sentence is drawn to be equally similar to the two sides of a translation, by
    [`language_contrastive_loss`][st_xlret.functional.language_contrastive_loss]. The data is that
    of `SemanticContrastiveLoss` and optionally a third column, `other`, of sentences without a
    translation. The paper trains with a weight of 0.001 beside its retrieval loss, and with
    `reduction="paper"`.

    Args:
        reduction: "mean" over all terms, which does not depend on how many sentences a batch has;
            "paper" for the divisor that Eq. 3 shows, R (R - 2) for R sentences; or "sum".
        **options: `weight` and the other arguments of `WeightedContrastiveLoss`.
    """

    data = "translations and further sentences"
    equation = staticmethod(language_contrastive_loss)
    paper = "Hu et al., Eq. 3"
    citation = CITATIONS["hu2023language"]
    layouts = (Layout(2, further="other", most_further=1),)
    takes = "two columns of translations and at most one of further sentences, 'other'"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        reduction: Reduction = "mean",
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(model, **options)
        self.reduction: Reduction = reduction

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of two columns of N translations and at most one further column."""
        columns = self.read_columns(sentence_features, labels)
        _check_passage_encoder(self, columns)
        return self.compute_loss_from_embeddings(*self.embed_columns(columns))

    def compute_loss_from_embeddings(
        self,
        source: Tensor,
        target: Tensor,
        others: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of translations, (N, d) and (N, d), and further vectors (M, d).

        All ranks call it together.
        """
        columns = [source, target]
        if others is not None:
            columns.append(others)
        vectors, _ = self.gather_rows(columns, {})
        return self.weight * language_contrastive_loss(*vectors, reduction=self.reduction)


def _check_passage_encoder(loss: CrossLingualLoss, columns: Columns) -> None:
    """Refuse columns that a `Router` sends elsewhere than to passages (Hu et al., section 4)."""
    for router in routers_of(unwrap_model(loss.model)):
        if "document" not in router.sub_modules:
            continue
        routes = {features.get("task") or router.default_route for features in columns}
        if routes != {"document"}:
            loss.refuse(
                f"it acts on the encoder of passages, and columns go to {routes}: "
                "give router_mapping={'source': 'document', 'target': 'document'}"
            )
