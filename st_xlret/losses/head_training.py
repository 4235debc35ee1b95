"""Training of a new head for masked words, on an encoder that stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from sentence_transformers.util import batch_to_device
from torch import Tensor
from tqdm.auto import tqdm

if TYPE_CHECKING:
    from st_xlret.losses.masked_lm import MaskedLMLoss


class HeadTraining:
    """Steps of a head alone, and its loss on texts that are held out.

    Args:
        loss: The loss whose head is trained.
        texts: The texts, of which at most a tenth is held out.
        held_out: How many texts to evaluate on.
        batch_size: Texts of a step.
        learning_rate: Learning rate of AdamW.
    """

    def __init__(
        self,
        loss: MaskedLMLoss,
        texts: Sequence[str],
        *,
        held_out: int,
        batch_size: int,
        learning_rate: float,
    ) -> None:
        loss.to(loss.model.device)  # a Trainer moves a loss only when training begins
        self.loss = loss
        self.texts = texts
        self.batch_size = batch_size
        order = np.random.default_rng(int(loss.seed)).permutation(len(texts)).tolist()
        size = min(held_out, len(texts) // 10)
        self.held_out = order[:size]
        self.rest = order[size:]
        self.optimizer = torch.optim.AdamW(loss.owned_parameters(), lr=learning_rate)

    def run(self, max_steps: int, evaluate_every: int, *, show_progress_bar: bool) -> list[float]:
        """Train until the held-out loss is flat; returns it, that before the first step included.

        The loss and its encoder are left in the state in which they were.
        """
        model = self.loss.model
        training = model.training
        steps = int(self.loss.steps)
        model.eval()
        losses = [self._held_out_loss()]
        numbers = range(1, max_steps + 1)
        progress = tqdm(numbers, "head for masked words", disable=not show_progress_bar)
        for number in progress:
            self._train_step(number)
            if number % evaluate_every == 0:
                losses.append(self._held_out_loss())
                progress.set_postfix_str(f"held-out loss {losses[-1]:.3f}")
                if _loss_is_flat(losses):
                    break
        self.loss.steps.fill_(steps)
        model.train(training)
        return losses

    def _train_step(self, number: int) -> None:
        """One step on the texts whose turn it is; `number` counts from 1."""
        # Other words of a text are hidden in each pass over the texts.
        self.loss.steps.fill_(number)
        start = (number - 1) * self.batch_size % len(self.rest)
        batch = self.rest[start : start + self.batch_size]
        self._loss_of_texts(batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch.clear_autocast_cache()  # which has the weights of before the step

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        """The mean loss of the texts that are held out, always with the same tokens hidden.

        A mean is over the hidden tokens of a batch, and counts as often as the batch has texts.
        """
        total = 0.0
        for start in range(0, len(self.held_out), self.batch_size):
            part = self.held_out[start : start + self.batch_size]
            total += float(self._loss_of_texts(part)) * len(part)
        return total / len(self.held_out)

    def _loss_of_texts(self, numbers: list[int]) -> Tensor:
        """The mean loss of the hidden tokens of some of `texts`; the encoder gets no gradient.

        With gradients, and the loss in training mode, `loss.steps` decides which tokens are hidden
        (`updates_state`); without, they are always the same. All ranks call it together.
        """
        model = self.loss.model
        features = model.preprocess([self.texts[number] for number in numbers])
        on_device = batch_to_device(features, model.device)
        loss, _ = self.loss.mean_of_masked_tokens([on_device], frozen=True)
        return loss


def _loss_is_flat(losses: Sequence[float]) -> bool:
    """Whether three evaluations made the loss fall by less than 1 %."""
    return len(losses) > 3 and losses[-1] > 0.99 * losses[-4]
