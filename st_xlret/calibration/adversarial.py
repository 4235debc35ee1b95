"""The adversarial stage of a rotation without pairs (Conneau et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Conneau et al. (section 3.2) have a discriminator of 2,048, far more steps and, instead, a
# rotation rate of 0.1.
EPOCHS = 10
STEPS_PER_EPOCH = 400
DISCRIMINATOR_STEPS = 2
BATCH_SIZE = 32
HIDDEN = 128
DROPOUT = 0.1
SMOOTHING = 0.2
RATE = 0.1
ROTATION_RATE = 1.0
DECAY = 0.95
BETA = 0.01


def adversarial_rotations(source: Tensor, target: Tensor, *, seed: int = 0) -> Iterator[Tensor]:
    """Train a rotation against a discriminator that tells rotated source rows from target rows.

    Yields the nearly orthogonal W (d, d), float64, after each epoch. It finds rotations around the
    identity reliably, but not arbitrary ones. Rows have unit length. PyTorch's random state is not
    changed.
    """
    game = _Game(source, target, seed)
    for epoch in range(EPOCHS):
        decay = DECAY**epoch
        for _ in range(STEPS_PER_EPOCH):
            for _ in range(DISCRIMINATOR_STEPS):
                game.train_discriminator(decay * RATE)
            game.train_rotation(decay * ROTATION_RATE)
        yield game.rotation.detach().double()


class _Game:
    """A rotation and a discriminator, and the rows that they are trained on."""

    def __init__(self, source: Tensor, target: Tensor, seed: int) -> None:
        dimension = source.shape[1]
        # Rows of length sqrt(d) have entries of about 1, which the discriminator's initial weights
        # are made for.
        self.source = source.float() * dimension**0.5
        self.target = target.float() * dimension**0.5
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.discriminator = _make_discriminator(dimension).to(source.device)
        self.rotation = torch.eye(dimension, device=source.device, requires_grad=True)
        self.labels = torch.full((2 * BATCH_SIZE,), SMOOTHING, device=source.device)
        self.labels[:BATCH_SIZE] = 1 - SMOOTHING

    def train_discriminator(self, rate: float) -> None:
        """One step of the discriminator towards telling the sides apart, at a rate."""
        loss = self._discriminator_loss(self.rotation.detach(), self.labels)
        _take_sgd_step(loss, list(self.discriminator.parameters()), rate)

    @torch.no_grad()
    def _make_more_orthogonal(self) -> None:
        """Move the rotation towards the orthogonal matrices, in place (Eq. 7)."""
        matrix = self.rotation
        matrix.copy_((1 + BETA) * matrix - BETA * (matrix @ matrix.T) @ matrix)

    def train_rotation(self, rate: float) -> None:
        """One step of the rotation towards sides that cannot be told apart, at a rate."""
        loss = self._discriminator_loss(self.rotation, 1 - self.labels)
        _take_sgd_step(loss, [self.rotation], rate)
        self._make_more_orthogonal()

    def _discriminator_loss(self, matrix: Tensor, labels: Tensor) -> Tensor:
        """The loss on a batch of each side, of labels (2 * BATCH_SIZE,), those of the source first.

        It draws the batch of the source, that of the target and the dropout from `generator`, in
        this order: in another one, equal seeds give another rotation.
        """
        of_source = self._draw_batch(self.source) @ matrix.T
        rows = torch.cat([of_source, self._draw_batch(self.target)])
        # Dropout by hand: nn.Dropout would draw from PyTorch's global random state.
        keep = torch.rand(rows.shape, generator=self.generator) >= DROPOUT
        rows = rows * keep.to(rows) / (1 - DROPOUT)
        return F.binary_cross_entropy_with_logits(self.discriminator(rows)[:, 0], labels)

    def _draw_batch(self, rows: Tensor) -> Tensor:
        """Rows at random, with repetition; it draws from `generator`, on the CPU."""
        numbers = torch.randint(len(rows), (BATCH_SIZE,), generator=self.generator)
        return rows[numbers.to(rows.device)]


def _make_discriminator(dimension: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dimension, HIDDEN),
        nn.LeakyReLU(0.2),
        nn.Linear(HIDDEN, HIDDEN),
        nn.LeakyReLU(0.2),
        nn.Linear(HIDDEN, 1),
    )


@torch.no_grad()
def _take_sgd_step(loss: Tensor, parameters: Sequence[Tensor], rate: float) -> None:
    """Take a step of plain SGD on these parameters only.

    The bookkeeping of torch.optim would double the time.
    """
    gradients = torch.autograd.grad(loss, parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.sub_(gradient, alpha=rate)
