"""Running a trainer from a script: go on from checkpoints, stop without losing anything, say how to go on."""

from __future__ import annotations

import logging
from pathlib import Path

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_xlret.training.run_arguments import (
    RunArguments,
    last_complete_checkpoint,
    remove_checkpoints,
    remove_unfinished_checkpoint,
    restore_finished_run,
)

logger = logging.getLogger(__name__)


def train(trainer: SentenceTransformerTrainer, run: RunArguments) -> None:
    """Train, from the last complete checkpoint on if asked to; say how to go on where it stops early."""
    checkpoint = last_complete_checkpoint(run.checkpoints) if run.resume else None
    if run.resume:
        logger.info("going on from %s", checkpoint or "the start: there is no complete checkpoint")
    elif trainer.is_world_process_zero():
        remove_checkpoints(run.checkpoints)
    if checkpoint and restore_finished_run(trainer, checkpoint):
        return
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except (Exception, KeyboardInterrupt) as error:
        step, reason = trainer.state.global_step, str(error) or type(error).__name__
        # A full disk shows itself as OSError, SafetensorError or RuntimeError, as the file is.
        if trainer.is_world_process_zero() and remove_unfinished_checkpoint(run.checkpoints, step):
            reason = f"its checkpoint could not be written: is the disk full? {reason}"
        elif not isinstance(error, OSError | FloatingPointError | KeyboardInterrupt):
            raise
        raise SystemExit(f"stopped at step {step}: {reason}\n{way_on(run)}") from error


def way_on(run: RunArguments) -> str:
    """How to go on after a run that stopped."""
    kept = last_complete_checkpoint(run.checkpoints)
    if kept is None:
        return "there is no checkpoint to go on from"
    return f"{kept} is whole: the same command with --resume goes on from it"


def show_example(model: SentenceTransformer, path: Path) -> None:
    """Say where the model is and how to use it."""
    kind = "static" if isinstance(model[0], StaticEmbedding) else "Transformer"
    print(f"\nThe {kind} model is in {path}. Use it with Sentence Transformers alone:\n")
    print(f'    from sentence_transformers import SentenceTransformer\n    model = SentenceTransformer("{path}")')
    print('    model.similarity(model.encode(["good morning"]), model.encode(["bonjour"]))\n')
