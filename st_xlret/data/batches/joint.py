"""Batches of parallel sentences together with sentences that have no translation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset, concatenate_datasets
from sentence_transformers.base.sampler import DefaultBatchSampler

from st_xlret.data.batches.collator import CrossLingualDataCollator
from st_xlret.data.batches.windows import LanguageBatchSampler

PAIR_COLUMNS = ["source", "target", "source_language", "target_language"]


def pairs_and_others(pairs: Dataset, others: Dataset | None) -> Dataset:
    """Put parallel sentences and sentences without translations into one data set.

    A row is one of the two kinds, and its other columns are empty strings, because the host cannot read nulls.

    Args:
        pairs: `source`, `target`, `source_language` and `target_language`.
        others: `sentence` and `language`; None or empty for parallel sentences alone.

    Returns:
        The four columns of the pairs and, if there are other sentences, `other` and `other_language`.

    Example:
        >>> languages = {"source_language": ["en"], "target_language": ["fr"]}
        >>> pairs = Dataset.from_dict({"source": ["yes"], "target": ["oui"], **languages})
        >>> pairs_and_others(pairs, Dataset.from_dict({"sentence": ["ja"], "language": ["de"]}))[1]["other"]
        'ja'
    """
    pairs = pairs.select_columns(PAIR_COLUMNS)
    if others is None or not len(others):
        return pairs
    columns = {"sentence": "other", "language": "other_language"}
    others = others.select_columns(list(columns)).rename_columns(columns)
    pairs, others = _with_empty(pairs, others.column_names), _with_empty(others, PAIR_COLUMNS)
    return concatenate_datasets([pairs, others])


def _with_empty(dataset: Dataset, columns: list[str]) -> Dataset:
    for column in columns:
        dataset = dataset.add_column(column, [""] * len(dataset))
    return dataset


class PairsAndOthersBatchSampler(DefaultBatchSampler):
    """Batches of pairs and of other sentences, both from a data set of `pairs_and_others`.

    An epoch is one pass over the pairs. The other sentences are shuffled and smoothed over their languages on their
    own, and start again when they are exhausted.

    Args:
        dataset: Rows of both kinds.
        batch_size: Pairs per batch, in each process.
        drop_last: Ignored: all batches are full.
        valid_label_columns: Ignored.
        generator: Ignored: batches depend on the seed and the epoch only, so a resumed run repeats them.
        seed: Seed.
        others: Other sentences per batch, in each process. By default as many as pairs.
        language_smoothing: Languages, and language pairs, are sampled in proportion to their size raised to this power.
        language_mixing: 1: a batch mixes all language pairs. 0: it is of one. Other sentences are always mixed.

    Raises:
        ValueError: If there are no rows of one of the kinds.

    Example:
        >>> languages = {"source_language": ["en"], "target_language": ["fr"]}
        >>> pairs = Dataset.from_dict({"source": ["yes"], "target": ["oui"], **languages})
        >>> both = pairs_and_others(pairs, Dataset.from_dict({"sentence": ["ja"], "language": ["de"]}))
        >>> next(iter(PairsAndOthersBatchSampler(both, batch_size=2, others=3)))
        [0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        drop_last: bool = True,
        valid_label_columns: list[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
        *,
        others: int | None = None,
        language_smoothing: float = 0.7,
        language_mixing: float = 1.0,
    ) -> None:
        super().__init__(dataset, batch_size, True, valid_label_columns, generator, seed)
        column = dataset.with_format("arrow", columns=["source_language"])[:]["source_language"]
        is_pair = pc.not_equal(column, "").to_numpy()
        kinds = (
            (np.flatnonzero(is_pair), ["source_language", "target_language"], batch_size, language_mixing),
            (np.flatnonzero(~is_pair), ["other_language"], others or batch_size, 1.0),
        )
        self.rows = [rows for rows, *_ in kinds]
        # The number of rows: with several processes, batches of another length would be dropped.
        self.batch_size = batch_size + (others or batch_size)
        # The second sampler's draws must not be tied to the first's.
        self.samplers = [
            LanguageBatchSampler(
                dataset.select(rows).select_columns(columns),
                size,
                seed=seed + 7919 * i,
                language_smoothing=language_smoothing,
                language_mixing=part,
            )
            for i, (rows, columns, size, part) in enumerate(kinds)
        ]

    def __len__(self) -> int:
        return len(self.samplers[0])

    def __iter__(self) -> Iterator[list[int]]:
        for pairs, others in zip(self.samplers[0], self._endless_others(), strict=False):
            yield [*self.rows[0][pairs].tolist(), *self.rows[1][others].tolist()]

    def set_epoch(self, epoch: int) -> None:
        """Choose the batches of an epoch."""
        super().set_epoch(epoch)
        self.samplers[0].set_epoch(epoch)

    def _endless_others(self) -> Iterator[list[int]]:
        for repeats in count():
            self.samplers[1].set_epoch(self.epoch + 1_000_003 * repeats)
            yield from self.samplers[1]


@dataclass
class MixedRowsDataCollator(CrossLingualDataCollator):
    """Collates rows of different kinds into one batch: a column has the rows in which it is not empty.

    The columns of a batch may then differ in length, as those of parallel sentences and of others do.

    Args:
        preprocess_fn: The model's `preprocess`.
        router_mapping: Route of each column, by data set; see `st_xlret.modules.two_encoders.router_mapping`.
        token_dropout: As for [`CrossLingualDataCollator`][st_xlret.CrossLingualDataCollator].

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> pair = {"source": "a", "target": "b", "other": ""}
        >>> other = {"source": "", "target": "", "other": "c"}
        >>> batch = MixedRowsDataCollator(model.preprocess)([pair, other, other])
        >>> len(batch["source_text_id"]), len(batch["other_text_id"])
        (1, 2)
    """

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows into one batch."""
        kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in features:
            filled = {name: value for name, value in row.items() if value != ""}
            kinds.setdefault(tuple(filled), []).append(filled)
        batch: dict[str, Any] = {}
        for rows in kinds.values():
            batch |= super().__call__(rows)
        return batch


@dataclass
class JointBatches:
    """Picks a batch sampler for each data set of a joint run: questions, pairs, and pairs beside other sentences.

    Pass it as `batch_sampler` of the training arguments of a [`JointTrainer`][st_xlret.JointTrainer]; their batch size
    is that of the questions.

    - data sets without a `source` column give questions with their passages;
    - data sets of pairs give parallel sentences;
    - data sets of `pairs_and_others` give parallel sentences, and other sentences beside them.

    Args:
        pairs_batch_size: Parallel sentences in a batch. Default: the batch size.
        others_batch_size: Sentences without translations in a batch. Default: as many as parallel sentences.
        language_smoothing: Languages, and language pairs, are sampled in proportion to their size raised to this power.
        pairs_language_mixing: 1: a batch mixes all language pairs (the paper's). 0: it is of one.

    Example:
        >>> languages = {"source_language": ["en"], "target_language": ["fr"]}
        >>> pairs = Dataset.from_dict({"source": ["yes"], "target": ["oui"], **languages})
        >>> both = pairs_and_others(pairs, Dataset.from_dict({"sentence": ["ja"], "language": ["de"]}))
        >>> next(iter(JointBatches(others_batch_size=3)(both, 2)))
        [0, 0, 1, 1, 1]
    """

    pairs_batch_size: int | None = None
    others_batch_size: int | None = None
    language_smoothing: float = 0.7
    pairs_language_mixing: float = 1.0

    def __call__(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> DefaultBatchSampler:
        """Make the sampler for this data set, with the host's arguments."""
        kwargs = {**kwargs, "language_smoothing": self.language_smoothing}
        if "source" not in dataset.column_names:
            return LanguageBatchSampler(dataset, batch_size, *args, **kwargs)
        size = self.pairs_batch_size or batch_size
        kwargs["language_mixing"] = self.pairs_language_mixing
        if "other" not in dataset.column_names:
            return LanguageBatchSampler(dataset, size, *args, **kwargs)
        return PairsAndOthersBatchSampler(dataset, size, *args, **kwargs, others=self.others_batch_size)
