r"""Train a cross-lingual encoder as a masked sentence model (MSM), on documents.

Each sentence of a document is masked in turn and predicted from the others, by a small document
encoder that all languages share (Zhang et al., ICLR 2023). The document encoder is discarded after
training; the sentence encoder, a Sentence Transformer, remains. The paper's setting, which starts
from XLM-R base, on several GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_msm.py training_scripts/recipes/msm.yaml \
        --documents documents/*.jsonl.gz --output_dir runs/msm

With --from_scratch mini, --learning_rate 1e-3 and
--learning_rate_mapping '{"document_encoder|projections": 4e-4}', 2 000 steps take minutes on two
CPU cores.
"""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

from st_xlret import CrossLingualTrainer, MaskedLMLoss, MSMLoss, SemanticContrastiveLoss
from st_xlret.data import pack_documents
from st_xlret.options import option, parse
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.data import PAIRS_SCORE, DocumentOptions
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.loss_options import loss_options_field
from st_xlret.training.run import Run, run_script
from st_xlret.training.texts import TextColumns, data_entries, text_and_language_columns


@dataclass
class MSMArguments:
    """The method.

    The defaults are the paper's, but for --sum_mlm and --pooling: recipes/msm.yaml has them.
    """

    _argument_group_name = "method"

    block_sentences: int = option(
        32, "Sentences of a document that are read together; longer ones are split."
    )
    pack_tokens: int = option(
        0, "Pack sentences into units of up to so many tokens; the authors' program uses 64."
    )
    negatives: int = option(
        512, "Maximum negatives of a sentence from other documents; 0 takes all."
    )
    sum_mlm: bool = option(
        False, "Add masked words to each batch (Eq. 3), in place of batches of their own."
    )
    mlm_ratio: float = option(1.0, "Relative frequency of batches of masked language modelling.")
    pairs_ratio: float = option(1.0, "Relative frequency of batches of pairs; 0 only evaluates.")
    language_smoothing: float = option(
        0.7, "Languages are sampled in proportion to their size raised to this power."
    )
    loss_options: str = loss_options_field(
        "msm, mlm, pairs", '{"msm": {"mu": 0.3, "document_encoder": {"layers": 4}}}'
    )


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments, with the paper's steps and learning rate.

    It states no batch size or warm-up.
    """

    rate_of_trained = 1e-5

    max_steps: int = option(200_000, "Optimizer steps. --num_train_epochs replaces it.")
    per_device_train_batch_size: int = option(
        16, "Documents of --block_sentences sentences in a batch, per device."
    )
    learning_rate: float = option(
        4e-5, "Peak learning rate. 4e-5 suits XLM-R, 1e-5 E5 and its like, 1e-3 small ones."
    )
    warmup_steps: float = option(
        0.05, "Steps of linear warm-up; a number below 1 is a share of all steps."
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DocumentOptions, MSMArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: documents as sentences in their order, and parallel sentences, some held out.
    documents = data.load_documents()
    pairs, evaluator = data.pairs_and_evaluator(args.seed)
    texts = text_and_language_columns(sentences=documents, pairs=pairs)
    if documents is None and (pairs is None or not method.pairs_ratio):
        raise ValueError(
            "there is nothing to train on: "
            "give --documents, or --pairs with a --pairs_ratio above 0"
        )

    # 2. The encoder, whose tokens say where long documents are cut.
    model = encoder.load_encoder(texts, args)
    if documents is not None and method.pack_tokens:
        documents = pack_documents(documents, model.tokenizer, max_tokens=method.pack_tokens)

    # 3. A loss for each kind of batch: masked sentences, masked words, translations.
    datasets: dict[str, Dataset] = {}
    losses: dict[str, nn.Module] = {}
    if documents is not None:
        words = masked_words_loss(model, texts, run, encoder, method)
        datasets["msm"] = documents
        losses["msm"] = masked_sentences_loss(model, words if method.sum_mlm else None, run, method)
        if words is not None and not method.sum_mlm:
            datasets["mlm"] = documents
            losses["mlm"] = words
    if pairs is not None and method.pairs_ratio:
        datasets["pairs"] = pairs
        losses["pairs"] = translations_loss(model, run, method)

    # 4. Train, measure and save.
    args.keep_best_checkpoint(PAIRS_SCORE if evaluator else None)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, evaluator=evaluator)
    entries = data_entries(sentences=documents, pairs=pairs)
    tag = "pairs" if documents is None else "msm"
    return run.train_and_save(trainer, entries, evaluators=[evaluator], tag=tag)


def masked_words_loss(
    model: SentenceTransformer,
    texts: TextColumns,
    run: Run,
    encoder: EncoderArguments,
    method: MSMArguments,
) -> MaskedLMLoss | None:
    """The loss of masked words, which MSM adds to its own, or which has batches of its own.

    A batch of sentences has as much text as one of blocks.
    """
    if method.sum_mlm:
        return encoder.masked_words_loss(model, texts, run.args)
    if not method.mlm_ratio:
        return None
    batches = {
        "batch_scale": method.block_sentences,
        "language_smoothing": method.language_smoothing,
    }
    options = run.loss_arguments("mlm", ratio=method.mlm_ratio, batches=batches)
    return encoder.masked_words_loss(model, texts, run.args, **options)


def masked_sentences_loss(
    model: SentenceTransformer, words: MaskedLMLoss | None, run: Run, method: MSMArguments
) -> MSMLoss:
    """Each sentence of a block is to be predicted from the others."""
    batches = {
        "block_size": method.block_sentences,
        "language_smoothing": method.language_smoothing,
    }
    options = run.loss_arguments(
        "msm",
        num_negatives=method.negatives or None,
        mini_batch_size=128,
        document_encoder={"max_sentences": method.block_sentences},
        mlm=words,
        batches=batches,
    )
    return MSMLoss(model, **options)


def translations_loss(
    model: SentenceTransformer, run: Run, method: MSMArguments
) -> SemanticContrastiveLoss:
    """Each sentence is to find its translation; a batch has as much text as one of blocks."""
    batches = {
        "batch_scale": method.block_sentences / 2,
        "language_smoothing": method.language_smoothing,
    }
    options = run.loss_arguments(
        "pairs", temperature=0.05, ratio=method.pairs_ratio, batches=batches
    )
    return SemanticContrastiveLoss(model, **options)


if __name__ == "__main__":
    run_script(main)
