"""What a batch is: samplers that draw it, and the collator that makes tensors of it.

| batches | of | for |
| --- | --- | --- |
| `Windows` | sentences of documents, each with a neighbour | `CCPLoss` |
| `Blocks` | runs of sentences of documents | `MSMLoss` |
| `Rows` | texts or pairs, languages sampled with smoothing | `MaskedLMLoss`, `SemanticContrastiveLoss`, `CZNCELoss` |
| `DistinctRows` | questions without a passage in common | `RetrievalContrastiveLoss` |
| `PairsAndOthers` | pairs, beside sentences without a translation | `LangContrastiveLoss` |
| `LengthGroupedBatches` | texts of similar lengths | `SimilarityDistillationLoss` |
| `InterleavedBatchSampler`, `RoundBatchSampler` | batches of several data sets | |

A loss of this package has its batches as `loss.batches`, which `CrossLingualTrainer` draws. With the host's Trainer,
give them as `batch_sampler` of the training arguments.
"""

from __future__ import annotations

from st_xlret.batches.blocks import BlockBatchSampler, Blocks
from st_xlret.batches.collator import CrossLingualDataCollator
from st_xlret.batches.interleaving import InterleavedBatchSampler, RoundBatchSampler
from st_xlret.batches.lengths import LengthGroupedBatches
from st_xlret.batches.rows import DistinctRows, LanguageBatchSampler, PairsAndOthers, Rows, pairs_and_others
from st_xlret.batches.sampling import BatchFactory, smoothed_probabilities
from st_xlret.batches.windows import WindowBatchSampler, Windows

__all__ = [
    "BatchFactory",
    "BlockBatchSampler",
    "Blocks",
    "CrossLingualDataCollator",
    "DistinctRows",
    "InterleavedBatchSampler",
    "LanguageBatchSampler",
    "LengthGroupedBatches",
    "PairsAndOthers",
    "Rows",
    "RoundBatchSampler",
    "WindowBatchSampler",
    "Windows",
    "pairs_and_others",
    "smoothed_probabilities",
]
