r"""Train a cross-lingual encoder by contrastive context prediction (CCP), on documents.

Sentences of one document that stand near each other are positives, sentences of the same language
from elsewhere are negatives (Wu et al., IJCAI 2022). What is saved is a Sentence Transformer. The
paper's setting, from a checkpoint, on several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ccp.py training_scripts/recipes/ccp.yaml \
        --model xlm-roberta-base --documents documents/*.jsonl.gz --output_dir runs/ccp
"""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

from st_xlret import CCPLoss, CrossLingualTrainer, SemanticContrastiveLoss
from st_xlret.options import option, parse
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.data import PAIRS_SCORE, DocumentOptions
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.loss_options import loss_options_field
from st_xlret.training.run import Run, run_script
from st_xlret.training.texts import data_entries, text_and_language_columns


@dataclass
class CCPArguments:
    """The method.

    The defaults are the paper's where it states them; recipes/ccp.yaml has its pooling and batch.
    """

    _argument_group_name = "method"

    window_size: int = option(
        5, "Largest distance of two sentences that are positives. The paper's ablation: up to 4."
    )
    temperature: float = option(0.1, "Temperature of CCP.")
    bank_size: int = option(
        32768, "Keys of earlier batches that serve as negatives too; 0: no memory bank."
    )
    ccp_ratio: float = option(1.0, "Relative frequency of batches of windows. 0 leaves CCP out.")
    mlm_ratio: float = option(
        1.0, "Relative frequency of batches of masked words. A static encoder has none."
    )
    pairs_ratio: float = option(
        1.0, "Relative frequency of batches of pairs. The paper has none; 0 only evaluates."
    )
    language_smoothing: float = option(
        0.7, "Languages are sampled by size to this power; not stated by the paper."
    )
    loss_options: str = loss_options_field(
        "ccp, mlm, pairs", '{"ccp": {"head": {"normalization": "batch"}}}'
    )


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments; the rate and the steps are for XLM-R."""

    rate_of_trained = 3e-6


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DocumentOptions, CCPArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: documents as sentences in their order, and parallel sentences, some held out.
    documents = data.load_documents()
    pairs, evaluator = data.pairs_and_evaluator(args.seed)
    texts = text_and_language_columns(sentences=documents, pairs=pairs)

    # 2. The encoder.
    model = encoder.load_encoder(texts, args)

    # 3. A loss for each kind of batch: context prediction, masked words, translations.
    datasets: dict[str, Dataset] = {}
    losses: dict[str, nn.Module] = {}
    if documents is not None and method.ccp_ratio:
        datasets["ccp"] = documents
        losses["ccp"] = context_loss(model, run, method)
    if documents is not None and method.mlm_ratio:
        batches = {"language_smoothing": method.language_smoothing}
        options = run.loss_arguments("mlm", batches=batches, ratio=method.mlm_ratio)
        words = encoder.masked_words_loss(model, texts, args, **options)
        if words is not None:
            datasets["mlm"] = documents
            losses["mlm"] = words
    if pairs is not None and method.pairs_ratio:
        datasets["pairs"] = pairs
        losses["pairs"] = translations_loss(model, run, method)
    if not datasets:
        raise ValueError("nothing to train on: give --documents or --pairs, and a ratio above 0")

    # 4. Train, measure and save.
    args.keep_best_checkpoint(PAIRS_SCORE if evaluator else None)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, evaluator=evaluator)
    entries = data_entries(sentences=documents, pairs=pairs)
    return run.train_and_save(trainer, entries, evaluators=[evaluator], tag="ccp")


def context_loss(model: SentenceTransformer, run: Run, method: CCPArguments) -> CCPLoss:
    """Each sentence is to find a neighbour of its document among other sentences."""
    batches = {
        "window_size": method.window_size,
        "language_smoothing": method.language_smoothing,
    }
    options = run.loss_arguments(
        "ccp",
        temperature=method.temperature,
        bank_size=method.bank_size,
        ratio=method.ccp_ratio,
        batches=batches,
    )
    return CCPLoss(model, **options)


def translations_loss(
    model: SentenceTransformer, run: Run, method: CCPArguments
) -> SemanticContrastiveLoss:
    """Each sentence is to find its translation among those of the batch."""
    options = run.loss_arguments(
        "pairs",
        temperature=0.05,
        ratio=method.pairs_ratio,
        batches={"language_smoothing": method.language_smoothing},
    )
    return SemanticContrastiveLoss(model, **options)


if __name__ == "__main__":
    run_script(main)
