r"""Train a cross-lingual encoder as a masked sentence model (MSM): documents in, a Sentence Transformer out.

Each sentence of a document is masked in turn and predicted from the others, by a small document encoder that all
languages share (Zhang et al., ICLR 2023). The document encoder is discarded after training; the sentence encoder
remains. The paper's setting, which starts from XLM-R base, on several GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_msm.py training_scripts/recipes/msm.yaml \
        --documents documents/*.jsonl.gz --output_dir runs/msm

On two CPU cores in minutes, a small Transformer from scratch, whose document encoder learns more slowly:

    python training_scripts/train_msm.py --from_scratch mini --documents documents/ --output_dir runs/msm-mini \
        --max_steps 2000 --learning_rate 1e-3 --learning_rate_mapping '{"networks": 4e-4}'

Documents are JSON lines {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}. Parallel sentences
(--pairs) are not part of the paper: they are trained on beside the documents, and some are held out to choose the best
checkpoint; with --pairs_ratio 0 they only serve to choose it. Interrupted? The same command with --resume repeats what
the uninterrupted run would have done. The model is in OUTPUT_DIR/model, the scores in OUTPUT_DIR/results.json, the
curves in OUTPUT_DIR/training.png.

The paper's ablations (Tables 4, 5, 7 and 8) and the methods that MSM is compared with (CROP, which is CCP, ICT,
mContriever, MLM) are in training_scripts/studies/train_msm_ablation.py and train_rival.py, which take the same options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Transformer
from torch import nn

from st_xlret import (
    BlockBatches,
    CrossLingualDataCollator,
    DocumentEncoder,
    InterleavedBatches,
    LossMonitorCallback,
    LossStateCallback,
    MaskedLMLoss,
    MSMLoss,
    SemanticContrastiveLoss,
    TokenCountCallback,
)
from st_xlret.data import pack_documents
from st_xlret.hub import set_card_data
from st_xlret.options import option, parse
from st_xlret.training import arguments as shared
from st_xlret.training import run as runs
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments
from st_xlret.training.encoders import PretrainingEncoderArguments, learns_masked_words
from st_xlret.training.held_out import compare, keep_best
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.script import command, run_script


@dataclass
class MSMArguments:
    """The method. The defaults are the paper's, but for --sum_mlm and --pooling: recipes/msm.yaml has them."""

    _argument_group_name = "method"

    block_sentences: int = option(
        32, "Sentences of a document that are read together. Longer documents are split.", minimum=2
    )
    pack_tokens: int = option(
        0,
        "Pack consecutive sentences into units of up to this many tokens. The authors' program uses 64. 0 leaves each "
        "sentence as it is.",
        minimum=0,
    )
    negatives: int = option(
        512, "Maximum negatives of a sentence from other documents. 0 takes all of the batch.", minimum=0
    )
    sum_mlm: bool = option(
        False,
        "Add masked language modelling to each batch of MSM (Eq. 3), instead of giving it batches of its own. A static "
        "encoder has none.",
    )
    mlm_ratio: float = option(
        1.0, "Relative frequency of batches of masked language modelling; those of MSM have 1.", minimum=0
    )
    pairs_ratio: float = option(
        1.0, "Relative frequency of batches of parallel sentences (--pairs). 0 only evaluates with them.", minimum=0
    )
    language_smoothing: float = option(
        0.3,
        "Languages are sampled in proportion to their size raised to this power. 0 samples all alike.",
        minimum=0,
        maximum=1,
    )
    mini_batch_size: int = option(
        128,
        "Sentences that a Transformer reads at a time, with gradient caching: fewer need less memory and give the same "
        "gradients. 0 reads the batch in one pass, as a static encoder always does.",
        minimum=0,
    )


@dataclass
class TrainingArguments(shared.TrainingArguments):
    """The host's training arguments, with the paper's steps and learning rate.

    The paper states neither the batch size nor the length of the warm-up.
    """

    max_steps: int = option(200_000, "Optimizer steps. --num_train_epochs replaces it.")
    per_device_train_batch_size: int = option(16, "Documents of --block_sentences sentences in a batch, per device.")
    learning_rate: float = option(4e-5, "Peak learning rate. 4e-5 suits XLM-R, 1e-3 a small Transformer from scratch.")
    warmup_steps: float = option(0.05, "Steps of linear warm-up; a number below 1 is a share of all steps.")


def build_datasets(
    model: SentenceTransformer, documents: Dataset | None, pairs: Dataset | None, options: MSMArguments
) -> DatasetDict:
    """One data set for each kind of batch: blocks of documents, sentences with masked words, translations."""
    datasets = DatasetDict()
    if documents is not None:
        datasets["msm"] = documents.select_columns(["sentence", "language", "document", "position"])
        if options.mlm_ratio and not options.sum_mlm and learns_masked_words(model):
            datasets["mlm"] = documents.select_columns(["sentence", "language"])
    if pairs is not None and options.pairs_ratio:
        datasets["pairs"] = pairs
    return datasets


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: MSMArguments) -> dict[str, nn.Module]:
    """One loss for each data set: masked sentences with the document encoder, masked words, translations."""
    losses: dict[str, nn.Module] = {}
    if "msm" in datasets:
        document_encoder = DocumentEncoder(
            model.get_embedding_dimension(), layers=2, max_sentences=options.block_sentences
        )
        losses["msm"] = MSMLoss(
            model,
            document_encoder,
            heads="separate",
            mu=0.5,
            temperature=0.1,
            num_negatives=options.negatives or None,
            mini_batch_size=options.mini_batch_size or None,
            mlm=MaskedLMLoss(model) if options.sum_mlm and learns_masked_words(model) else None,
        )
    if "mlm" in datasets:
        losses["mlm"] = MaskedLMLoss(model)
    if "pairs" in datasets:
        losses["pairs"] = SemanticContrastiveLoss(model, temperature=0.05)
    return losses


def build_batches(options: MSMArguments) -> BlockBatches:
    """Documents of one language in a batch, and as much text in the batches of the other kinds."""
    return BlockBatches(block_size=options.block_sentences, language_smoothing=options.language_smoothing)


def build_collator(model: SentenceTransformer, options: MSMArguments, token_dropout: float) -> CrossLingualDataCollator:
    """Tells the loss which document and place each sentence has."""
    return CrossLingualDataCollator(model.preprocess, blocks=True, token_dropout=token_dropout)


def main(
    arguments: list[str] | None = None,
    options_class: type[MSMArguments] = MSMArguments,
    build_datasets: Callable[..., DatasetDict] = build_datasets,
    build_losses: Callable[..., dict[str, nn.Module]] = build_losses,
    build_batches: Callable[..., BlockBatches] = build_batches,
    build_collator: Callable[..., CrossLingualDataCollator] = build_collator,
    program: str = "training_scripts/train_msm.py",
    description: str | None = __doc__,
) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [
        PretrainingEncoderArguments,
        DataArguments,
        options_class,
        LazyAdamArguments,
        RunArguments,
        TrainingArguments,
    ]
    encoder, data, options, static, run, args = parse(groups, arguments, description=description)
    runs.start(args, run, encoder, data, options, static)

    # 1. Data: documents as sentences in their order, and parallel sentences, some of which are held out.
    documents = data.load_documents()
    pairs, evaluator = data.hold_out_pairs(data.load_pairs(), args.seed)

    # 2. The encoder.
    texts = [] if documents is None else [(documents, "sentence", "language")]
    texts += [] if pairs is None else [(pairs, side, f"{side}_language") for side in ("source", "target")]
    model = encoder.load(texts, args, run)

    # 3. One data set for each kind of batch.
    if documents is not None and options.pack_tokens:
        documents = pack_documents(documents, model.tokenizer, max_tokens=options.pack_tokens)
    datasets = build_datasets(model, documents, pairs, options)
    if not datasets:
        raise ValueError(
            "there is nothing to train on: give --documents or --pairs, and a ratio above 0 to a kind of batch for them"
        )
    languages = sorted({code for dataset, _, column in texts for code in dataset.unique(column)})
    set_card_data(model, languages=languages, tags=[next(iter(datasets))])

    # 4. A loss for each of them, and the batches: blocks of documents, interleaved with the other kinds.
    losses = build_losses(model, datasets, options)
    ratios = {"mlm": options.mlm_ratio, "pairs": options.pairs_ratio}
    batches = args.batch_sampler = build_batches(options)
    args.multi_dataset_batch_sampler = InterleavedBatches(ratios=[ratios.get(name, 1.0) for name in datasets])
    keep_best(args, "eval_pairs_average_accuracy" if evaluator else None)

    collator = build_collator(model, options, 0.0 if isinstance(model[0], Transformer) else static.token_dropout)
    collator.max_length = encoder.batch_length(model)

    # 5. The host's Trainer. The callbacks keep document encoder and heads across checkpoints and ranks, watch the
    # losses, and count the tokens.
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        evaluator=evaluator,
        data_collator=collator,
        callbacks=[LossStateCallback(losses), LossMonitorCallback(losses), TokenCountCallback(losses)],
    )
    if static.lazy_adam:
        use_lazy_adam(trainer)

    # 6. Train and save.
    results = {"command": command(program, arguments), **runs.train(trainer, run)}
    if batches.counts is None:
        # A run that was finished already has made no batches.
        trainer.get_train_dataloader()
    results |= {
        "tokens": trainer.state.num_input_tokens_seen,
        "languages": languages,
        "sentences": 0 if documents is None else len(documents),
        "pairs": 0 if pairs is None else len(pairs),
        "blocks": asdict(batches.counts) if batches.counts else None,
    }
    if evaluator is not None and trainer.is_world_process_zero():
        evaluation = evaluator.evaluate(model)
        results["held_out_pairs"] = {"scores": evaluation.scores, "average": evaluation.average}
        compare(results, {"pairs_average_accuracy": evaluation.average["accuracy"]})
    runs.finish(model, trainer, run, results)
    return results


if __name__ == "__main__":
    run_script(main)
