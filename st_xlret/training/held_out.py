"""The held-out scores of a run: before training, as it goes, and after."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

logger = logging.getLogger(__name__)

# The scores that tell whether a run was worth it; evaluators return others beside them.
_MAIN_SCORES = ("accuracy", "mrr@10")


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


def held_out_scores(trainer: SentenceTransformerTrainer) -> dict[str, float]:
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
