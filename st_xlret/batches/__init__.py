"""What a batch is: samplers that draw it, and the collator that makes tensors of it.

| batches | of | for |
| --- | --- | --- |
| `Rows` | texts, pairs, questions, languages sampled with smoothing | most losses |
| `Windows` | sentences of documents, each with a neighbour | `CCPLoss` |
| `Blocks` | runs of sentences of documents | `MSMLoss` |
| `LengthGroupedBatches` | texts of similar lengths | `SimilarityDistillationLoss` |
| `InterleavedBatchSampler` | batches of several data sets | |

`CrossLingualTrainer` draws `loss.batches`. With the host's Trainer, give them as `batch_sampler` of
the arguments.
"""

from st_xlret.batches.blocks import Blocks
from st_xlret.batches.collator import CrossLingualDataCollator
from st_xlret.batches.interleaving import InterleavedBatchSampler
from st_xlret.batches.lengths import LengthGroupedBatches
from st_xlret.batches.sampling import BatchFactory, Rows, Windows, smoothed_probabilities

__all__ = [
    "BatchFactory",
    "Blocks",
    "CrossLingualDataCollator",
    "InterleavedBatchSampler",
    "LengthGroupedBatches",
    "Rows",
    "Windows",
    "smoothed_probabilities",
]
