r"""Train a cross-lingual encoder by contrastive context prediction (CCP): documents in, a Sentence Transformer out.

Sentences of one document that stand near each other are positives, sentences of the same language from elsewhere are
negatives (Wu et al., IJCAI 2022). The paper's setting, from a checkpoint, on several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ccp.py training_scripts/recipes/ccp.yaml \
        --model xlm-roberta-base --documents documents/*.jsonl.gz --output_dir runs/ccp

On two CPU cores in minutes, a static encoder with some parallel sentences:

    python training_scripts/train_ccp.py training_scripts/recipes/two-cores.yaml \
        --documents documents/ --pairs pairs/ --output_dir runs/static

Documents are JSON lines {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}; parallel
sentences are JSON lines {"source_language", "target_language", "source", "target"}, TMX, Moses and more. Some of them
are held out to evaluate the run. Interrupted? The same command with --resume repeats what the uninterrupted run would
have done. The model is in OUTPUT_DIR/model, the scores in OUTPUT_DIR/results.json, the curves in
OUTPUT_DIR/training.png.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datasets import DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Transformer
from torch import nn

from st_xlret import (
    AsymmetricBNHead,
    CCPLoss,
    CrossLingualBatches,
    CrossLingualDataCollator,
    InterleavedBatches,
    LossMonitorCallback,
    LossStateCallback,
    MaskedLMLoss,
    SemanticContrastiveLoss,
    TokenCountCallback,
)
from st_xlret.hub import set_card_data
from st_xlret.options import option, parse
from st_xlret.training import run as runs
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments, TrainingArguments
from st_xlret.training.encoders import PretrainingEncoderArguments, learns_masked_words
from st_xlret.training.held_out import compare, keep_best
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.script import command, run_script


@dataclass
class CCPArguments:
    """The method. The defaults are the paper's where it states them; it has no parallel sentences.

    recipes/ccp.yaml has its pooling and its batch besides.
    """

    _argument_group_name = "method"

    window_size: int = option(
        5,
        "Largest distance between two sentences of a document that are positives. The paper does not state that of its "
        "main run; its ablation goes up to windows of 5 sentences, a distance of 4.",
        minimum=1,
    )
    temperature: float = option(0.1, "Temperature of CCP.", above=0)
    bank_size: int = option(
        32768, "Keys of earlier batches that serve as negatives too. 0 means no memory bank.", minimum=0, maximum=2**24
    )
    pairs_temperature: float = option(0.05, "Temperature of the loss on parallel sentences.", above=0)
    ccp_ratio: float = option(
        1.0,
        "Relative frequency of batches of windows. With 1, 1 and 1, each kind is a third. 0 leaves CCP out.",
        minimum=0,
    )
    mlm_ratio: float = option(
        1.0, "Relative frequency of batches of masked language modelling. A static encoder has none.", minimum=0
    )
    pairs_ratio: float = option(
        1.0,
        "Relative frequency of batches of parallel sentences (--pairs). The paper has none; 0 only evaluates.",
        minimum=0,
    )
    language_smoothing: float = option(
        0.7,
        "Languages are sampled in proportion to their size raised to this power. 0 samples all alike. The paper "
        "does not state its own.",
        minimum=0,
        maximum=1,
    )


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: CCPArguments) -> dict[str, nn.Module]:
    """One loss for each data set: context prediction with its head and memory bank, masked words, translations."""
    losses: dict[str, nn.Module] = {}
    if "ccp" in datasets:
        head = AsymmetricBNHead(model.get_embedding_dimension())
        losses["ccp"] = CCPLoss(model, head, bank_size=options.bank_size, temperature=options.temperature)
    if "mlm" in datasets:
        losses["mlm"] = MaskedLMLoss(model)
    if "pairs" in datasets:
        losses["pairs"] = SemanticContrastiveLoss(model, temperature=options.pairs_temperature)
    return losses


def build_batches(options: CCPArguments) -> CrossLingualBatches:
    """Windows of one language in a batch; pairs of all languages in one."""
    return CrossLingualBatches(window_size=options.window_size, language_smoothing=options.language_smoothing)


def build_mixture(options: CCPArguments, kinds: list[str]) -> InterleavedBatches:
    """Each batch is of a kind that is drawn at random, as often as its ratio says."""
    ratios = {"ccp": options.ccp_ratio, "mlm": options.mlm_ratio, "pairs": options.pairs_ratio}
    return InterleavedBatches(ratios=[ratios[kind] for kind in kinds])


def main(
    arguments: list[str] | None = None,
    options_class: type[CCPArguments] = CCPArguments,
    build_losses: Callable[..., dict[str, nn.Module]] = build_losses,
    build_batches: Callable[..., CrossLingualBatches] = build_batches,
    build_mixture: Callable[..., InterleavedBatches] = build_mixture,
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
    encoder, data, options, static, run, args = parse(groups, arguments, description=__doc__)
    runs.start(args, run, encoder, data, options, static)

    # 1. Data: documents as sentences in their order, and parallel sentences, some of which are held out.
    documents = data.load_documents()
    pairs, evaluator = data.hold_out_pairs(data.load_pairs(), args.seed)
    if documents is None and pairs is None:
        raise ValueError("nothing to train on: give --documents or --pairs")

    # 2. The encoder.
    texts = [] if documents is None else [(documents, "sentence", "language")]
    texts += [] if pairs is None else [(pairs, side, f"{side}_language") for side in ("source", "target")]
    model = encoder.load(texts, args, run)
    languages = sorted({code for dataset, _, column in texts for code in dataset.unique(column)})
    set_card_data(model, languages=languages, tags=["ccp"])

    # 3. One data set for each kind of batch.
    datasets = DatasetDict()
    if documents is not None and options.ccp_ratio:
        datasets["ccp"] = documents.select_columns(["sentence", "language", "document"])
    if documents is not None and options.mlm_ratio and learns_masked_words(model):
        datasets["mlm"] = documents.select_columns(["sentence", "language"])
    if pairs is not None and options.pairs_ratio:
        datasets["pairs"] = pairs
    if not datasets:
        raise ValueError("nothing to train on: give a ratio above 0 to a kind of batch that the data and encoder allow")

    # 4. A loss for each of them, and the batches: windows of documents, interleaved with the other kinds.
    losses = build_losses(model, datasets, options)
    args.batch_sampler = build_batches(options)
    args.multi_dataset_batch_sampler = build_mixture(options, list(datasets))
    keep_best(args, "eval_pairs_average_accuracy" if evaluator else None)

    # 5. The host's Trainer. The callbacks keep heads and banks across checkpoints and ranks, and watch the losses.
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        evaluator=evaluator,
        data_collator=CrossLingualDataCollator(
            model.preprocess,
            max_length=encoder.batch_length(model),
            token_dropout=0.0 if isinstance(model[0], Transformer) else static.token_dropout,
        ),
        callbacks=[LossStateCallback(losses), LossMonitorCallback(losses), TokenCountCallback(losses)],
    )
    if static.lazy_adam:
        use_lazy_adam(trainer)

    # 6. Train and save.
    results = {
        "command": command("training_scripts/train_ccp.py", arguments),
        **runs.train(trainer, run),
        "tokens": trainer.state.num_input_tokens_seen,
        "languages": languages,
        "sentences": 0 if documents is None else len(documents),
        "pairs": 0 if pairs is None else len(pairs),
    }
    if evaluator is not None and trainer.is_world_process_zero():
        evaluation = evaluator.evaluate(model)
        results["held_out_pairs"] = {"scores": evaluation.scores, "average": evaluation.average}
        compare(results, {"pairs_average_accuracy": evaluation.average["accuracy"]})
    runs.finish(model, trainer, run, results)
    return results


if __name__ == "__main__":
    run_script(main)
