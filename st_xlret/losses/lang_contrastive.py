"""The three losses of lang-contrastive: of questions, of translations, and of other sentences."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_xlret.citations import CITATIONS
from st_xlret.columns import Layout
from st_xlret.functional import (
    info_nce_loss,
    language_contrastive_loss,
    retrieval_contrastive_loss,
)
from st_xlret.functional.contrastive import Reduction
from st_xlret.losses.base import Batches, Columns, CrossLingualLoss, Tags
from st_xlret.losses.embedding import embed_columns, keep_padding

ANY_NUMBER = 1_000


class WeightedContrastiveLoss(CrossLingualLoss):
    """Base of the losses over translations and queries: a weighted loss of all ranks.

    Args:
        weight: Factor on the loss.
        gather_across_devices: Compare with the rows of all ranks.
        mini_batch_num_tokens: Tokens, with padding, per micro-batch (gradient caching); None for
            one pass.
    """

    layouts = (Layout(2),)
    citation = CITATIONS["hu2023language"]

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        weight: float = 1.0,
        gather_across_devices: bool = True,
        mini_batch_num_tokens: int | None = None,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        self.weight = weight
        self.gather_across_devices = gather_across_devices
        self.mini_batch_num_tokens = mini_batch_num_tokens
        keep_padding(model, mini_batch_num_tokens)

    def passage_columns(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Columns:
        """The text columns of a batch, which go to the encoder of passages (Hu et al., section 4).

        Raises:
            ValueError: The encoder has a `Router`, and a column goes to another route of it.
        """
        columns = self.read_columns(sentence_features, labels)
        for router in self.model.modules():
            if not isinstance(router, Router) or "document" not in router.sub_modules:
                continue
            routes = {features.get("task") or router.default_route for features in columns}
            if routes != {"document"}:
                self.refuse(
                    f"it acts on the encoder of passages, and columns go to {routes}: "
                    "give router_mapping={'source': 'document', 'target': 'document'}"
                )
        return columns

    def embed_columns(self, columns: Columns) -> list[Tensor]:
        """The vectors (N, d) of each text column of one encoder."""
        return embed_columns(self.model, columns, num_tokens=self.mini_batch_num_tokens)


class RetrievalContrastiveLoss(WeightedContrastiveLoss):
    """Retrieval loss L_IR: the gold passage of each query against others (Hu et al. 2023, Eq. 1).

    [`retrieval_contrastive_loss`][st_xlret.functional.retrieval_contrastive_loss] of queries, gold
    passages, and any number of columns of hard negatives. Its values are those of the host's
    `MultipleNegativesRankingLoss` with `scale = 1 / temperature`, but logits are in float32 under
    autocast, and neither equal passages nor the passages of equal questions are negatives, over all
    ranks (with a `CrossLingualDataCollator`).

    Args:
        temperature: Divisor of the cosines. The default is the host's (a scale of 20); Eq. 1 as
            printed has 1.
        similarity: "cosine", or "dot" for inner products of vectors whose lengths are to be
            learned.
        **options: `weight` and the other arguments of `WeightedContrastiveLoss`.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = RetrievalContrastiveLoss(model)
        >>> loss([model.preprocess(["a", "b"]), model.preprocess(["a c", "b d"])]).ndim
        0
    """

    layouts = (Layout(2, further="negative", most_further=ANY_NUMBER),)
    takes = "queries, passages and any number of columns of hard negatives, 'negative_1' and so on"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        similarity: Literal["cosine", "dot"] = "cosine",
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.temperature = temperature
        self.similarity = similarity
        self.normalize = {"cosine": True, "dot": False}[similarity]

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of N queries, gold passages and any columns of hard negatives."""
        columns = self.read_columns(sentence_features, labels)
        # Queries are short and passages long: together, queries would be padded to the passages.
        queries = self.embed_columns(columns[:1])
        passages = self.embed_columns(columns[1:])
        tags = self.concatenate_tags(columns)
        return self.compute_loss_from_embeddings([*queries, *passages], tags)

    def compute_loss_from_embeddings(self, vectors: list[Tensor], tags: Tags) -> Tensor:
        """Compute the loss of the columns' vectors, each (N, d), and their tags.

        Of the tags, `text_id` is read: equal texts are no negatives of each other.
        """
        vectors, tags = self.gather_rows(vectors, tags)
        queries = vectors[0]
        query_text = None
        passage_text = None
        if "text_id" in tags:
            query_text = tags["text_id"][: len(queries)]
            passage_text = tags["text_id"][len(queries) :]
        loss = retrieval_contrastive_loss(
            queries,
            torch.cat(vectors[1:]),
            temperature=self.temperature,
            query_text=query_text,
            passage_text=passage_text,
            normalize=self.normalize,
        )
        return self.weight * loss


class PairContrastiveLoss(WeightedContrastiveLoss):
    """Base of the losses that compare each of N pairs with the others, by `equation`."""

    equation: Callable[..., Tensor] = staticmethod(info_nce_loss)

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.07,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.temperature = temperature

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: Tags) -> Tensor:
        """Compute the loss of pairs: vectors (N, d) and (N, d), and tags (2N,).

        Of the tags, `text_id` is read: pairs that share a text are no negatives of each other.
        """
        vectors, tags = self.gather_rows([source, target], tags)
        group = None
        if "text_id" in tags:
            group = translation_groups(tags["text_id"])
        loss = self.equation(*vectors, temperature=self.temperature, text=group)
        return self.weight * loss


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

    takes = "two columns of translations"

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of two text columns of N rows."""
        columns = self.passage_columns(sentence_features, labels)
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

    layouts = (Layout(2, further="other", most_further=1),)
    takes = "two columns of translations and at most one of further sentences, 'other'"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.reduction: Reduction = reduction

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of two columns of N translations and at most one further column."""
        columns = self.passage_columns(sentence_features, labels)
        return self.compute_loss_from_embeddings(*self.embed_columns(columns))

    def compute_loss_from_embeddings(
        self,
        source: Tensor,
        target: Tensor,
        others: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of translations, (N, d) and (N, d), and further vectors (M, d)."""
        columns = [source, target]
        if others is not None:
            columns.append(others)
        vectors, _ = self.gather_rows(columns, {})
        return self.weight * language_contrastive_loss(*vectors, reduction=self.reduction)


def translation_groups(text: Tensor) -> Tensor:
    """The group of each row of pairs: those that are connected by shared texts have one number.

    Args:
        text: The text of each row (2N,), first of the sources and then of the targets.
    """
    pairs = len(text) // 2
    distinct, code = text.unique(return_inverse=True)
    group = torch.arange(pairs, device=text.device).repeat(2)
    while True:
        unset = group.new_full(distinct.shape, pairs)
        lowest_of_text = unset.scatter_reduce(0, code, group, "amin")
        lowest = lowest_of_text[code]
        joined = torch.minimum(lowest[:pairs], lowest[pairs:]).repeat(2)
        if torch.equal(joined, group):
            return group
        group = joined
