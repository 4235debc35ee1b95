"""Stops on a loss that is no number, and reports each loss of a run of several."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_xlret.data.languages import id_to_language
from st_xlret.training.loss_state_callback import name_losses


class LossMonitorCallback(TrainerCallback):
    """Watches every loss of a run.

    A loss that is NaN or infinite stops the run before the optimizer step, so that the weights stay those of
    the last good step and the last checkpoint is unharmed; the error names the loss, the step and the
    languages of the batch. Each log line gets `loss_<name>`, the mean of that loss since the last line: the
    host's `loss` mixes them all.

    Args:
        losses: As for `LossStateCallback`.

    Raises:
        FloatingPointError: In training, on a loss that is not finite.
    """

    def __init__(self, losses: Any) -> None:
        self.losses = name_losses(losses)
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the step's losses."""
        for name, loss in self.losses.items():
            if loss.last_value is None:
                continue
            value = float(loss.last_value)
            if not torch.isfinite(loss.last_value):
                raise FloatingPointError(
                    f"the loss {name!r} is {value} at step {state.global_step + 1}, in a batch of "
                    f"{describe_languages(loss.last_languages)}. No weights were changed by it; lower the "
                    "learning rate, train in bf16 or fp32 rather than fp16, or look at these languages' "
                    "texts, and resume from the last checkpoint"
                )
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1
            loss.last_value = None

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Before a checkpoint is written, look at the weights: a finite loss can have infinite gradients."""
        if control.should_save and model is not None and (broken := not_finite(model)):
            raise FloatingPointError(
                f"{broken} holds values that are not finite at step {state.global_step}: lower the learning rate, or "
                "train in bf16 or fp32 rather than fp16, and resume from the last checkpoint"
            )

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the losses of each batch whose gradients are accumulated."""
        self.on_pre_optimizer_step(args, state, control, **kwargs)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the means to the log line and to the history."""
        if logs is None or "loss" not in logs or not self.counts:
            return
        means = {f"loss_{name}": round(self.sums[name] / n, 4) for name, n in self.counts.items()}
        logs.update(means)
        if state.log_history:
            state.log_history[-1].update(means)
        self.sums, self.counts = {}, {}


def show_losses_to_trackers(trainer: Any) -> None:
    """Put the monitor before the host's trackers, so that TensorBoard and the others log each loss by name too.

    The host calls its trackers (`report_to`) before the callbacks that it is given. The training scripts call this.

    Args:
        trainer: The host's Trainer, with a `LossMonitorCallback`.
    """
    trainer.callback_handler.callbacks.sort(key=lambda callback: not isinstance(callback, LossMonitorCallback))


def not_finite(model: nn.Module) -> str | None:
    """The name of a parameter or buffer that holds NaN or infinity; None if there is none.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> not_finite(layer) is None
        True
        >>> _ = nn.init.constant_(layer.bias, float("nan"))
        >>> not_finite(layer)
        'bias'
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def describe_languages(ids: Tensor | None) -> str:
    """How many rows of which languages, most frequent first.

    Example:
        >>> from st_xlret.data.languages import language_to_id
        >>> describe_languages(torch.tensor([language_to_id(code) for code in ("fr", "de", "fr")]))
        'fr (2 rows), de (1 rows)'
    """
    if ids is None:
        return "unknown languages"
    values, counts = torch.unique(ids, return_counts=True)
    order = torch.argsort(counts, descending=True, stable=True)
    return ", ".join(f"{id_to_language(int(values[i]))} ({int(counts[i])} rows)" for i in order)
