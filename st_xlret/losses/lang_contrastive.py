"""The three losses of lang-contrastive: over queries and passages, translations, and further sentences."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_xlret.functional import info_nce_loss, language_contrastive_loss, retrieval_contrastive_loss
from st_xlret.functional.contrastive import Reduction
from st_xlret.losses.base import CITATIONS, Batches, Columns, CrossLingualLoss
from st_xlret.losses.embedding import embed_columns, keep_padding


class WeightedContrastiveLoss(CrossLingualLoss):
    """Base of the losses over translations and queries: a weighted loss of text columns of all ranks.

    Args:
        weight: Factor on the loss.
        gather_across_devices: Compare with the rows of all ranks.
        mini_batch_num_tokens: Tokens, with padding, per micro-batch (gradient caching); None for one pass.
    """

    least_columns = 2
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
        self.weight, self.gather_across_devices = weight, gather_across_devices
        self.mini_batch_num_tokens = mini_batch_num_tokens
        keep_padding(model, mini_batch_num_tokens)

    def passage_columns(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Columns:
        """The text columns of a batch, which must go to the passage encoder of a `Router` (Hu et al., section 4)."""
        columns = self.read_columns(sentence_features, labels)
        for router in self.model.modules():
            if isinstance(router, Router) and "document" in router.sub_modules:
                routes = {features.get("task") or router.default_route for features in columns}
                if routes != {"document"}:
                    way_out = "give router_mapping={'source': 'document', 'target': 'document'}"
                    self.refuse(f"it acts on the encoder of passages, and columns go to {routes}: {way_out}")
        return columns

    def embed_columns(self, columns: Columns) -> list[Tensor]:
        """The vectors (N, d) of each text column of one encoder."""
        return embed_columns(self.model, columns, num_tokens=self.mini_batch_num_tokens)


class RetrievalContrastiveLoss(WeightedContrastiveLoss):
    """Retrieval loss L_IR: each query's gold passage against the batch's other passages (Hu et al. 2023, Eq. 1).

    [`retrieval_contrastive_loss`][st_xlret.functional.retrieval_contrastive_loss] of queries, gold passages, and any
    number of columns of hard negatives. Its values are those of the host's `MultipleNegativesRankingLoss` with
    `scale = 1 / temperature`, but logits are in float32 under autocast, and neither equal passages nor the passages of
    equal questions are negatives, over all ranks (with a `CrossLingualDataCollator`).

    Args:
        temperature: Divisor of the cosines. The default is the host's (a scale of 20); Eq. 1 as printed has 1.
        similarity: "cosine", or "dot" for inner products of vectors whose lengths are to be learned.
        **options: `weight` and the other arguments of `WeightedContrastiveLoss`.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = RetrievalContrastiveLoss(model)
        >>> loss([model.preprocess(["a", "b"]), model.preprocess(["a c", "b d"])]).ndim
        0
    """

    further = "negative"
    takes = "queries, passages and any number of columns of hard negatives ('negative', 'negative_1', ...)"

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
        self.similarity, self.normalize = similarity, {"cosine": True, "dot": False}[similarity]

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of N queries, gold passages and any columns of hard negatives, a scalar."""
        columns = self.read_columns(sentence_features, labels)
        # Queries are short and passages long: together, the queries would be padded to the passages.
        vectors = [*self.embed_columns(columns[:1]), *self.embed_columns(columns[1:])]
        return self.compute_loss_from_embeddings(vectors, self.concatenate_tags(columns))

    def compute_loss_from_embeddings(self, vectors: list[Tensor], tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of the columns' vectors, each (N, d), and their tags, of which `text_id` is read."""
        (queries, *passages), tags = self.gather_rows(vectors, tags)
        text = tags.get("text_id")
        return self.weight * retrieval_contrastive_loss(
            queries,
            torch.cat(passages),
            temperature=self.temperature,
            query_text=None if text is None else text[: len(queries)],
            passage_text=None if text is None else text[len(queries) :],
            normalize=self.normalize,
        )


class PairContrastiveLoss(WeightedContrastiveLoss):
    """Base of the losses that compare each of N pairs with the others of the batch, by `equation`."""

    most_columns, further = 2, "negative"  # which is no translation
    equation: Callable[..., Tensor] = staticmethod(info_nce_loss)

    def __init__(self, model: SentenceTransformer, *, temperature: float = 0.07, **options: Any) -> None:
        super().__init__(model, **options)
        self.temperature = temperature

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of row-aligned vectors (N, d) and (N, d) with tags (2N,), of which `text_id` is read."""
        (source, target), tags = self.gather_rows([source, target], tags)
        group = translation_groups(tags["text_id"]) if "text_id" in tags else None
        return self.weight * self.equation(source, target, temperature=self.temperature, text=group)


class SemanticContrastiveLoss(PairContrastiveLoss):
    """Semantic contrastive loss L_sema over translations (Hu et al. 2023, Eq. 2).

    Translations, two text columns, are drawn together and away from the 2(N - 1) other rows of the batch, by
    [`info_nce_loss`][st_xlret.functional.info_nce_loss]. Pairs that have a text in common are not negatives of each
    other. The loss acts on the passage encoder only: with a `Router`, on its route "document". The paper trains with a
    weight of 0.01 beside its retrieval loss.

    Args:
        temperature: Divisor of the cosines.
        **options: `weight` and the other arguments of `WeightedContrastiveLoss`.
    """

    takes = "two columns of translations"

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of two text columns of N rows, a scalar."""
        columns = self.passage_columns(sentence_features, labels)
        source, target = self.embed_columns(columns)
        return self.compute_loss_from_embeddings(source, target, self.concatenate_tags(columns))


class LangContrastiveLoss(WeightedContrastiveLoss):
    """Language contrastive loss L_lang over translations and other sentences (Hu et al. 2023, Eq. 3).

    Every sentence is drawn to be equally similar to the two sides of a translation, by
    [`language_contrastive_loss`][st_xlret.functional.language_contrastive_loss]. The data is that of
    `SemanticContrastiveLoss` and optionally a third column, `other`, of sentences without a translation. The paper
    trains with a weight of 0.001 beside its retrieval loss, and with `reduction="paper"`.

    Args:
        reduction: "mean" over all terms, which does not depend on how many sentences a batch has; "paper" for the
            divisor that Eq. 3 shows, R (R - 2) for R sentences; or "sum".
        **options: `weight` and the other arguments of `WeightedContrastiveLoss`.
    """

    most_columns, further = 3, "other"
    takes = "two columns of translations and at most one of further sentences, 'other'"

    def __init__(self, model: SentenceTransformer, *, reduction: Reduction = "mean", **options: Any) -> None:
        super().__init__(model, **options)
        self.reduction: Reduction = reduction

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of two columns of N translations and at most one further column, a scalar."""
        columns = self.passage_columns(sentence_features, labels)
        return self.compute_loss_from_embeddings(*self.embed_columns(columns))

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, others: Tensor | None = None) -> Tensor:
        """Compute the loss of row-aligned vectors (N, d) and (N, d), and further ones (M, d)."""
        columns = [source, target] if others is None else [source, target, others]
        return self.weight * language_contrastive_loss(*self.gather_rows(columns, {})[0], reduction=self.reduction)


def translation_groups(text: Tensor) -> Tensor:
    """Number the groups of pairs that are connected by shared texts: none of their rows is a negative of another."""
    pairs = len(text) // 2
    distinct, code = text.unique(return_inverse=True)
    group = torch.arange(pairs, device=text.device).repeat(2)
    while True:
        lowest = group.new_full(distinct.shape, pairs).scatter_reduce(0, code, group, "amin")[code]
        joined = torch.minimum(lowest[:pairs], lowest[pairs:]).repeat(2)
        if torch.equal(joined, group):
            return group
        group = joined
