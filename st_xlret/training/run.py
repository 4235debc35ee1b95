"""A training script around its Trainer: checks before it, resume, and what a finished run leaves behind."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import set_seed

from st_xlret.evaluation.reporting.plots import plot_training
from st_xlret.files import check_output_directory, save_model_atomically, write_json_atomically
from st_xlret.hub.model_card import set_card_data
from st_xlret.hub.push import check_push, plan_push, push_to_hub
from st_xlret.options import per_device_options
from st_xlret.precision import avoid_cudnn_attention
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
from st_xlret.training.held_out import held_out_scores
from st_xlret.training.layers import training_layers
from st_xlret.training.lock import lock_output, unlock_output
from st_xlret.training.memory_callback import GiveBackMemoryCallback
from st_xlret.training.merging import move_back, trainable_weights
from st_xlret.training.monitor_callback import not_finite, show_losses_to_trackers
from st_xlret.training.trainable import merge_adapters

logger = logging.getLogger(__name__)

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
    "license",
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
        *groups: The script's other options. A resumed run must have the same ones; the number of processes may differ,
            if the batch of all of them stays as large.

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
    run.take_over(args)
    _check_keep_trained(args, *groups)
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
    run.options = recorded_options(args, *groups)
    set_seed(args.seed)
    avoid_cudnn_attention()
    logger.info("computing in %s on %s", "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32", args.device)


def _check_keep_trained(args: SentenceTransformerTrainingArguments, *groups: Any) -> None:
    share = getattr(args, "keep_trained", 1.0)
    for group in groups if share < 1 else ():
        if getattr(group, "from_scratch", None):
            raise ValueError(
                f"--keep_trained {share} goes back to the weights of --model: --from_scratch has none to keep"
            )
        if getattr(group, "lora_rank", None):
            raise ValueError(f"--keep_trained {share} and --lora_rank exclude each other: leave one of them out")


def recorded_options(args: SentenceTransformerTrainingArguments, *groups: Any) -> dict[str, Any]:
    """What a run is made of: its options, but for those that do not change what is learned.

    Batch sizes are those of all processes together, so that a run can be resumed on another number of them.
    """
    options = {name: value for group in groups for name, value in vars(group).items()}
    options |= {n: value for n, value in args.to_dict().items() if not (n in _NAMES or n.startswith(_PREFIXES))}
    for name in [name for group in (*groups, args) for name in per_device_options(type(group))]:
        value = options.pop(name, None)
        if value is not None:
            options[f"{name}, all processes together,"] = value * args.world_size
    return json.loads(json.dumps(options, default=str))


def train(trainer: SentenceTransformerTrainer, run: RunArguments) -> dict[str, Any]:
    """Train, from the last complete checkpoint on if asked to; say how to continue where it stops early.

    With `--keep_trained` below 1, the weights then go part of the way back to those before training.

    Returns:
        Seconds, optimizer steps and, with an evaluator, the scores before training ("held_out_before"), for
        `results.json`.

    Raises:
        SystemExit: If the run stops early (interrupted, on a full disk, on a loss or weights that are not finite), or
            is resumed with other options or data. The message says which checkpoint is complete.
        ValueError: If `--dropout` is given and the encoder has no layers that drop out.
    """
    with training_layers(trainer.model, trainer.args):
        return _train(trainer, run)


def _train(trainer: SentenceTransformerTrainer, run: RunArguments) -> dict[str, Any]:
    folder = str(trainer.args.output_dir)
    record = {"options": run.options, "data": fingerprint(trainer.train_dataset)}
    trainer.add_callback(ManifestCallback(record))
    trainer.add_callback(GiveBackMemoryCallback())
    show_losses_to_trackers(trainer)
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
    share = getattr(trainer.args, "keep_trained", 1.0)
    original = trainable_weights(trainer.model) if share < 1 else {}
    before = held_out_scores(trainer)
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
    move_back(trainer.model, original, share)
    results: dict[str, Any] = {
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
    }
    return results | ({"held_out_before": before} if before else {})


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
