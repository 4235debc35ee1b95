r"""Train a cross-lingual encoder by contrastive context prediction (CCP): documents in, a Sentence Transformer out.

Sentences of one document that stand near each other are positives, sentences of the same language from elsewhere are
negatives (Wu et al., IJCAI 2022). The paper's setting, from a checkpoint, on several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ccp.py training_scripts/recipes/ccp.yaml \
        --model xlm-roberta-base --documents documents/*.jsonl.gz --output_dir runs/ccp

Documents are JSON lines {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}. Parallel sentences
(--pairs; JSON lines {"source_language", "target_language", "source", "target"}, Moses and more) are trained on
beside them, and some are held out to evaluate the run. Interrupted? The same command with --resume repeats what the
uninterrupted run would have done. The model is in OUTPUT_DIR/model, the scores in OUTPUT_DIR/results.json, the curves
in OUTPUT_DIR/training.png.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from st_xlret import CCPLoss, CrossLingualTrainer, SemanticContrastiveLoss
from st_xlret.options import option, parse
from st_xlret.training.data import Documents, Pairs
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import Run, TrainingArguments, keep_best, loss_options, run_script


@dataclass
class DataArguments(Documents, Pairs):
    """Documents, parallel sentences, or both."""


@dataclass
class CCPArguments:
    """The method. The defaults are the paper's where it states them; recipes/ccp.yaml has its pooling and batch."""

    _argument_group_name = "method"

    window_size: int = option(
        5,
        "Largest distance between two sentences of a document that are positives. The paper does not state that of "
        "its main run; its ablation goes up to windows of 5 sentences, a distance of 4.",
    )
    temperature: float = option(0.1, "Temperature of CCP.")
    bank_size: int = option(32768, "Keys of earlier batches that serve as negatives too. 0 means no memory bank.")
    ccp_ratio: float = option(1.0, "Relative frequency of batches of windows. 0 leaves CCP out.")
    mlm_ratio: float = option(
        1.0, "Relative frequency of batches of masked language modelling. A static encoder has none."
    )
    pairs_ratio: float = option(
        1.0, "Relative frequency of batches of parallel sentences. The paper has none; 0 only evaluates."
    )
    language_smoothing: float = option(
        0.7,
        "Languages are sampled in proportion to their size raised to this power. The paper does not state its own.",
    )
    loss_options: str = loss_options("ccp, mlm, pairs", '{"ccp": {"head": {"normalization": "batch"}}}')


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DataArguments, CCPArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: documents as sentences in their order, and parallel sentences, some of which are held out.
    documents, (pairs, evaluator) = data.load_documents(), data.load_pairs(args.seed)
    texts = [] if documents is None else [(documents, "sentence", "language")]
    texts += [] if pairs is None else [(pairs, side, f"{side}_language") for side in ("source", "target")]
    if not texts:
        raise ValueError("nothing to train on: give --documents or --pairs")

    # 2. The encoder, and a loss for each kind of batch: context prediction, masked words, translations.
    model = encoder.load(texts, args)
    datasets, losses = {}, {}
    if documents is not None and method.ccp_ratio:
        datasets["ccp"] = documents
        losses["ccp"] = CCPLoss(
            model,
            **run.loss_options(
                "ccp",
                temperature=method.temperature,
                bank_size=method.bank_size,
                batches={"window_size": method.window_size, "language_smoothing": method.language_smoothing},
                ratio=method.ccp_ratio,
            ),
        )
    smoothing = {"language_smoothing": method.language_smoothing}
    if documents is not None and method.mlm_ratio:
        options = run.loss_options("mlm", batches=smoothing, ratio=method.mlm_ratio)
        if (words := encoder.masked_words(model, texts, args, **options)) is not None:
            datasets["mlm"], losses["mlm"] = documents, words
    if pairs is not None and method.pairs_ratio:
        datasets["pairs"] = pairs
        losses["pairs"] = SemanticContrastiveLoss(
            model,
            **run.loss_options("pairs", temperature=0.05, batches=smoothing, ratio=method.pairs_ratio),
        )
    if not datasets:
        raise ValueError("nothing to train on: give a ratio above 0 to a kind of batch that the data and encoder allow")

    # 3. Train, measure and save.
    keep_best(args, "eval_pairs_average_accuracy" if evaluator else None)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, evaluator=evaluator)
    about = {
        "languages": sorted({code for dataset, _, column in texts for code in dataset.unique(column)}),
        "sentences": 0 if documents is None else len(documents),
        "pairs": 0 if pairs is None else len(pairs),
    }
    return run.train_and_save(trainer, about, evaluators=[evaluator], tag="ccp")


if __name__ == "__main__":
    run_script(main)
