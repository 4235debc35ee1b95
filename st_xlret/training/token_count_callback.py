"""Counts the tokens that a run has read, across interruptions and ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_xlret.training.loss_state_callback import name_losses


class TokenCountCallback(TrainerCallback):
    """Counts the tokens of all training batches, without padding, in `trainer.state.num_input_tokens_seen`.

    The host's own `include_num_input_tokens_seen` finds no tokens in batches of text columns. The count is kept where
    the host keeps its own, so that it is in every checkpoint: a resumed run counts on, and a finished run that is
    resumed still knows its count. Under distributed training it is the sum over all ranks.

    Args:
        losses: As for [`LossStateCallback`][st_xlret.LossStateCallback].

    Example:
        >>> from st_xlret.losses import SemanticContrastiveLoss
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> callback = TokenCountCallback(SemanticContrastiveLoss(model))   # for the Trainer's callbacks=[...]
    """

    def __init__(self, losses: Any) -> None:
        self.tokens: int | Tensor = 0
        for loss in name_losses(losses).values():
            loss.register_forward_pre_hook(self._count)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the tokens of the step."""
        if get_world_size() > 1:
            total = torch.as_tensor(self.tokens, device=args.device)
            dist.all_reduce(total)
            self.tokens = total
        state.num_input_tokens_seen += int(self.tokens)
        self.tokens = 0

    def _count(self, loss: nn.Module, given: tuple[Any, ...]) -> None:
        if not (loss.training and torch.is_grad_enabled()):
            return
        for features in given[0]:
            # The inputs of a static encoder are flattened: they have no padding.
            mask = features.get("attention_mask")
            self.tokens += len(features["input_ids"]) if mask is None else mask.sum()
