r"""Train a cross-lingual encoder as a masked sentence model: documents in, a Sentence Transformer out.

Each sentence of a document is predicted from the others by a small document encoder that all languages share; what
remains is the sentence encoder. The paper's setting, from a checkpoint, on several GPUs (a batch has the documents
that fill 16 x 32 sentences, of which the encoder reads --mini-batch-size at a time):

    torchrun --nproc-per-node 8 training_scripts/train_msm.py --model xlm-roberta-base \
        --documents docs/*.jsonl.gz --output runs/msm

On two CPU cores, from scratch:

    python training_scripts/train_msm.py --from-scratch mini --documents docs/ --output runs/msm-mini \
        --pooling mean --learning-rate 1e-3 --max-steps 2000

Its rivals on the same documents, with as much text in a step: --objective crop, ict, ccp or mlm. The ablations of the
paper: --document-encoder (Table 4), --cross-document-only and --mu (5), --negatives (6), --projection (7),
--document-layers (8).

Documents are JSON lines {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}; parallel
sentences (--pairs) are no part of the paper: they are trained on beside the documents, and some are put aside to choose
the best model by; --pairs-weight 0 only does the latter. Interrupted? The same command with --resume goes on from the
last checkpoint and repeats what an uninterrupted run would have done. The model is in OUTPUT/model, the curves in
OUTPUT/training.png, the scores in OUTPUT/results.json.
"""

from __future__ import annotations

import logging
import shlex
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, set_seed

from st_xlret.data import hold_out_pairs
from st_xlret.data.documents.packing import pack_documents
from st_xlret.data.pairs.holdout import by_language
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.files import check_output_directory
from st_xlret.hub import PushError, check_push, set_card_data
from st_xlret.training.data_arguments import DataArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.finish import finish_training
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.msm_run import MSMOptions, build_msm_trainer, count_tokens
from st_xlret.training.run_arguments import HelpFormat, RunArguments
from st_xlret.training.running import train


@dataclass
class MSMRunArguments(RunArguments):
    """Where a run writes, how long it trains and with what; the paper's numbers where it says."""

    max_steps: int = field(default=200_000, metadata={"help": "Optimizer steps."})
    batch_size: int = field(
        default=16, metadata={"help": "Documents of --block-sentences sentences per device and step."}
    )
    learning_rate: float = field(
        default=4e-5, metadata={"help": "Peak learning rate. 4e-5 suits XLM-R, 1e-3 --from-scratch mini."}
    )
    warmup_ratio: float = field(default=0.05, metadata={"help": "Share of the steps to warm up in: 10k of 200k."})


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns what results.json holds."""
    parser = HfArgumentParser(
        [EncoderArguments, DataArguments, MSMOptions, MSMRunArguments],
        description=__doc__,
        formatter_class=HelpFormat,
    )
    encoder, data, options, run = parser.parse_args_into_dataclasses(arguments)
    run.refuse_foreign_checkpoints()
    check_output_directory(Path(run.output) / "model", overwrite=run.overwrite)
    if run.push_to_hub:
        check_push(run.push_to_hub)
    set_seed(run.seed)

    documents, pairs = data.load_documents(), data.load_pairs()
    evaluator = None
    if pairs is not None and data.evaluation_pairs:
        pairs, held_out = hold_out_pairs(pairs, data.evaluation_pairs, seed=run.seed)
        if len(held_out):
            evaluator = TatoebaEvaluator(by_language(held_out), name="pairs", language_metrics=False)
    texts = [] if documents is None else [(documents, "sentence", "language")]
    if pairs is not None:
        texts += [(pairs, side, f"{side}_language") for side in ("source", "target")]
    model = encoder.build(
        texts,
        tokenizer_folder=Path(run.output) / "tokenizer",
        keep_tokenizer=run.resume or not run.overwrite,
        seed=run.seed,
    )
    languages = sorted({code for dataset, _, column in texts for code in dataset.unique(column)})
    set_card_data(model, languages=languages, tags=[options.objective])
    if documents is not None and options.pack_tokens:
        documents = pack_documents(documents, model.tokenizer, max_tokens=options.pack_tokens)

    args = run.to_host(metric="eval_pairs_average_accuracy" if evaluator else None)
    trainer = build_msm_trainer(model, documents, pairs, options, args, evaluator=evaluator)
    if run.lazy_adam:
        use_lazy_adam(trainer)
    losses: Any = trainer.loss
    tokens = count_tokens(losses)
    started = time.perf_counter()
    train(trainer, run)
    batches: Any = trainer.args.batch_sampler
    blocks = batches.counts
    results: dict[str, Any] = {
        "command": shlex.join(["python", "training_scripts/train_msm.py", *(arguments or sys.argv[1:])]),
        "objective": options.objective,
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
        "tokens": tokens.total(),
        "languages": languages,
        "sentences": 0 if documents is None else len(documents),
        "pairs": 0 if pairs is None else len(pairs),
        "blocks": asdict(blocks) if blocks else None,
    }
    if trainer.is_world_process_zero():
        if evaluator is not None:
            evaluation = evaluator.evaluate(model)
            results["held_out_pairs"] = {"scores": evaluation.scores, "average": evaluation.average}
        finish_training(model, trainer, run, results)
    return results


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ValueError, OSError, PushError) as error:
        sys.exit(f"error: {error}")
