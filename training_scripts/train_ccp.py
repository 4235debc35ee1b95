r"""Train a cross-lingual encoder by contrastive context prediction: documents in, a Sentence Transformer out.

The paper's setting, from a checkpoint, on one or several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ccp.py --model xlm-roberta-base \
        --documents docs/*.jsonl.gz --output runs/ccp --batch-size 32 --max-steps 20000

On two CPU cores in minutes, with some parallel sentences:

    python training_scripts/train_ccp.py --from-scratch static --documents docs/ --pairs pairs/ \
        --output runs/static --batch-size 512 --learning-rate 5e-3 --max-grad-norm 0 --lazy-adam --max-steps 3000

Documents are JSON lines {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}, pairs
are {"source_language", "target_language", "source", "target"}; both may be gzipped, or folders of such files.
Interrupted? The same command with --resume goes on from the last checkpoint and repeats what an uninterrupted
run would have done. The model is in OUTPUT/model, the curves in OUTPUT/training.png, the scores in
OUTPUT/results.json.
"""

from __future__ import annotations

import logging
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, set_seed

from st_xlret.data import (
    hold_out_pairs,
)
from st_xlret.data.pairs.holdout import by_language
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.files import check_output_directory
from st_xlret.hub import PushError, check_push, set_card_data
from st_xlret.training import CCPOptions, build_ccp_trainer
from st_xlret.training.data_arguments import DataArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.finish import finish_training
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.run_arguments import HelpFormat, RunArguments
from st_xlret.training.running import train

logger = logging.getLogger("train_ccp")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns what results.json holds."""
    parser = HfArgumentParser(
        [EncoderArguments, DataArguments, CCPOptions, RunArguments],
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
    if documents is None and pairs is None:
        raise ValueError(f"no word list is of the languages {', '.join(data.languages)}")
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
    set_card_data(model, languages=languages, tags=["ccp"])

    args = run.to_host(metric="eval_pairs_average_accuracy" if evaluator else None)
    trainer = build_ccp_trainer(model, documents, pairs, options, args, evaluator=evaluator)
    if run.lazy_adam:
        use_lazy_adam(trainer)
    started = time.perf_counter()
    train(trainer, run)
    results: dict[str, Any] = {
        "command": shlex.join(["python", "training_scripts/train_ccp.py", *(arguments or sys.argv[1:])]),
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
        "languages": languages,
        "sentences": 0 if documents is None else len(documents),
        "pairs": 0 if pairs is None else len(pairs),
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
