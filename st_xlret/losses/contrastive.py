"""Bases of the losses over several text columns: of pairs, and of any columns."""

from typing import TypedDict

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from typing_extensions import Unpack

from st_xlret.columns import Layout
from st_xlret.losses.base import Batches, Columns, CrossLingualLoss, Tags
from st_xlret.losses.embedding import embed_columns, keep_padding
from st_xlret.ranges import check_positive


class WeightedOptions(TypedDict, total=False):
    """The arguments of `WeightedContrastiveLoss`, for the losses that hand them on."""

    weight: float
    gather_across_devices: bool
    mini_batch_num_tokens: int | None
    batches: Batches
    ratio: float


class WeightedContrastiveLoss(CrossLingualLoss):
    """Base of the losses over translations and queries: a weighted loss of all ranks.

    Args:
        weight: Factor on the loss.
        gather_across_devices: Compare with the rows of all ranks.
        mini_batch_num_tokens: Tokens, with padding, per micro-batch (gradient caching); None for
            one pass.
    """

    layouts = (Layout(2),)

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
        super().__init__(model, weight=weight, batches=batches, ratio=ratio)
        self.gather_across_devices = gather_across_devices
        self.mini_batch_num_tokens = mini_batch_num_tokens
        keep_padding(model, mini_batch_num_tokens=mini_batch_num_tokens)

    def embed_columns(self, columns: Columns) -> list[Tensor]:
        """The vectors (N, d) of each text column of one encoder."""
        return embed_columns(self.model, columns, num_tokens=self.mini_batch_num_tokens)


class PairContrastiveLoss(WeightedContrastiveLoss):
    """Base of the losses that compare each of N pairs with the others, by `equation`."""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.07,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(model, **options)
        check_positive(temperature=temperature)
        self.temperature = temperature

    def compute_loss_from_embeddings(self, source: Tensor, target: Tensor, tags: Tags) -> Tensor:
        """Compute the loss of pairs: vectors (N, d) and (N, d), and tags (2N,).

        All ranks call it together. Of the tags, `text_id` is read: pairs that share a text are no
        negatives of each other.
        """
        vectors, tags = self.gather_rows([source, target], tags)
        group = None
        if "text_id" in tags:
            group = _translation_groups(tags["text_id"])
        loss = self.equation(*vectors, temperature=self.temperature, text=group)
        return self.weight * loss


def _translation_groups(text: Tensor) -> Tensor:
    """The group of each row of pairs, (2N,): those connected by shared texts have one number.

    `text` is the text of each row (2N,), first of the sources and then of the targets.
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
