"""Everything that a loss owns is kept across checkpoints and ranks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakSet

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_xlret.files import PathLike, atomic_file
from st_xlret.losses.base import CrossLingualLoss, package_loss, unwrap_model
from st_xlret.training.checkpoints import (
    LOSS_STATE_FILE,
    CheckpointRecord,
    begin_checkpoint,
    checkpoint_folder,
    delete_old_checkpoints,
    finish_checkpoint,
    read_record,
    sizes_of_files,
)

Losses: TypeAlias = nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module]
"""A loss, or all losses of a run."""


class LossStateCallback(TrainerCallback):
    """Closes what the host leaves open for losses with parameters and buffers of their own.

    [`CrossLingualTrainer`][st_xlret.CrossLingualTrainer] has it; give it to the host's own Trainer
    as a callback. A run is refused that would train nothing of the encoder, not all of the losses,
    or another model; so are FSDP, DeepSpeed, and fp16 in several processes, which lose parameters
    of the losses. Heads, batch statistics, toggles and banks are written to
    `loss_state.safetensors` in every checkpoint and restored on resume. At the start all ranks take
    rank 0's loss state, and before each optimizer step the gradients of loss-owned parameters are
    averaged over ranks and clipped to `max_grad_norm`.

    Args:
        losses: The loss, or all losses of the run: a sequence, or the mapping given to the Trainer.
        resume_from: The checkpoint to resume, if it is not in the output folder of this run.
        options: What the run is made of, as JSON has it; kept in the metadata of the file.
        keep: Checkpoints to keep besides the best one, of those with a loss state. None: the host
            removes them.
    """

    def __init__(
        self,
        losses: Losses,
        *,
        resume_from: PathLike | None = None,
        options: dict[str, Any] | None = None,
        keep: int | None = None,
    ) -> None:
        self.watch_losses(losses)
        self._state: TrainerState | None = None
        self.resume_from = resume_from
        self.options = options
        self.keep = keep
        # Both are set by `EncoderPreparation.remember_start`, and the second one by scripts, too.
        self.start: str | None = None
        """The fingerprint of the weights that the run began with."""
        self.keeps_start = False
        """Whether a resumed run has to begin with them, as where a part of them is kept."""

    @contextmanager
    def resuming(self, checkpoint: str | None) -> Iterator[None]:
        """The context of a training; a checkpoint goes before that of the callback."""
        given = self.resume_from
        self.resume_from = checkpoint or given
        try:
            yield
        finally:
            self.resume_from = given

    def watch_losses(self, losses: Losses) -> None:
        """Set `all_losses` by name and, of these, `losses` of this package; those of before go."""
        self.all_losses: Mapping[str, nn.Module] = losses_by_name(losses)
        self.losses: dict[str, CrossLingualLoss] = {}
        for name, loss in self.all_losses.items():
            own = package_loss(loss)
            if own is not None:
                self.losses[name] = own

    def state_dict(self) -> dict[str, Tensor]:
        """State of all losses, by loss and name, copied to the CPU."""
        state = {}
        for name, loss in self.losses.items():
            for key, tensor in loss.owned_state().items():
                state[f"{name}/{key}"] = tensor.detach().cpu().contiguous().clone()
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave.

        A `ValueError` refuses the state of losses with other names.
        """
        parts: dict[str, dict[str, Tensor]] = {}
        for key, tensor in state.items():
            name, _, inner = key.rpartition("/")
            parts.setdefault(name, {})[inner] = tensor
        owners = [name for name, loss in self.losses.items() if loss.owned_state()]
        if set(parts) != set(owners):
            raise ValueError(
                f"the state is of losses named {sorted(parts)}, and those of this run are "
                f"{sorted(owners)}: give them the names of then"
            )
        for name in owners:
            self.losses[name].load_owned_state(parts[name])

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters of the losses; one that two losses share counts once."""
        by_id = {}
        for loss in self.losses.values():
            for parameter in loss.owned_parameters():
                by_id[id(parameter)] = parameter
        return list(by_id.values())

    def on_init_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: Any,
        **kwargs: Any,
    ) -> None:
        """Refuse what cannot hold parameters of losses, before the host prepares the optimizer."""
        is_sharded = args.fsdp or args.deepspeed_plugin is not None
        is_fp16_in_several = args.fp16 and args.world_size > 1
        if (is_sharded or is_fp16_in_several) and self.parameters():
            raise ValueError(
                "FSDP, DeepSpeed, and fp16 in several processes lose the parameters of the losses "
                f"{list(self.losses)}: train in bf16 or fp32 with torchrun (DDP)"
            )

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: Any,
        **kwargs: Any,
    ) -> None:
        """Restore the state from the checkpoint that is resumed, and share it with all ranks."""
        self._register_alone(state)
        optimizer = kwargs.get("optimizer")
        if optimizer is not None and not args.fsdp and args.deepspeed_plugin is None:
            self._check_optimizer(unwrap_model(kwargs["model"]), optimizer)
        if state.global_step:
            folder = Path(self.resume_from or checkpoint_folder(args, state))
            self.take_start(folder)
            self.load_state_dict(load_file(folder / LOSS_STATE_FILE))
            _set_epoch_of_samplers(kwargs.get("train_dataloader"), int(state.epoch or 0))
        for loss in self.losses.values():
            for inner in loss.modules():
                if isinstance(inner, CrossLingualLoss):
                    inner.state_is_kept = True
        if get_world_size() > 1:
            self._broadcast_state()

    def take_start(self, checkpoint: Path) -> None:
        """Take the start of the run that is resumed for that of this one.

        Another start model is refused, where its weights count.
        """
        before = read_record(checkpoint).start
        if self.keeps_start and before != self.start:
            raise ValueError(
                f"the run of {checkpoint} did not begin with the weights of this model: give the "
                "model of then"
            )
        self.start = before

    def _register_alone(self, state: TrainerState) -> None:
        """Note that this callback is in training; refuse a second one of the same run.

        The checkpoints would hold the state of the last one alone.
        """
        self._state = state
        _CALLBACKS.add(self)
        for other in _CALLBACKS:
            if other is not self and other._state is state:
                raise ValueError(
                    f"two LossStateCallbacks keep {list(self.losses)} and {list(other.losses)}: "
                    "give one with all losses; CrossLingualTrainer has one already"
                )

    def _check_optimizer(self, encoder: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Refuse a run that would train another model, nothing of it, or not all of the losses."""
        for loss in self.all_losses.values():
            if _is_built_on_another(loss, encoder):
                raise ValueError(
                    "a loss was built on another model than the Trainer's: build it on that one"
                )
        held = _ids_of_trained_weights(optimizer)
        if not any(id(weight) in held for weight in encoder.parameters()):
            raise ValueError(
                "nothing of the encoder would be trained: "
                "all in the optimizer is frozen, as by freeze_embeddings"
            )
        if not all(id(weight) in held for weight in self.parameters()):
            raise ValueError(
                f"the optimizer lacks parameters of {list(self.losses)}: "
                "add loss.owned_parameters()"
            )

    def _broadcast_state(self) -> None:
        """All ranks, which call it together, take the state of rank 0."""
        for loss in self.losses.values():
            for tensor in loss.owned_state().values():
                dist.broadcast(tensor.data, src=0)

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: Any,
        **kwargs: Any,
    ) -> None:
        """Average and clip the gradients of loss-owned parameters.

        All ranks call it together.
        """
        parameters = self.parameters()
        if get_world_size() > 1:
            average_gradients(parameters)
        if args.max_grad_norm and args.max_grad_norm > 0:
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Begin a checkpoint of a script, before it is written."""
        if self.options and control.should_save and args.should_save:
            begin_checkpoint(checkpoint_folder(args, state))

    on_epoch_end = on_step_end

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: Any,
        **kwargs: Any,
    ) -> None:
        """Write the state into the checkpoint that all ranks have just written.

        Old ones are deleted, as `keep` says.
        """
        if get_world_size() > 1:
            dist.barrier()
        folder = checkpoint_folder(args, state)
        if not args.should_save or not folder.is_dir():
            return
        record = CheckpointRecord(self.options or {}, sizes_of_files(folder), self.start)
        with atomic_file(folder / LOSS_STATE_FILE) as temporary:
            save_file(self.state_dict(), temporary, metadata=record.as_metadata())
        finish_checkpoint(folder)
        if self.keep is not None and self.keep > 0:
            delete_old_checkpoints(folder.parent, self.keep, state.best_model_checkpoint)


_CALLBACKS: WeakSet[LossStateCallback] = WeakSet()
"""Those that have begun a training, which `_register_alone` notes."""


def losses_by_name(losses: Losses) -> Mapping[str, nn.Module]:
    """Losses under the names of the mapping, or under their numbers and classes.

    Checkpoints have the state of a loss under its name.
    """
    if isinstance(losses, Mapping):
        return losses
    if isinstance(losses, nn.Module):
        losses = [losses]
    return {f"{number}.{type(loss).__name__}": loss for number, loss in enumerate(losses)}


def _is_built_on_another(loss: nn.Module, encoder: nn.Module) -> bool:
    """Whether a loss, or one that it wraps, has an encoder that is another one."""
    for module in loss.modules():
        model = unwrap_model(getattr(module, "model", encoder))
        if isinstance(model, type(encoder)) and model is not encoder:
            return True
    return False


def _ids_of_trained_weights(optimizer: torch.optim.Optimizer) -> set[int]:
    """The ids of the weights that an optimizer changes."""
    ids = set()
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.requires_grad:
                ids.add(id(weight))
    return ids


def _set_epoch_of_samplers(loader: Any, epoch: int) -> None:
    """Set the epoch of the batch samplers of a loader.

    The host fails to do so when several processes resume amid one.
    """
    sampler = getattr(loader, "batch_sampler", None)
    while sampler is not None:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        sampler = getattr(sampler, "batch_sampler", None)


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Average gradients over all ranks, in place, at least in float32.

    All ranks call it, with their parameters in one order. A rank without a gradient counts as
    zeros.
    """
    for parameter in parameters:
        has_gradient = float(parameter.grad is not None)
        ranks_with_gradient = torch.tensor(has_gradient, device=parameter.device)
        dist.all_reduce(ranks_with_gradient)
        if not ranks_with_gradient:
            continue
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        total = gradient.to(torch.promote_types(parameter.dtype, torch.float32))
        dist.all_reduce(total)
        mean = total / get_world_size()
        parameter.grad = mean.to(parameter.dtype)
