"""The batch samplers of an MSM run, chosen by data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler

from st_xlret.data.batches.blocks import BlockBatchSampler, BlockCounts
from st_xlret.data.batches.windows import LanguageBatchSampler


@dataclass
class BlockBatches:
    """Picks a batch sampler for each data set of an MSM run, so that every batch holds about as much text.

    Pass it as `batch_sampler` of the training arguments. Their batch size is then the number of documents in a batch,
    of `block_size` sentences each:

    - data sets with a `position` column give blocks of documents, for [`MSMLoss`][st_xlret.MSMLoss];
    - other data sets with a `sentence` column give `batch_size * block_size` sentences, for masked language modelling;
    - data sets of pairs give half as many pairs.

    Args:
        block_size: Largest number of sentences in a block; longer documents are split.
        language_smoothing: Languages are sampled in proportion to their size raised to this power. The default is
            XLM-R's.

    Attributes:
        counts: The `BlockCounts` of the documents, once their sampler is made; None before.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 1]}
        >>> dataset = Dataset.from_dict({**rows, "position": [0, 1, 2] * 2})
        >>> batches = BlockBatches(block_size=3)
        >>> [len(batch) for batch in batches(dataset, 2)], batches.counts.documents
        ([6], 2)
    """

    block_size: int = 32
    language_smoothing: float = 0.3
    counts: BlockCounts | None = field(default=None, init=False)

    def __call__(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> DefaultBatchSampler:
        """Make the sampler for this data set, with the host's arguments."""
        kwargs = {**kwargs, "language_smoothing": self.language_smoothing}
        if "position" in dataset.column_names:
            sampler = BlockBatchSampler(dataset, batch_size, *args, **kwargs, block_size=self.block_size)
            self.counts = sampler.counts
            return sampler
        texts_per_row = 1 if "sentence" in dataset.column_names else 2
        rows = max(1, batch_size * self.block_size // texts_per_row)
        return LanguageBatchSampler(dataset, rows, *args, **kwargs)
