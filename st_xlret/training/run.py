"""A training script around its Trainer: checks before it, resume, and what a finished run leaves behind."""

from __future__ import annotations

import json
import logging
import os
import random
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import set_seed

from st_xlret.evaluation.reporting.plots import plot_training
from st_xlret.files import check_output_directory, save_model_atomically, write_json_atomically
from st_xlret.hub.model_card import set_card_data
from st_xlret.hub.push import PushError, check_push, plan_push, push_to_hub
from st_xlret.training.arguments import RunArguments
from st_xlret.training.checkpoints import (
    BestCheckpointCallback,
    ManifestCallback,
    differences,
    fault_of,
    fingerprint,
    last_complete_checkpoint,
    remove_checkpoints,
    remove_unfinished_checkpoint,
    remove_unfinished_checkpoints,
    restore_finished_run,
)
from st_xlret.training.lock import lock_output, unlock_output
from st_xlret.training.monitor_callback import not_finite
from st_xlret.training.trainable import merge_adapters

logger = logging.getLogger(__name__)

# The scores that tell whether a run was worth it; evaluators return others beside them.
_MAIN_SCORES = ("accuracy", "mrr@10")

# Options that a resumed run may change: they do not change what is learned.
_PREFIXES = (
    "log",
    "multi_dataset",
    "save_",
    "eval_",
    "hub_",
    "push_",
    "report_",
    "resume_",
    "dataloader_",
    "trackio_",
    "ddp_",
)
_DATA_OPTIONS = ("documents", "pairs", "retrieval", "dictionaries", "queries")
"""Options that name training data, for the card."""

_NAMES = (
    "output_dir",
    "run_name",
    "project",
    "disable_tqdm",
    "local_rank",
    "batch_sampler",
    "multi_dataset_batch_sampler",
)


def start(args: SentenceTransformerTrainingArguments, run: RunArguments, *groups: Any) -> None:
    """Check, before any work, that the result of a run can be saved and published; lock the folder, set the seed.

    Args:
        args: The host's training arguments. With `push_to_hub` the finished model is pushed by `finish`; the Trainer
            itself pushes nothing, so it is switched off here. A token in them is kept out of everything that is saved.
        run: Whether to resume or to overwrite.
        *groups: The script's other options. A resumed run must have the same ones.

    Raises:
        FileExistsError: If the output folder holds a model or checkpoints, and `run` says neither; or if another
            process trains in it.
        OSError: If the folder cannot be written to.
        PushError: If the model could not be pushed.
        SystemExit: If the run to resume is finished already.
        ValueError: If torchrun has started several processes and the host uses one.
    """
    output = Path(str(args.output_dir))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes != args.world_size:
        raise ValueError(
            f"{processes} processes were started and the Trainer uses {args.world_size}, so that each would train on "
            "its own in the same folder; without GPUs, add --use_cpu"
        )
    if args.process_index == 0:
        lock_output(output)
    if not (run.resume or run.overwrite) and any(output.glob("checkpoint-*")):
        raise FileExistsError(
            f"{output} holds checkpoints of an earlier run; use --resume to continue from the last one, "
            "--overwrite to delete them and start anew, or give another --output_dir"
        )
    if run.resume and not run.overwrite and (output / "results.json").is_file():
        print(f"the run in {output} is finished: there is nothing to resume; --overwrite starts it anew")
        raise SystemExit(0)
    check_output_directory(output / "model", overwrite=run.overwrite, resume=run.resume)
    run.hub_token, args.hub_token = args.hub_token, None
    if args.push_to_hub:
        args.hub_model_id = args.hub_model_id or output.resolve().name
        check_push(args.hub_model_id, run.hub_token, dry_run=run.push_dry_run)
        args.push_to_hub = False
    else:
        args.hub_model_id = None
    own = {name: value for group in groups for name, value in vars(group).items()}
    host = {name: value for name, value in args.to_dict().items() if not (name in _NAMES or name.startswith(_PREFIXES))}
    run.options = json.loads(json.dumps(own | host, default=str))
    set_seed(args.seed)
    logger.info("computing in %s on %s", "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32", args.device)


def keep_best(args: SentenceTransformerTrainingArguments, metric: str | None) -> SentenceTransformerTrainingArguments:
    """Evaluate the run as it goes, and load its best checkpoint at the end.

    Without `eval_strategy` and `eval_steps`, the model is evaluated at every checkpoint. A best checkpoint can be
    chosen where every checkpoint is evaluated: `save_steps` is a multiple of `eval_steps`.

    Args:
        args: The host's training arguments, changed in place.
        metric: The evaluator's metric, such as "eval_pairs_average_accuracy"; None without an evaluator.

    Returns:
        The same arguments.
    """
    saves = args.save_strategy != "no"
    if metric is None:
        args.eval_strategy = "no"  # type: ignore[assignment]
    elif args.eval_strategy == "no":
        args.eval_strategy = args.save_strategy if saves else "steps"  # type: ignore[assignment]
        args.eval_steps = args.eval_steps or args.save_steps
    evaluated = args.eval_strategy == args.save_strategy and (
        args.eval_strategy != "steps" or (args.save_steps / (args.eval_steps or 1)).is_integer()
    )
    args.load_best_model_at_end = metric is not None and saves and evaluated
    args.metric_for_best_model = metric
    args.greater_is_better = True
    # With 1, the host deletes the previous checkpoint before the new one is complete.
    args.save_total_limit = max(2, (args.save_total_limit or 2) + args.load_best_model_at_end)
    return args


def train(trainer: SentenceTransformerTrainer, run: RunArguments) -> dict[str, Any]:
    """Train, from the last complete checkpoint on if asked to; say how to continue where it stops early.

    Returns:
        Seconds, optimizer steps and, with an evaluator, the scores before training ("held_out_before"), for
        `results.json`.

    Raises:
        SystemExit: If the run stops early (interrupted, on a full disk, on a loss or weights that are not finite), or
            is resumed with other options or data. The message says which checkpoint is complete.
    """
    folder = str(trainer.args.output_dir)
    record = {"options": run.options, "data": fingerprint(trainer.train_dataset)}
    trainer.add_callback(ManifestCallback(record))
    checkpoint = None
    if run.resume or trainer.args.resume_from_checkpoint:
        checkpoint = _checkpoint_to_resume(trainer.args, run, record)
        if trainer.is_world_process_zero():
            remove_unfinished_checkpoints(folder)
        if checkpoint:
            trainer.add_callback(BestCheckpointCallback(checkpoint))
        logger.info("continuing from %s", checkpoint or "the start: there is no complete checkpoint")
    elif trainer.is_world_process_zero():
        remove_checkpoints(folder)
    before = _held_out_scores(trainer)
    started = time.perf_counter()
    if not (checkpoint and restore_finished_run(trainer, checkpoint)):
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except (Exception, KeyboardInterrupt) as error:
            step, reason = trainer.state.global_step, str(error) or type(error).__name__
            # A full disk shows itself as OSError, SafetensorError or RuntimeError, as the file is.
            if trainer.is_world_process_zero() and remove_unfinished_checkpoint(folder, step):
                reason = f"its checkpoint could not be written: is the disk full? {reason}"
            elif not isinstance(error, OSError | FloatingPointError | KeyboardInterrupt):
                raise
            raise SystemExit(f"stopped at step {step}: {reason}\n{how_to_continue(folder)}") from error
    results: dict[str, Any] = {
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
    }
    return results | ({"held_out_before": before} if before else {})


def _held_out_scores(trainer: SentenceTransformerTrainer) -> dict[str, float]:
    """The scores of the Trainer's evaluator, without a trace in the random state, so that training is the same."""
    if trainer.evaluator is None or not trainer.is_world_process_zero():
        return {}
    python, numpy_state = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    mode = trainer.model.training
    try:
        with torch.random.fork_rng(devices=devices):
            scores: Any = trainer.evaluator(trainer.model, epoch=0, steps=0)
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
        trainer.model.train(mode)
    return {name: float(value) for name, value in scores.items() if isinstance(value, int | float)}


def compare(results: dict[str, Any], after: Mapping[str, float]) -> None:
    """Show the held-out scores before and after training, and warn of each main score that training made worse.

    Args:
        results: What `train` returned, with the scores before training.
        after: Score by name. The names that `results` has a score for are compared.

    Example:
        >>> compare({"held_out_before": {"accuracy": 0.5}}, {"accuracy": 0.75})
        held-out accuracy: 0.5000 before training, 0.7500 after
    """
    before = results.get("held_out_before", {})
    for name in [name for name in after if name in before and name.endswith(_MAIN_SCORES)]:
        print(f"held-out {name}: {before[name]:.4f} before training, {after[name]:.4f} after")
        if after[name] < before[name]:
            logger.warning("training made the held-out %s worse; a lower learning rate or fewer steps may help", name)


def _checkpoint_to_resume(
    args: SentenceTransformerTrainingArguments, run: RunArguments, record: dict[str, Any]
) -> Path | None:
    """The checkpoint to continue from, known to be complete and of this run."""
    if args.resume_from_checkpoint:
        checkpoint = Path(args.resume_from_checkpoint)
        if fault := fault_of(checkpoint):
            raise SystemExit(f"cannot resume: {fault}")
    else:
        found = last_complete_checkpoint(str(args.output_dir), read_files=True)
        if found is None:
            return None
        checkpoint = found
    changed = differences(checkpoint, record)
    if changed and not run.resume_anyway:
        listed = "\n".join(f"  {line}" for line in changed)
        raise SystemExit(
            f"{checkpoint} is of a run with other options or data:\n{listed}\ngive the same ones, or --resume_anyway "
            "to continue all the same (the learning rate and its schedule stay those of the checkpoint)"
        )
    return checkpoint


def finish(
    model: SentenceTransformer, trainer: SentenceTransformerTrainer, run: RunArguments, results: dict[str, Any]
) -> None:
    """Save the model, `results.json` and the curves of a run, push the model if asked to, show how to use it.

    Adapters (`--lora_rank`) are merged into the model first, so that it is a plain one.

    Only the first process of a distributed run does anything.

    Raises:
        SystemExit: If the model cannot be written, as on a full disk. The message says which checkpoint is complete.
    """
    if not trainer.is_world_process_zero():
        return
    output = Path(str(trainer.args.output_dir))
    merge_adapters(model)
    set_card_data(model, license=run.license, data={use: run.options.get(use) or [] for use in _DATA_OPTIONS})
    if broken := not_finite(model):
        raise SystemExit(
            f"the model is not saved: {broken} holds values that are not finite\n{how_to_continue(output)}"
        )
    try:
        path = save_model_atomically(model, output / "model", overwrite=run.overwrite or run.resume)
    except OSError as error:
        raise SystemExit(f"the training is done, but: {error}\n{how_to_continue(output)}") from error
    try:
        write_json_atomically(output / "results.json", results)
    except OSError as error:
        shown = json.dumps(results, default=str)
        raise SystemExit(f"the model is saved in {path}, but: {error}\nthe results are: {shown}") from error
    try:
        plot_training(trainer.state.log_history, output / "training.png")
    except Exception as error:  # a picture does not decide over a run
        logger.warning("the curves are not drawn: %s", error)
    if trainer.args.hub_model_id and run.push_dry_run:
        print(plan_push(path, trainer.args.hub_model_id))
    elif trainer.args.hub_model_id:
        address = push_to_hub(
            path, trainer.args.hub_model_id, private=trainer.args.hub_private_repo, token=run.hub_token
        )
        print(f"pushed to {address}")
    unlock_output(output)
    kind = "static" if isinstance(model[0], StaticEmbedding) else "Transformer"
    print(f"\nThe {kind} model is in {path}. Use it with Sentence Transformers alone:\n")
    print(f'    from sentence_transformers import SentenceTransformer\n    model = SentenceTransformer("{path}")')
    print('    model.similarity(model.encode(["good morning"]), model.encode(["bonjour"]))\n')


def how_to_continue(folder: str | Path) -> str:
    """How to continue a run that stopped."""
    kept = last_complete_checkpoint(folder)
    if kept is None:
        return "there is no checkpoint to continue from"
    return f"{kept} is complete: the same command with --resume continues from it"


def command(script: str, arguments: Sequence[str] | None) -> str:
    """The command line of a run, for `results.json` and the model card, without access tokens.

    Example:
        >>> command("train.py", ["--hub_token", "hf_abc", "--hub_token=hf_abc", "--seed", "1"])
        'python train.py --hub_token *** --hub_token=*** --seed 1'
    """
    given = ["python", *script.split(), *(sys.argv[1:] if arguments is None else arguments)]
    shown = []
    for before, word in zip(["", *given], given, strict=False):
        option, equals, _ = word.partition("=")
        if option.startswith("--") and "token" in option and equals and "tokenizer" not in option:
            word = f"{option}=***"
        elif before in ("--hub_token", "--hub-token") or word.startswith("hf_"):
            word = "***"
        shown.append(word if set(word) == {"*"} or word.endswith("=***") else shlex.quote(word))
    return " ".join(shown)


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's `main`; errors in its input end it with one line instead of a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ImportError, ValueError, OSError, PushError) as error:
        sys.exit(f"error: {error}")
