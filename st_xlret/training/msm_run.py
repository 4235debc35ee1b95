"""One Trainer run of MSM, or of a rival on the same documents, with MLM and parallel sentences beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Transformer
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from st_xlret.data.batches.blocks import BlockBatchSampler, BlockCounts
from st_xlret.data.batches.collator import CrossLingualDataCollator
from st_xlret.data.batches.interleaving import InterleavedBatches
from st_xlret.data.batches.spans import SpanDataCollator
from st_xlret.data.batches.windows import LanguageBatchSampler, WindowBatchSampler
from st_xlret.losses import CrossLingualLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.losses.msm import MSMLoss
from st_xlret.modules.document_encoder import DocumentEncoder
from st_xlret.training.ccp_run import CCPOptions
from st_xlret.training.ccp_run import build_losses as build_ccp_losses
from st_xlret.training.loss_state_callback import LossStateCallback
from st_xlret.training.monitor_callback import LossMonitorCallback
from st_xlret.training.msm_options import MSMOptions

__all__ = [
    "MSMBatches",
    "MSMOptions",
    "build_losses",
    "build_msm_trainer",
    "choose_datasets",
    "count_tokens",
    "set_pooling",
]


@dataclass
class MSMBatches:
    """Picks a batch sampler for each dataset of a run, so that every objective reads as much text in a step.

    Pass it as ``batch_sampler`` of the training arguments, whose batch size is then that of documents: ``batch_size *
    block_sentences`` sentences are a batch of MSM and of MLM, half as many windows are one of CCP and half as many
    pairs one of parallel sentences; CROP and ICT take as many documents as give about as many tokens.

    Args:
        options: Options of the run.

    Attributes:
        counts: What the documents gave, once a sampler of blocks was made.

    Example:
        >>> rows = {"sentence": list("abcdef"), "language": ["en"] * 6, "document": [0, 0, 0, 1, 1, 1]}
        >>> batches = MSMBatches(MSMOptions(block_sentences=3))
        >>> [len(batch) for batch in batches(Dataset.from_dict({**rows, "position": [0, 1, 2] * 2}), 2)]
        [6]
    """

    options: MSMOptions
    counts: BlockCounts | None = field(default=None, init=False)

    def __call__(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> DefaultBatchSampler:
        """The sampler for this dataset, with the host's arguments."""
        options = self.options
        sentences, kwargs = batch_size * options.block_sentences, {**kwargs, "alpha": options.alpha}
        if "position" in dataset.column_names:
            sampler = self._blocks(dataset, batch_size, *args, **kwargs)
            self.counts = sampler.counts
            return sampler
        if "document" in dataset.column_names:
            return WindowBatchSampler(dataset, max(1, sentences // 2), *args, **kwargs, radius=options.window)
        of_pairs = "sentence" not in dataset.column_names
        return LanguageBatchSampler(dataset, max(1, sentences // 2) if of_pairs else sentences, *args, **kwargs)

    def _blocks(self, dataset: Dataset, documents: int, *args: Any, **kwargs: Any) -> BlockBatchSampler:
        options = self.options
        if options.objective == "msm":
            kwargs |= {"block_size": options.block_sentences, "fill": options.batch_by == "sentences"}
            kwargs["keep_single_sentences"] = options.single_sentences == "negatives"
            return BlockBatchSampler(dataset, documents, *args, **kwargs)
        # Of a document's tokens two crops read their lengths' sum, ICT all.
        share = options.crop_shortest + options.crop_longest if options.objective == "crop" else 1.0
        documents = max(2, round(documents * options.block_sentences / options.span_sentences / share))
        # A document has no negative in a batch of its own.
        return BlockBatchSampler(
            dataset, documents, *args, **kwargs, block_size=options.span_sentences, min_documents=2
        )


def set_pooling(model: SentenceTransformer, pooling: str) -> SentenceTransformer:
    """Let a Transformer's sentence vectors be its first token's ("cls") or the mean of all ("mean"), in place.

    Other encoders, such as static ones, are left as they are.

    Args:
        model: The encoder.
        pooling: "cls" or "mean".

    Returns:
        The same model.
    """
    for name, module in model.named_children():
        if isinstance(module, Pooling):
            model._modules[name] = Pooling(module.embedding_dimension, pooling_mode=pooling)  # type: ignore[arg-type]
    return model


def build_losses(model: SentenceTransformer, datasets: Any, options: MSMOptions) -> dict[str, CrossLingualLoss]:
    """The loss of each dataset of a run.

    Args:
        model: The encoder.
        datasets: Names as :func:`choose_datasets` gives them.
        options: Options of the run.

    Returns:
        Losses by dataset name.
    """
    losses: dict[str, CrossLingualLoss] = {}
    if "msm" in datasets:
        losses["msm"] = _msm_loss(model, options)
    if "ccp" in datasets:
        ccp = CCPOptions(
            temperature=options.temperature,
            bank_size=options.bank_size,
            cross_language_negatives=options.cross_language_negatives,
        )
        losses |= build_ccp_losses(model, ["ccp"], ccp)
    for name in {"crop", "ict"} & set(datasets):
        losses[name] = SemanticContrastiveLoss(model, temperature=options.span_temperature)
    if "mlm" in datasets:
        losses["mlm"] = MaskedLMLoss(model, mask_probability=options.mask_probability)
    if "pairs" in datasets:
        losses["pairs"] = SemanticContrastiveLoss(model, temperature=options.pairs_temperature)
    return losses


def _msm_loss(model: SentenceTransformer, options: MSMOptions) -> MSMLoss:
    document_encoder = DocumentEncoder(
        int(model.get_embedding_dimension() or 0),
        layers=options.document_layers,
        max_sentences=options.block_sentences,
    )
    separate = options.document_encoder != "shared"
    mlm = None
    if options.mlm == "sum" and isinstance(model[0], Transformer):
        mlm = MaskedLMLoss(model, mask_probability=options.mask_probability, weight=options.mlm_weight)
    return MSMLoss(
        model,
        document_encoder,
        heads=options.projection,  # type: ignore[arg-type]
        num_negatives=options.negatives or None,
        mu=options.mu,
        temperature=options.temperature,
        intra_document_negatives=not options.cross_document_only,
        cross_language_negatives=options.cross_language_negatives,
        language_groups=[options.separate_languages] if separate else None,
        separate_heads=options.document_encoder == "separate-with-heads",
        mini_batch_size=options.mini_batch_size or None,
        mlm=mlm,
    )


def choose_datasets(
    model: SentenceTransformer, documents: Dataset | None, pairs: Dataset | None, options: MSMOptions
) -> DatasetDict:
    """The datasets that the options ask for: the objective's, by its name, then mlm, then pairs.

    Raises:
        ValueError: If nothing is left to train on.
    """
    datasets = DatasetDict()
    masks_words = isinstance(model[0], Transformer) and (options.objective == "mlm" or options.mlm == "alternate")
    if documents is not None:
        if options.objective != "mlm" and options.objective_weight:
            columns = ["sentence", "language", "document"]
            # Windows need no places; where there are places, batches are of blocks.
            datasets[options.objective] = documents.select_columns(
                columns if options.objective == "ccp" else [*columns, "position"]
            )
        if masks_words and options.mlm_weight:
            datasets["mlm"] = documents.select_columns(["sentence", "language"])
    if pairs is not None and options.pairs_weight:
        datasets["pairs"] = pairs
    if not datasets:
        raise ValueError("nothing to train on: give documents or pairs, and a weight above 0 to a task they serve")
    return datasets


def build_msm_trainer(
    model: SentenceTransformer,
    documents: Dataset | None,
    pairs: Dataset | None,
    options: MSMOptions,
    args: SentenceTransformerTrainingArguments,
    *,
    evaluator: BaseEvaluator | list[BaseEvaluator] | None = None,
    callbacks: tuple[Any, ...] = (),
    resume_from: str | None = None,
) -> SentenceTransformerTrainer:
    """A standard Trainer over up to three datasets: blocks of documents, masked sentences, parallel ones.

    What the objective adds to the encoder (document encoder, heads, memory bank) is the losses', and is gone when the
    model is saved.

    Args:
        model: The encoder; its pooling is that of the options afterwards.
        documents: Sentences as :func:`~st_xlret.data.load_documents` makes them, or units as
            :func:`~st_xlret.data.pack_documents` does.
        pairs: Parallel sentences as :func:`~st_xlret.data.load_pairs` makes them; the paper has none.
        options: What is trained.
        args: The host's training arguments; the batch size is that of documents, see :class:`MSMBatches`.
        evaluator: In-training evaluation.
        callbacks: Further callbacks.
        resume_from: Checkpoint folder outside of the output directory to resume from.

    Returns:
        A trainer, ready to ``train()``.

    Raises:
        ValueError: If nothing is left to train on.
    """
    set_pooling(model, options.pooling)
    datasets = choose_datasets(model, documents, pairs, options)
    losses: dict[str, Any] = {**build_losses(model, datasets, options)}
    weights = {"mlm": options.mlm_weight, "pairs": options.pairs_weight}
    args.batch_sampler = MSMBatches(options)
    args.multi_dataset_batch_sampler = InterleavedBatches(
        weights=[weights.get(name, options.objective_weight) for name in datasets]
    )
    return SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        evaluator=evaluator,
        data_collator=_collator(model, options),
        callbacks=[
            LossStateCallback(losses, resume_from=resume_from),
            LossMonitorCallback(losses),
            *callbacks,
        ],
    )


def count_tokens(losses: Mapping[str, nn.Module]) -> Counter[str]:
    """Count the tokens that losses are given from now on, padding left out, on this process.

    Args:
        losses: Losses by name.

    Returns:
        A counter by name, which goes on counting.
    """
    tokens: Counter[str] = Counter()

    def count(name: str) -> Callable[[Any, tuple[Any, ...]], None]:
        def before_forward(_: Any, given: tuple[Any, ...]) -> None:
            for features in given[0]:
                # A static encoder's inputs are flattened: there is no padding to leave out.
                tokens[name] += int(features.get("attention_mask", torch.ones(len(features["input_ids"]))).sum())

        return before_forward

    for name, loss in losses.items():
        loss.register_forward_pre_hook(count(name))
    return tokens


def _collator(model: SentenceTransformer, options: MSMOptions) -> CrossLingualDataCollator:
    if options.objective not in ("crop", "ict"):
        return CrossLingualDataCollator(model.preprocess, blocks=options.objective == "msm")
    return SpanDataCollator(
        model.preprocess,
        kind=options.objective,  # type: ignore[arg-type]
        tokenizer=model.tokenizer,
        max_tokens=options.crop_tokens,
        shortest=options.crop_shortest,
        longest=options.crop_longest,
        keep_sentence=options.ict_keep,
    )
