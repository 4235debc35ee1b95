"""The methods that MSM is compared with, on the same documents: train_msm.py with another objective.

    python -m training_scripts.studies.train_rival --objective crop --from_scratch mini --documents docs/ \\
        --output_dir runs/crop

- crop: two neighbouring sentences of a document are a positive pair. This is the CROP of the MSM paper, which "follows
  Wu et al. (2022a)" (sections 2 and 5.3): it is CCP, with the windows, loss, head and bank of train_ccp.py;
- contriever: two random spans of a document are a positive pair, the other method that the MSM paper calls cropping
  (section 2, appendix A.3). The spans are those of mContriever (Izacard et al., 2021, section 3.1: 5 % to 50 % of up to
  256 tokens, drawn independently); its queue of a second, slowly moving encoder is not here;
- ict: a sentence and its context are a positive pair (inverse cloze task, Lee et al., 2019, section 4);
- mlm: masked language modelling alone.

Takes the options of train_msm.py. A batch of each objective holds about as much text as a batch of MSM does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch import nn

from st_xlret import (
    AsymmetricBNHead,
    BlockBatches,
    BlockBatchSampler,
    CCPLoss,
    CrossLingualDataCollator,
    MaskedLMLoss,
    SemanticContrastiveLoss,
    SpanDataCollator,
)
from st_xlret.data import WindowBatchSampler
from st_xlret.options import option
from st_xlret.training.script import run_script
from training_scripts import train_msm


@dataclass
class RivalArguments(train_msm.MSMArguments):
    """The method."""

    objective: str = option(
        "crop",
        "What is learned: crop (the MSM paper's CROP: two neighbouring sentences are a pair, as in CCP), "
        "contriever (two random spans of a document are a pair), ict (a sentence and its context) or mlm (masked words "
        "alone).",
        choices=["crop", "contriever", "ict", "mlm"],
    )
    fresh_head: bool = option(
        False, "mlm: begin with a new language-model head if the encoder comes without one. It disturbs the encoder."
    )
    span_sentences: int = option(
        10, "contriever, ict: sentences of a document that both texts are taken from.", minimum=2
    )
    span_temperature: float = option(0.05, "contriever, ict: temperature.", above=0)
    span_tokens: int = option(256, "contriever: tokens of a document that both spans are taken from.", minimum=2)
    shortest_span: float = option(
        0.05, "contriever: smallest length of a span, as a share of --span_tokens.", above=0, maximum=1
    )
    longest_span: float = option(
        0.5, "contriever: largest length of a span, as a share of --span_tokens.", above=0, maximum=1
    )
    ict_keep: float = option(0.1, "ict: how often the context keeps the sentence.", minimum=0, maximum=1)
    window_size: int = option(
        5, "crop: largest distance between two sentences of a document that are positives.", minimum=1
    )
    bank_size: int = option(
        32768,
        "crop: keys of earlier batches that serve as negatives too. 0 means no memory bank.",
        minimum=0,
        maximum=2**24,
    )

    def __post_init__(self) -> None:
        if self.fresh_head and self.objective != "mlm":
            raise ValueError(f"--fresh_head is for masked words: leave it out of --objective {self.objective}")
        if self.sum_mlm:
            raise ValueError(f"--sum_mlm is for MSM; --objective {self.objective} has batches of MLM: use --mlm_ratio")


@dataclass
class RivalBatches(BlockBatches):
    """Batch samplers that give every objective about as many tokens in a batch as MSM has."""

    options: RivalArguments | None = None

    def __call__(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> DefaultBatchSampler:
        """Make the sampler for this data set, with the host's arguments."""
        assert self.options is not None
        sentences, smoothing = batch_size * self.block_size, self.language_smoothing
        if "position" in dataset.column_names:
            # ICT reads a document once. Two spans read only part of it, so that a batch takes more documents.
            spans = self.options.objective == "contriever"
            share = self.options.shortest_span + self.options.longest_span if spans else 1.0
            documents = max(2, round(sentences / self.options.span_sentences / share))
            # The negatives of a document are the other documents of its batch.
            sampler = BlockBatchSampler(
                dataset,
                documents,
                *args,
                **kwargs,
                block_size=self.options.span_sentences,
                min_documents=2,
                language_smoothing=smoothing,
            )
            self.counts = sampler.counts
            return sampler
        if "document" in dataset.column_names:
            return WindowBatchSampler(
                dataset,
                max(1, sentences // 2),
                *args,
                **kwargs,
                window_size=self.options.window_size,
                language_smoothing=smoothing,
            )
        return super().__call__(dataset, batch_size, *args, **kwargs)


def build_datasets(
    model: SentenceTransformer, documents: Dataset | None, pairs: Dataset | None, options: RivalArguments
) -> DatasetDict:
    """The data sets of train_msm.py, with the objective's in place of MSM's."""
    datasets = train_msm.build_datasets(model, documents, pairs, options)
    blocks = datasets.pop("msm", None)
    if blocks is not None and options.fresh_head:
        datasets["mlm"] = blocks.select_columns(["sentence", "language"])
    if blocks is None or options.objective == "mlm":
        return datasets
    if options.objective == "crop":
        blocks = blocks.remove_columns("position")
    return DatasetDict({options.objective: blocks, **datasets})


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: RivalArguments) -> dict[str, nn.Module]:
    """The losses of train_msm.py, with the objective's in place of MSM's."""
    losses: dict[str, nn.Module] = {}
    if "crop" in datasets:
        head = AsymmetricBNHead(int(model.get_embedding_dimension() or 0))
        losses["crop"] = CCPLoss(model, head, bank_size=options.bank_size, temperature=0.1)
    for name in {"contriever", "ict"} & set(datasets):
        losses[name] = SemanticContrastiveLoss(model, temperature=options.span_temperature)
    if "mlm" in datasets and options.fresh_head:
        losses["mlm"] = MaskedLMLoss(model, fresh_head=True)
    others = DatasetDict({name: dataset for name, dataset in datasets.items() if name not in losses})
    return losses | train_msm.build_losses(model, others, options)


def build_batches(options: RivalArguments) -> RivalBatches:
    """Batches with as much text as those of MSM."""
    return RivalBatches(options.block_sentences, options.language_smoothing, options)


def build_collator(
    model: SentenceTransformer, options: RivalArguments, token_dropout: float
) -> CrossLingualDataCollator:
    """Makes pairs of texts of a document for random spans and ICT."""
    if options.objective not in ("contriever", "ict"):
        return CrossLingualDataCollator(model.preprocess, token_dropout=token_dropout)
    return SpanDataCollator(
        model.preprocess,
        token_dropout=token_dropout,
        kind="ict" if options.objective == "ict" else "crop",
        tokenizer=model.tokenizer,
        max_tokens=options.span_tokens,
        shortest=options.shortest_span,
        longest=options.longest_span,
        keep_sentence=options.ict_keep,
    )


main = partial(
    train_msm.main,
    options_class=RivalArguments,
    build_datasets=build_datasets,
    build_losses=build_losses,
    build_batches=build_batches,
    build_collator=build_collator,
    program="-m training_scripts.studies.train_rival",
    description=__doc__,
)

if __name__ == "__main__":
    run_script(main)
