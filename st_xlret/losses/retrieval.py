"""The retrieval loss of lang-contrastive, over questions and their passages."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Unpack

from st_xlret.citations import CITATIONS
from st_xlret.columns import Layout
from st_xlret.functional import retrieval_contrastive_loss
from st_xlret.losses.base import Tags
from st_xlret.losses.contrastive import WeightedContrastiveLoss, WeightedOptions
from st_xlret.ranges import check_positive

ANY_NUMBER = 1_000


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

    data = "queries and passages"
    equation = staticmethod(retrieval_contrastive_loss)
    paper = "Hu et al., Eq. 1"
    citation = CITATIONS["hu2023language"]
    layouts = (Layout(2, further="negative", most_further=ANY_NUMBER),)
    takes = "queries, passages and any number of columns of hard negatives, 'negative_1' and so on"

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.05,
        similarity: Literal["cosine", "dot"] = "cosine",
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(model, **options)
        check_positive(temperature=temperature)
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

        All ranks call it together. Of the tags, `text_id` is read: equal texts are no negatives of
        each other.
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
