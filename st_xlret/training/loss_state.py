"""Everything that a loss owns is kept across checkpoints and ranks."""

import json
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerState, TrainingArguments

from st_xlret.files import atomic_file
from st_xlret.losses.base import CrossLingualLoss, package_loss, unwrap_model

logger = logging.getLogger(__name__)

LOSS_STATE_FILE = "loss_state.safetensors"
"""The last file of a checkpoint: where it is, the checkpoint is complete."""
_UNFINISHED = "unfinished"  # an empty file, the first of a checkpoint


class LossStateCallback(TrainerCallback):
    """Closes what the host leaves open for losses with parameters and buffers of their own.

    [`CrossLingualTrainer`][st_xlret.CrossLingualTrainer] has it; give it to the host's own Trainer as a callback. A run
    is refused that would train nothing of the encoder, not all of the losses, or another model; so are FSDP, DeepSpeed,
    and fp16 in several processes, which lose parameters of the losses. Heads, batch statistics, toggles and banks are
    written to `loss_state.safetensors` in every checkpoint and restored on resume. At the start all ranks take rank 0's
    loss state, and before each optimizer step the gradients of loss-owned parameters are averaged over ranks and
    clipped to `max_grad_norm`.

    Args:
        losses: The loss, or all losses of the run: a sequence, or the mapping given to the Trainer.
        resume_from: The checkpoint to resume, if it is not in the output folder of this run.
        options: What the run is made of, as JSON has it; kept in the metadata of the file.
        keep: Checkpoints to keep besides the best one, of those with a loss state. None: the host removes them.
    """

    def __init__(
        self,
        losses: Any,
        *,
        resume_from: str | Path | None = None,
        options: Any = None,
        keep: int | None = None,
    ) -> None:
        self.watch_losses(losses)
        self.resume_from, self.options, self.keep = resume_from, options, keep

    def watch_losses(self, losses: Any) -> None:
        """Keep these losses, in place of those of before."""
        losses = [losses] if isinstance(losses, nn.Module) else losses
        if not isinstance(losses, Mapping):
            losses = {f"{i}.{type(loss).__name__}": loss for i, loss in enumerate(losses)}
        self.all_losses: Mapping[str, Any] = losses
        self.losses: dict[str, CrossLingualLoss] = {
            n: own for n, loss in losses.items() if (own := package_loss(loss))
        }

    def state_dict(self) -> dict[str, Tensor]:
        """State of all losses, by loss and name, copied to the CPU."""
        return {
            f"{name}/{key}": tensor.detach().cpu().contiguous().clone()
            for name, loss in self.losses.items()
            for key, tensor in loss.owned_state().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave."""
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in self.losses}
        for key, tensor in state.items():
            name, _, inner = key.rpartition("/")
            parts[name][inner] = tensor
        for name, loss in self.losses.items():
            loss.load_owned_state(parts[name])

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters of the losses; one that two losses share counts once."""
        return list(
            {id(p): p for loss in self.losses.values() for p in loss.owned_parameters()}.values()
        )

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any
    ) -> None:
        """Refuse what cannot hold parameters of losses, before the host prepares the optimizer for it."""
        unfit = (
            args.fsdp or args.deepspeed_plugin is not None or (args.fp16 and args.world_size > 1)
        )
        if unfit and self.parameters():
            lost = f"FSDP, DeepSpeed, and fp16 in several processes lose the parameters of the losses {[*self.losses]}"
            raise ValueError(f"{lost}: train in bf16 or fp32 with torchrun (DDP)")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any
    ) -> None:
        """Check what is trained; restore on resume; give all ranks the same state."""
        if kwargs.get("optimizer") is not None and not args.fsdp and args.deepspeed_plugin is None:
            self._check_optimizer(unwrap_model(kwargs["model"]), kwargs["optimizer"])
        if state.global_step:
            self.load_state_dict(
                load_file(
                    Path(self.resume_from or _checkpoint_folder(args, state)) / LOSS_STATE_FILE
                )
            )
            # The host fails to tell the batch sampler its epoch when several processes resume amid one.
            sampler = getattr(kwargs.get("train_dataloader"), "batch_sampler", None)
            while sampler is not None:
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(int(state.epoch or 0))
                sampler = getattr(sampler, "batch_sampler", None)
        for loss in self.losses.values():
            for inner in loss.modules():
                if isinstance(inner, CrossLingualLoss):
                    inner.state_is_kept = True
            for tensor in loss.owned_state().values() if get_world_size() > 1 else ():
                dist.broadcast(tensor.data, src=0)

    def _check_optimizer(self, encoder: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        held = {
            id(weight)
            for group in optimizer.param_groups
            for weight in group["params"]
            if weight.requires_grad
        }
        modules = [module for loss in self.all_losses.values() for module in loss.modules()]
        models = [unwrap_model(module.model) for module in modules if hasattr(module, "model")]
        problem = None
        if any(isinstance(model, type(encoder)) and model is not encoder for model in models):
            problem = "a loss was built on another model than the Trainer's: build it on that one"
        elif not any(id(weight) in held for weight in encoder.parameters()):
            problem = "nothing of the encoder would be trained: all in the optimizer is frozen, as by freeze_embeddings"
        elif not all(id(weight) in held for weight in self.parameters()):
            problem = (
                f"the optimizer lacks parameters of {[*self.losses]}: add loss.owned_parameters()"
            )
        if problem:
            raise ValueError(problem)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any
    ) -> None:
        """Average and clip the gradients of loss-owned parameters."""
        parameters = self.parameters()
        if get_world_size() > 1:
            average_gradients(parameters)
        if args.max_grad_norm and args.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any
    ) -> None:
        """Mark a checkpoint of a script before it is written; move aside what another program wrote under its name."""
        folder = _checkpoint_folder(args, state)
        if self.options and control.should_save and args.should_save:
            if folder.exists() and not any(
                (folder / mark).exists() for mark in (_UNFINISHED, LOSS_STATE_FILE)
            ):
                moved = folder.rename(f"{folder}.{time.time_ns()}")
                logger.warning("%s was not of this run, or not whole: it is %s now", folder, moved)
            folder.mkdir(exist_ok=True, parents=True)
            (folder / _UNFINISHED).touch()

    on_epoch_end = on_step_end

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **kwargs: Any) -> None:
        """Write the state into the checkpoint that all ranks have just written; delete old ones, as `keep` says."""
        if get_world_size() > 1:
            dist.barrier()
        folder = _checkpoint_folder(args, state)
        if args.should_save and folder.is_dir():
            with atomic_file(folder / LOSS_STATE_FILE) as temporary:
                save_file(
                    self.state_dict(), temporary, metadata={"options": json.dumps(self.options)}
                )
            (folder / _UNFINISHED).unlink(missing_ok=True)
            best = Path(state.best_model_checkpoint or "").name
            for old in complete_checkpoints(folder.parent)[: -self.keep] if self.keep else ():
                if old.name != best:
                    shutil.rmtree(old, ignore_errors=True)


def _checkpoint_folder(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


def complete_checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first: the state of the losses is their last file."""
    files = folder.glob(f"checkpoint-*/{LOSS_STATE_FILE}")
    steps = {
        int(step): file.parent
        for file in files
        if (step := file.parent.name.partition("-")[2]).isdecimal()
    }
    return [steps[step] for step in sorted(steps)]


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Average gradients over all ranks, at least in float32; a rank without a gradient counts as zeros."""
    for parameter in parameters:
        used = torch.tensor(float(parameter.grad is not None), device=parameter.device)
        dist.all_reduce(used)
        if used:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            total = gradient.to(torch.promote_types(parameter.dtype, torch.float32))
            dist.all_reduce(total)
            parameter.grad = (total / get_world_size()).to(parameter.dtype)
