"""The sentences of a batch as `MSMLoss` reads them: in blocks, and those of all ranks."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from st_xlret.losses.base import Tags


def arrange_blocks(tags: Tags) -> Tensor:
    """The rows of each block in the order of its sentences (blocks, places), -1 behind them."""
    order = torch.argsort(tags["sentence_position"], stable=True)
    order = order[torch.argsort(tags["block_id"][order], stable=True)]
    _, counts = torch.unique_consecutive(tags["block_id"][order], return_counts=True)
    rows_of_blocks = order.split(counts.tolist() or [0])  # a batch may be empty
    return pad_sequence(rows_of_blocks, batch_first=True, padding_value=-1)


@dataclass(frozen=True)
class Sentences:
    """Sentences of a batch: (S, d) tensors, and (S,) tags."""

    predictions: Tensor
    """Zeros where nothing is predicted."""
    vectors: Tensor
    predicted: Tensor
    document: Tensor
    language: Tensor
    text: Tensor


def gather_sentences(own: Sentences) -> Sentences:
    """The sentences of all ranks, one rank after the other.

    Ranks may have different numbers of sentences: they are padded to the most, gathered, and cut.
    """
    device = own.vectors.device
    most = torch.tensor(len(own.vectors), device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most) - len(own.vectors)
    filled = all_gather(F.pad(torch.ones_like(own.document), (0, missing))).bool()
    both = F.pad(torch.cat([own.predictions, own.vectors], 1), (0, 0, 0, missing))
    predictions, vectors = all_gather_with_grad(both.contiguous())[filled].chunk(2, dim=1)
    tags = torch.stack([own.predicted.long(), own.document, own.language, own.text], 1)
    gathered = all_gather(F.pad(tags, (0, 0, 0, missing)))[filled]
    predicted, document, language, text = gathered.unbind(1)
    return Sentences(predictions, vectors, predicted.bool(), document, language, text)
