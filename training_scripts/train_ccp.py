r"""Train a cross-lingual encoder by contrastive context prediction (CCP): documents in, a Sentence Transformer out.

Sentences of one document that stand near each other are positives, sentences of the same language from elsewhere are
negatives (Wu et al., IJCAI 2022). The paper's setting, from a checkpoint, on several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ccp.py training_scripts/recipes/ccp.yaml \
        --model xlm-roberta-base --documents documents/*.jsonl.gz --output_dir runs/ccp
"""

from dataclasses import dataclass
from typing import Any

from st_xlret import CCPLoss, CrossLingualTrainer, SemanticContrastiveLoss
from st_xlret.options import option, parse
from st_xlret.training.data import DocumentOptions, data_facts, text_and_language_columns
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import (
    Run,
    ScriptArguments,
    keep_best_checkpoint,
    loss_options_field,
    run_script,
)


@dataclass
class CCPArguments:
    """The method. The defaults are the paper's where it states them; recipes/ccp.yaml has its pooling and batch."""

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


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DocumentOptions, CCPArguments, ScriptArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: documents as sentences in their order, and parallel sentences, some of which are held out.
    documents, (pairs, evaluator) = data.load_documents(), data.load_pairs(args.seed)
    texts = text_and_language_columns(sentences=documents, pairs=pairs)

    # 2. The encoder, and a loss for each kind of batch: context prediction, masked words, translations.
    model = encoder.load_encoder(texts, args)
    datasets, losses, smoothing = {}, {}, {"language_smoothing": method.language_smoothing}
    if documents is not None and method.ccp_ratio:
        given = {
            "temperature": method.temperature,
            "bank_size": method.bank_size,
            "ratio": method.ccp_ratio,
        }
        batches = {"window_size": method.window_size, **smoothing}
        datasets["ccp"] = documents
        losses["ccp"] = CCPLoss(model, **run.loss_arguments("ccp", batches=batches, **given))
    if documents is not None and method.mlm_ratio:
        given = run.loss_arguments("mlm", batches=smoothing, ratio=method.mlm_ratio)
        if (words := encoder.masked_words_loss(model, texts, args, **given)) is not None:
            datasets["mlm"], losses["mlm"] = documents, words
    if pairs is not None and method.pairs_ratio:
        given = run.loss_arguments(
            "pairs", temperature=0.05, batches=smoothing, ratio=method.pairs_ratio
        )
        datasets["pairs"], losses["pairs"] = pairs, SemanticContrastiveLoss(model, **given)
    if not datasets:
        raise ValueError("nothing to train on: give --documents or --pairs, and a ratio above 0")

    # 3. Train, measure and save.
    keep_best_checkpoint(args, "eval_pairs_average_accuracy" if evaluator else None)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, evaluator=evaluator)
    return run.train_and_save(
        trainer, data_facts(sentences=documents, pairs=pairs), evaluators=[evaluator], tag="ccp"
    )


if __name__ == "__main__":
    run_script(main)
