"""The two losses of lang-contrastive over parallel sentences, of which L_lang takes further sentences too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.functional import info_nce_loss, language_contrastive_loss
from st_xlret.functional.contrastive import Reduction
from st_xlret.losses.base import Batches, CrossLingualLoss
from st_xlret.losses.embedding import (
    check_mini_batch,
    embed,
    gather_columns,
    passage_side,
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
        mini_batch_num_tokens: Tokens per micro-batch of the encoder, padding included (gradient caching, see
            `st_xlret.losses.embedding.embed`); None for one pass.
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
        self.temperature, self.weight, self.gather_across_devices = temperature, weight, gather_across_devices
        self.mini_batch_num_tokens = check_mini_batch(model, mini_batch_num_tokens)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of two text columns of N rows, a scalar; `labels` are ignored.

        Raises:
            ValueError: If there are not exactly two columns, or one was made for the query encoder.
        """
        columns = passage_side(self.model, self.read_columns(sentence_features, labels))
        source, target = embed(self.model, columns, mini_batch_num_tokens=self.mini_batch_num_tokens)
        return self.compute_loss_from_embeddings(source, target, read_tags(columns))

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of row-aligned vectors (N, d) and (N, d) with tags (2N,), of which `text_id` is read."""
        if self.gather_across_devices:
            (source, target), tags = gather_columns([source, target], tags)
        group = translation_groups(tags["text_id"]) if "text_id" in tags else None
        return self.weight * info_nce_loss(source, target, temperature=self.temperature, text=group)


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
        self.weight, self.gather_across_devices = weight, gather_across_devices
        self.reduction: Reduction = reduction

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of two columns of N translations and a further one, a scalar; `labels` are ignored.

        Raises:
            ValueError: If there are not two or three columns, a column was made for the query encoder, or there is a
                single pair and nothing else.
        """
        columns = passage_side(self.model, self.read_columns(sentence_features, labels))
        return self.compute_loss_from_embeddings(*embed(self.model, columns))

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, others: Tensor | None = None) -> Tensor:
        """Compute the loss of row-aligned vectors (N, d) and (N, d), and further ones (M, d)."""
        if self.gather_across_devices and get_world_size() > 1:
            source, target = all_gather_with_grad(source), all_gather_with_grad(target)
            others = None if others is None else all_gather_with_grad(others)
        return self.weight * language_contrastive_loss(source, target, others, reduction=self.reduction)
