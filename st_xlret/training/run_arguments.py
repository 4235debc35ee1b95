"""Options that every training script shares, and what they mean to the host's Trainer."""

from __future__ import annotations

import json
import shutil
from argparse import Action, ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from transformers.trainer_callback import TrainerState

from st_xlret.training.loss_state_callback import LOSS_STATE_FILE


class HelpFormat(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Help of the scripts: shows defaults, and the text above the options as it is written.

    Where there is no default (None, or an empty list), the option's own text says what is done without it.
    """

    def _get_help_string(self, action: Action) -> str | None:
        return action.help if action.default in (None, [], "") else super()._get_help_string(action)


@dataclass
class RunArguments:
    """Where a run writes, how long it trains and with what."""

    output: str = field(metadata={"help": "Folder for the model, checkpoints, results and plots."})
    max_steps: int = field(default=10000, metadata={"help": "Optimizer steps."})
    batch_size: int = field(default=32, metadata={"help": "Windows, sentences or pairs per device and step."})
    accumulation: int = field(
        default=1,
        metadata={"help": "Batches per optimizer step; negatives are those of one batch and the bank."},
    )
    learning_rate: float = field(
        default=3e-5,
        metadata={"help": "Peak learning rate. 3e-5 suits XLM-R, 5e-4 --from-scratch small, 1e-2 static."},
    )
    warmup_ratio: float = field(default=0.1, metadata={"help": "Share of the steps to warm up in."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Clip gradients to this norm; 0 for no clipping."})
    precision: str = field(
        default="auto",
        metadata={
            "help": "bf16, fp16 or no mixed precision; auto takes bf16 where the GPU has it.",
            "choices": ["auto", "bf16", "fp16", "no"],
        },
    )
    eval_steps: int = field(
        default=500, metadata={"help": "Evaluate every so many steps, where there is an evaluator."}
    )
    save_steps: int = field(default=500, metadata={"help": "Write a checkpoint every so many steps; 0 for none."})
    keep_checkpoints: int = field(default=2, metadata={"help": "Checkpoints to keep beside the best one."})
    logging_steps: int = field(default=50, metadata={"help": "Print the losses every so many steps."})
    seed: int = field(default=0, metadata={"help": "Seed of everything random."})
    workers: int = field(default=0, metadata={"help": "Processes that prepare batches."})
    lazy_adam: bool = field(
        default=False,
        metadata={
            "help": "Static encoder: update only the vectors of the batch's tokens. Faster, and learns more; one "
            "process, --max-grad-norm 0."
        },
    )
    resume: bool = field(
        default=False, metadata={"help": "Go on from the last complete checkpoint in the output folder."}
    )
    overwrite: bool = field(
        default=False,
        metadata={"help": "Replace the model, checkpoints and tokenizer of an earlier run in the output folder."},
    )
    push_to_hub: str | None = field(
        default=None, metadata={"help": "Repository (name/model) to push the finished model to."}
    )
    training_arguments: str = field(
        default="{}",
        metadata={"help": 'Further SentenceTransformerTrainingArguments as JSON, such as {"optim": "adafactor"}.'},
    )

    def __post_init__(self) -> None:
        for name in (
            "max_steps",
            "batch_size",
            "accumulation",
            "eval_steps",
            "keep_checkpoints",
            "logging_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        self.further_arguments()

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return Path(self.output) / "checkpoints"

    def to_host(self, *, metric: str | None = None, best_model: bool = True) -> SentenceTransformerTrainingArguments:
        """The host's training arguments.

        Args:
            metric: What the evaluator's best model is chosen by; None without an evaluator.
            best_model: Load the best checkpoint at the end; needs checkpoints at the evaluation steps.

        Raises:
            ValueError: If ``training_arguments`` is no JSON object of the host's arguments.
        """
        choose_best = metric is not None and bool(self.save_steps) and best_model
        arguments: dict[str, Any] = {
            "output_dir": str(self.checkpoints),
            "max_steps": self.max_steps,
            "per_device_train_batch_size": self.batch_size,
            "gradient_accumulation_steps": self.accumulation,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": "linear",
            "warmup_steps": int(self.warmup_ratio * self.max_steps),
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.max_grad_norm,
            "eval_strategy": "no" if metric is None else "steps",
            "eval_steps": self.eval_steps,
            "save_strategy": "steps" if self.save_steps else "no",
            # The best checkpoint can only be one that was evaluated.
            "save_steps": self.eval_steps if choose_best else self.save_steps or self.max_steps,
            # Never 1: the host deletes the checkpoint before the new one's loss state is written.
            "save_total_limit": max(2, self.keep_checkpoints + choose_best),
            "load_best_model_at_end": choose_best,
            "metric_for_best_model": metric,
            "greater_is_better": True,
            "logging_steps": self.logging_steps,
            "seed": self.seed,
            "dataloader_num_workers": self.workers,
            "report_to": "none",
            "save_on_each_node": False,
            **mixed_precision(self.precision),
        }
        return SentenceTransformerTrainingArguments(**(arguments | self.further_arguments()))

    def further_arguments(self) -> dict[str, Any]:
        """What ``training_arguments`` says.

        Raises:
            ValueError: If it is no JSON object of the host's arguments.
        """
        try:
            further = json.loads(self.training_arguments)
        except ValueError:
            further = None
        if not isinstance(further, dict):
            raise ValueError(f"--training-arguments must be a JSON object, got {self.training_arguments!r}")
        known = {argument.name for argument in fields(SentenceTransformerTrainingArguments) if argument.init}
        if unknown := sorted(further.keys() - known):
            raise ValueError(f"--training-arguments: SentenceTransformerTrainingArguments has no {unknown}")
        return further

    def refuse_foreign_checkpoints(self) -> None:
        """Refuse to mix the checkpoints of two runs.

        Raises:
            FileExistsError: If there are checkpoints, and neither ``resume`` nor ``overwrite`` is set.
        """
        if not (self.resume or self.overwrite) and any(self.checkpoints.glob("checkpoint-*")):
            raise FileExistsError(
                f"{self.checkpoints} holds checkpoints of an earlier run; use --resume to go on from the "
                "last, --overwrite to start anew and delete them, or give another --output"
            )


def mixed_precision(precision: str) -> dict[str, bool]:
    """Training arguments for "auto", "bf16", "fp16" or "no".

    Example:
        >>> mixed_precision("no")
        {'bf16': False, 'fp16': False}
    """
    auto = precision == "auto" and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return {"bf16": auto or precision == "bf16", "fp16": precision == "fp16"}


def last_complete_checkpoint(folder: str | Path) -> Path | None:
    """The newest checkpoint that was written to its end: the loss state is written last.

    Args:
        folder: Folder of ``checkpoint-<step>`` folders.

    Returns:
        The checkpoint, or None if there is none.
    """
    complete = [path for path in Path(folder).glob("checkpoint-*") if is_complete(path)]
    return max(complete, key=_step, default=None)


def is_complete(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end."""
    return all((checkpoint / name).is_file() for name in ("trainer_state.json", LOSS_STATE_FILE))


def remove_unfinished_checkpoint(folder: str | Path, step: int) -> bool:
    """Remove the checkpoint of a step if it was not written to its end, as on a full disk.

    Returns:
        Whether there was one.
    """
    path = Path(folder) / f"checkpoint-{step}"
    if not path.is_dir() or is_complete(path):
        return False
    shutil.rmtree(path, ignore_errors=True)
    return True


def remove_checkpoints(folder: str | Path) -> None:
    """Remove all checkpoints: those of a run that is started anew."""
    for path in Path(folder).glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)


def restore_finished_run(trainer: SentenceTransformerTrainer, checkpoint: Path) -> bool:
    """Load what a run ended with if the checkpoint is of its last step: the host would train a step more.

    Returns:
        Whether the run was finished.
    """
    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if state.global_step < trainer.args.max_steps:
        return False
    folder = checkpoint
    if trainer.args.load_best_model_at_end and state.best_model_checkpoint:
        folder = checkpoint.parent / Path(state.best_model_checkpoint).name
    trainer.model.load_state_dict(SentenceTransformer(str(folder), device="cpu").state_dict())
    trainer.state = state
    return True


def _step(checkpoint: Path) -> int:
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step
