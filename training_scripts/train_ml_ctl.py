r"""Align an encoder by parallel sentences and the words in them (ML-CTL with CZ-NCE).

The paper's setting, from a checkpoint, on one or several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ml_ctl.py --model bert-base-multilingual-cased \
        --moses UNv1.0.en-fr.en UNv1.0.en-es.en --dictionaries en-fr.txt en-es.txt --output runs/ml-ctl \
        --max-seq-length 128 --max-steps 100000

On a CPU core in minutes, from scratch:

    python training_scripts/train_ml_ctl.py --from-scratch mini --pairs pairs/ --dictionaries words/*.tsv.gz \
        --output runs/mini --learning-rate 1e-3 --max-steps 2000

A sample is a pair of sentences with a dictionary word that stands once in each and is no stop word (--stop-words). How
many pairs gave samples, and why the others gave none, is printed before the training. --mode info-snt and CZ-snt are
the paper's comparisons: sentences alone, which need no dictionaries and take --from-scratch static too.

Pairs are JSON lines {"source_language", "target_language", "source", "target"}, Moses or TMX files. Dictionaries
have two columns and are named after their languages: en-fr.txt. Chinese, Japanese and Thai need the extra
st-xlret[words]. Interrupted? The same command with --resume goes on from the last checkpoint and repeats what an
uninterrupted run would have done. The model, plain modules with avg-first-last pooling, is in OUTPUT/model, the curves
in OUTPUT/training.png, the scores in OUTPUT/results.json.
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
from st_xlret.data.pairs.holdout import by_language
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.files import check_output_directory
from st_xlret.hub import PushError, carry_card_data, check_push, set_card_data
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.finish import finish_training
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.ml_ctl_run import (
    MLCTLOptions,
    ParallelArguments,
    build_ml_ctl_trainer,
    find_words,
    prepare_encoder,
)
from st_xlret.training.run_arguments import HelpFormat, RunArguments
from st_xlret.training.running import train

logger = logging.getLogger("train_ml_ctl")


@dataclass
class MLCTLRunArguments(RunArguments):
    """Where a run writes, how long it trains and with what; the paper's numbers where it says."""

    batch_size: int = field(default=64, metadata={"help": "Samples per device and step."})
    learning_rate: float = field(
        default=2e-6, metadata={"help": "Peak learning rate. 2e-6 is the paper's for mBERT, 1e-3 suits mini."}
    )
    weight_decay: float = field(default=0.0, metadata={"help": "Weight decay; 0 is Adam, the paper's optimizer."})


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns what results.json holds."""
    parser = HfArgumentParser(
        [EncoderArguments, ParallelArguments, MLCTLOptions, MLCTLRunArguments],
        description=__doc__,
        formatter_class=HelpFormat,
    )
    encoder, data, options, run = parser.parse_args_into_dataclasses(arguments)
    run.refuse_foreign_checkpoints()
    check_output_directory(Path(run.output) / "model", overwrite=run.overwrite)
    if run.push_to_hub:
        check_push(run.push_to_hub)
    set_seed(run.seed)

    # What is wrong with the dictionaries shows before anything that takes long.
    dictionaries = data.load_dictionaries() if options.needs_words else []
    stop_words = data.load_stop_words(dictionaries) if options.needs_words else None
    pairs = data.load_pairs()
    evaluator = None
    if data.evaluation_pairs:
        pairs, held_out = hold_out_pairs(pairs, data.evaluation_pairs, seed=run.seed)
        if len(held_out):
            evaluator = TatoebaEvaluator(by_language(held_out), name="pairs", language_metrics=False)
    texts = [(pairs, side, f"{side}_language") for side in ("source", "target")]
    built = encoder.build(
        texts,
        tokenizer_folder=Path(run.output) / "tokenizer",
        keep_tokenizer=run.resume or not run.overwrite,
        seed=run.seed,
    )
    model = prepare_encoder(built, options)
    carry_card_data(built, model)
    languages = sorted({code for dataset, _, column in texts for code in dataset.unique(column)})
    set_card_data(model, languages=languages, tags=["ml-ctl"])
    samples, report = pairs, None
    if options.needs_words:
        samples, report = find_words(pairs, dictionaries, model, options, run.seed, stop_words)
        logger.info("%s", report)

    args = run.to_host(metric="eval_pairs_average_accuracy" if evaluator else None)
    trainer = build_ml_ctl_trainer(model, samples, options, args, evaluator=evaluator)
    if run.lazy_adam:
        use_lazy_adam(trainer)
    started = time.perf_counter()
    train(trainer, run)
    results: dict[str, Any] = {
        "command": shlex.join(["python", "training_scripts/train_ml_ctl.py", *(arguments or sys.argv[1:])]),
        "mode": options.mode,
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
        "languages": languages,
        "pairs": len(pairs),
        "word_samples": None if report is None else {k: asdict(v) for k, v in report.languages.items()},
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
    except (ImportError, ValueError, OSError, PushError) as error:
        sys.exit(f"error: {error}")
