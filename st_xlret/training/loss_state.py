"""Everything that a loss owns is kept across checkpoints and ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_xlret.files import atomic_file
from st_xlret.losses.base import CrossLingualLoss

LOSS_STATE_FILE = "loss_state.safetensors"
"""The last file of a checkpoint: where it is, the checkpoint is complete."""


def name_losses(losses: Any) -> dict[str, CrossLingualLoss]:
    """The losses of this package by name, those inside wrappers such as `MatryoshkaLoss` too.

    Args:
        losses: A loss, several, or the mapping that the Trainer has. Names are its keys, class names otherwise.
    """
    if isinstance(losses, nn.Module):
        losses = [losses]
    if not isinstance(losses, Mapping):
        losses = {f"{i}.{type(loss).__name__}": loss for i, loss in enumerate(losses)}
    found = {name: own_loss(loss) for name, loss in losses.items()}
    return {name: loss for name, loss in found.items() if loss is not None}


def own_loss(loss: nn.Module | None) -> CrossLingualLoss | None:
    """The loss of this package that a module is, or wraps; None for losses of other libraries."""
    modules = () if loss is None else loss.modules()
    return next((module for module in modules if isinstance(module, CrossLingualLoss)), None)


class LossStateCallback(TrainerCallback):
    """Closes what the host leaves open for losses with parameters and buffers of their own.

    [`CrossLingualTrainer`][st_xlret.CrossLingualTrainer] has it; give it to the host's own Trainer with
    `callbacks=[...]`.

    - *Checkpoints*: heads, batch statistics, toggles and banks are written to `loss_state.safetensors` in every
      checkpoint and restored on resume. The checkpoint stays loadable as a plain SentenceTransformer.
    - *Prompts*: a `CrossLingualDataCollator` takes the `prompts` and `router_mapping` of the training arguments.
    - *Ranks*: at the start all ranks take rank 0's loss state. Before each optimizer step the gradients of loss-owned
      parameters are averaged over ranks and clipped to `max_grad_norm`: the host does both for the encoder only.

    Args:
        losses: The loss, or all losses of the run: a sequence, or the mapping given to the Trainer.
        resume_from: The checkpoint folder that `trainer.train(resume_from_checkpoint=...)` was given, if it is not in
            the output folder of this run.
        options: What the run is made of, kept in the metadata of the file: a resumed run can be compared with it.

    Raises:
        FileNotFoundError: On resume, if the checkpoint has no loss state.
        ValueError: On resume, if the state does not fit the losses. At the start, if a loss has parameters of its own
            and the arguments ask for FSDP, DeepSpeed, or fp16 in several processes.

    Example:
        >>> from st_xlret.losses import CCPLoss
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> "ccp/bank.keys" in LossStateCallback({"ccp": CCPLoss(model)}).state_dict()
        True
    """

    def __init__(self, losses: Any, *, resume_from: str | Path | None = None, options: Any = None) -> None:
        self.losses = name_losses(losses)
        self.options = options
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
        foreign = [key for key in state if not key.startswith(tuple(f"{name}/" for name in self.losses))]
        if foreign:
            raise ValueError(f"the saved state holds losses that this run does not have: {foreign[:5]}")
        for name, loss in self.losses.items():
            prefix = f"{name}/"
            loss.load_owned_state({k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)})

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuse what cannot hold parameters of losses, before the host prepares the optimizer for it."""
        owners = [name for name, loss in self.losses.items() if loss.owned_parameters()]
        by_launcher = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        asked = {
            "FSDP": bool(args.fsdp) or by_launcher,
            "DeepSpeed": args.deepspeed_plugin is not None,
            "fp16 in several processes": args.fp16 and args.world_size > 1,
        }
        for kind in (kind for kind, found in asked.items() if found and owners):
            raise ValueError(
                f"{kind} does not go with the losses {owners}, which have parameters of their own (heads, document "
                "encoder, language-model head): train in bf16 or fp32, and start several processes with torchrun "
                "(DDP)"
            )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore on resume; give all ranks the same state."""
        if state.global_step:
            path = Path(self.resume_from or _checkpoint(args, state)) / LOSS_STATE_FILE
            if not path.is_file():
                raise FileNotFoundError(
                    f"{path} is missing: the losses' heads and banks cannot be restored. Resume from a checkpoint "
                    "written with LossStateCallback, or name its folder with LossStateCallback(..., resume_from=...)"
                )
            self.load_state_dict(load_file(path))
        for loss in self.losses.values():
            loss.state_is_kept = True
            for tensor in loss.owned_state().values() if get_world_size() > 1 else ():
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
        # A parameter that two losses share counts once.
        parameters = list({id(p): p for loss in self.losses.values() for p in loss.owned_parameters()}.values())
        if get_world_size() > 1:
            average_gradients(parameters)
        if args.max_grad_norm and args.max_grad_norm > 0:
            nn.utils.clip_grad_norm_([p for p in parameters if p.grad is not None], args.max_grad_norm)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the state into the checkpoint that was just made, when all ranks have written their part."""
        if get_world_size() > 1:
            dist.barrier()
        folder = _checkpoint(args, state)
        if args.should_save and folder.is_dir():
            with atomic_file(folder / LOSS_STATE_FILE) as temporary:
                save_file(self.state_dict(), temporary, metadata={"options": json.dumps(self.options)})


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


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
