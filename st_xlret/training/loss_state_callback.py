"""Everything a loss owns is kept across ranks and across checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_xlret.data import CrossLingualDataCollator
from st_xlret.files import atomic_file
from st_xlret.losses.base import CrossLingualLoss, unwrapped

LOSS_STATE_FILE = "loss_state.safetensors"


def name_losses(losses: Any) -> dict[str, CrossLingualLoss]:
    """Losses by name: the keys of a mapping, class names otherwise; losses of other libraries are left out.

    Raises:
        TypeError: If something is no loss module.
    """
    if isinstance(losses, nn.Module):
        losses = [losses]
    if not isinstance(losses, Mapping):
        losses = {f"{i}.{type(loss).__name__}": loss for i, loss in enumerate(losses)}
    for loss in losses.values():
        if not isinstance(loss, nn.Module):
            raise TypeError(f"expected loss modules, got {type(loss).__name__}")
    return {name: loss for name, loss in losses.items() if isinstance(loss, CrossLingualLoss)}


class LossStateCallback(TrainerCallback):
    """Closes what the host leaves open for losses with parameters and buffers of their own.

    - *Checkpoints*: heads, batch statistics, toggles and banks are written to `loss_state.safetensors` in
      every checkpoint and restored on resume, so that a resumed run repeats the uninterrupted one's losses.
      The checkpoint stays loadable as a plain SentenceTransformer.
    - *Prompts*: the `prompts` and `router_mapping` of the training arguments are handed to a
      `CrossLingualDataCollator`; the host hands them only to its own collator. Where the arguments have no prompts,
      the collator takes those of the model.
    - *Ranks*: at the start all ranks take rank 0's loss state; before each optimizer step the gradients of
      loss-owned parameters are averaged over ranks (the host synchronises the encoder only) and clipped to
      `max_grad_norm` (the host clips the encoder only). With `fp16`, all ranks skip a step in which the gradients of
      one overflow.

    FSDP and DeepSpeed divide the parameters of the encoder among the ranks and cannot take an optimizer that also holds
    parameters of a loss. They are refused where a loss has such parameters. Losses without any, such as
    [`SemanticContrastiveLoss`][st_xlret.SemanticContrastiveLoss], take the same steps under ZeRO-2 as under DDP.

    Args:
        losses: The loss, or all losses of the run: a sequence, or the mapping given to the Trainer.
        resume_from: The checkpoint folder that `trainer.train(resume_from_checkpoint=...)` was given, if it
            lies elsewhere than in the output directory of this run.

    Raises:
        FileNotFoundError: On resume, if the checkpoint has no loss state.
        ValueError: On resume, if the state does not fit the losses. At the start, if a loss has parameters of its own
            and the training arguments ask for FSDP or DeepSpeed.

    Example:
        >>> from st_xlret.losses import SemanticContrastiveLoss
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> callback = LossStateCallback(SemanticContrastiveLoss(model))   # for the Trainer's callbacks=[...]
    """

    def __init__(self, losses: Any, *, resume_from: str | Path | None = None) -> None:
        self.losses = name_losses(losses)
        self.resume_from = resume_from

    def state_dict(self) -> dict[str, Tensor]:
        """State of all losses, by loss and name, copied to the CPU."""
        return {
            f"{name}/{key}": tensor.detach().cpu().contiguous().clone()
            for name, loss in self.losses.items()
            for key, tensor in loss.owned_state().items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave."""
        known = tuple(f"{name}/" for name in self.losses)
        foreign = [key for key in state if not key.startswith(known)]
        if foreign:
            raise ValueError(f"the saved state holds losses that this run does not have: {foreign[:5]}")
        for name, loss in self.losses.items():
            prefix = f"{name}/"
            loss.load_owned_state({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuse FSDP and DeepSpeed for losses with parameters, before the host prepares the optimizer for them."""
        refuse_sharding(args, self.losses)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore on resume; give all ranks the same state, and the collator the prompts of the arguments."""
        collator = getattr(kwargs.get("train_dataloader"), "collate_fn", None)
        if isinstance(collator, CrossLingualDataCollator):
            collator.adopt_options(args, unwrapped(kwargs.get("model")))  # type: ignore[arg-type]
        if state.global_step:
            path = Path(self.resume_from or checkpoint_folder(args, state)) / LOSS_STATE_FILE
            if not path.is_file():
                raise FileNotFoundError(
                    f"{path} is missing: the losses' heads and banks cannot be restored. Resume from a "
                    "checkpoint written with LossStateCallback, or name its folder with "
                    "LossStateCallback(..., resume_from=...)"
                )
            self.load_state_dict(load_file(path))
        if get_world_size() > 1:
            for loss in self.losses.values():
                for tensor in loss.owned_state().values():
                    dist.broadcast(tensor.data, src=0)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell the batch sampler the epoch: the host fails to when several processes resume amid an epoch."""
        sampler = getattr(kwargs.get("train_dataloader"), "batch_sampler", None)
        while sampler is not None:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(int(state.epoch or 0))
            sampler = getattr(sampler, "batch_sampler", None)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Average and clip the gradients of loss-owned parameters."""
        parameters = unique_parameters(self.losses.values())
        if get_world_size() > 1:
            average_gradients(parameters)
            share_overflow(kwargs.get("optimizer"))
        if args.max_grad_norm and args.max_grad_norm > 0:
            nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], args.max_grad_norm)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the state into the checkpoint that was just made."""
        folder = checkpoint_folder(args, state)
        if args.should_save and folder.is_dir():
            with atomic_file(folder / LOSS_STATE_FILE) as temporary:
                save_file(self.state_dict(), temporary)


def checkpoint_folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Where the host puts the checkpoint of this step."""
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


def unique_parameters(losses: Iterable[CrossLingualLoss]) -> list[nn.Parameter]:
    """Trainable loss-owned parameters, shared ones once."""
    return list({id(p): p for loss in losses for p in loss.owned_parameters()}.values())


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Average gradients over all ranks in one message; a rank without a gradient counts as zeros."""
    if not parameters:
        return
    used = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    touched = [p for p, flag in zip(parameters, used.tolist(), strict=True) if flag]
    if not touched:
        return
    # At least float32, and float64 where a parameter is.
    kind = reduce(torch.promote_types, (p.dtype for p in touched), torch.float32)
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten().to(kind) for p in touched])
    dist.all_reduce(flat)
    flat /= get_world_size()
    for p, part in zip(touched, flat.split([p.numel() for p in touched]), strict=True):
        p.grad = part.view_as(p).to(p.dtype)


def refuse_sharding(args: TrainingArguments, losses: Mapping[str, CrossLingualLoss]) -> None:
    """Refuse what divides the encoder's parameters among the ranks, if a loss has parameters that it does not know.

    The host puts the parameters of the losses into the optimizer. FSDP and DeepSpeed then look for each of them in the
    encoder, and end with a `KeyError` that names no cause.

    Raises:
        ValueError: If the arguments or the launcher ask for FSDP or DeepSpeed and a loss has parameters of its own.
    """
    by_launcher = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
    asked = {"FSDP": bool(args.fsdp) or by_launcher, "DeepSpeed": args.deepspeed_plugin is not None}
    kind = next((name for name, found in asked.items() if found), None)
    owners = [name for name, loss in losses.items() if loss.owned_parameters()]
    if kind and owners:
        raise ValueError(
            f"{kind} divides the encoder's parameters among the processes and does not know those of the losses "
            f"{owners} (heads, document encoder, language-model head): leave out --{kind.lower()} and start the run "
            "with torchrun (DDP). --gradient_checkpointing, --bf16 and a smaller --mini_batch_size or "
            "--per_device_train_batch_size save memory"
        )


def share_overflow(optimizer: Any) -> None:
    """Let all ranks know of an overflow on any of them, so that all of them skip the step and lower the scale.

    The host looks for values that are not finite before `average_gradients`. By itself, only the rank on which a
    parameter of the loss overflowed would skip the step, and the others would take its infinite gradients.

    Args:
        optimizer: The host's optimizer. Without a scaler of losses (`fp16`) there is nothing to do.
    """
    scaler = getattr(optimizer, "scaler", None)
    if scaler is None or not scaler.is_enabled():
        return
    # PyTorch has no public access to what `unscale_` found.
    found = scaler._found_inf_per_device(optimizer.optimizer)
    flag = torch.tensor(float(any(value.item() for value in found.values())), device=scaler._scale.device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    for value in found.values():
        value.copy_(flag)
