"""The adversarial stage of Conneau et al. (2018): a rotation after which no discriminator tells languages apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm


@dataclass(frozen=True)
class AdversarialOptions:
    """Options of the adversarial training.

    The defaults are those of Conneau et al. (2018, section 3.2) except for a smaller discriminator, far fewer steps
    and, to make up for that, a higher learning rate of the rotation.

    Attributes:
        epochs: Number of epochs. Each yields a candidate rotation.
        steps_per_epoch: Updates of the rotation per epoch.
        discriminator_steps: Updates of the discriminator before each update of the rotation.
        batch_size: Sentences of each language per batch.
        hidden: Width of the discriminator's two hidden layers (2,048 in the paper).
        learning_rate: Learning rate of the discriminator, with SGD.
        rotation_learning_rate: Learning rate of the rotation, with SGD (0.1 in the paper).
        learning_rate_decay: Factor on both learning rates after each epoch.
        input_dropout: Dropout probability of the discriminator's input.
        smoothing: Label smoothing of the discriminator.
        beta: Strength of the pull towards orthogonal matrices: `W <- (1 + beta) W - beta (W W^T) W`.
    """

    epochs: int = 10
    steps_per_epoch: int = 400
    discriminator_steps: int = 2
    batch_size: int = 32
    hidden: int = 128
    learning_rate: float = 0.1
    rotation_learning_rate: float = 1.0
    learning_rate_decay: float = 0.95
    input_dropout: float = 0.1
    smoothing: float = 0.2
    beta: float = 0.01


def pull_to_orthogonal(matrix: Tensor, beta: float) -> Tensor:
    """Compute `(1 + beta) W - beta (W W^T) W`, which keeps W near the orthogonal matrices (Conneau et al. 2018, Eq. 7).

    Args:
        matrix: W (d, d).
        beta: Strength of the pull.

    Returns:
        The updated matrix (d, d).

    Example:
        >>> matrix = 1.1 * torch.eye(1)
        >>> for _ in range(1000):
        ...     matrix = pull_to_orthogonal(matrix, 0.01)
        >>> round(float(matrix), 5)
        1.0
    """
    return (1 + beta) * matrix - beta * (matrix @ matrix.T) @ matrix


def adversarial_rotations(
    source: Tensor,
    target: Tensor,
    options: AdversarialOptions | None = None,
    *,
    seed: int = 0,
    show_progress: bool = False,
) -> Iterator[Tensor]:
    """Train a rotation against a discriminator that tells rotated source rows from target rows (Conneau et al. 2018).

    The training starts from the identity. It needs no pairs, since it compares only the shapes of the two point clouds.
    It finds rotations around the identity reliably, but not arbitrary ones: of ten seeds on a cloud of 30 topics in six
    dimensions, all recovered half of a random rotation and two to four recovered a whole one. Which seeds succeed
    changes with the rounding of the machine. The criterion on held-out sentences tells failures from successes.

    Args:
        source: Unit-length rows (S, d).
        target: Unit-length rows (T, d).
        options: Options of the training.
        seed: Seed. Equal seeds give equal rotations on one machine; PyTorch's global random state is not changed.
        show_progress: Show a progress bar over all steps.

    Yields:
        The matrix W (d, d), float64, after each epoch. It is nearly orthogonal, and `W x` is in the target's space.
    """
    options = options or AdversarialOptions()
    dimension = source.shape[1]
    # Rows of length sqrt(d) have entries of about 1, which the discriminator's initial weights are made for.
    source, target = (rows.float() * dimension**0.5 for rows in (source, target))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        discriminator = _discriminator(dimension, options).to(source.device)
    parameters = list(discriminator.parameters())
    rotation = torch.eye(dimension, device=source.device, requires_grad=True)
    comes_from_source = torch.full((2 * options.batch_size,), options.smoothing, device=source.device)
    comes_from_source[: options.batch_size] = 1 - options.smoothing

    def loss(matrix: Tensor, labels: Tensor) -> Tensor:
        rows = torch.cat([_draw(source, options, generator) @ matrix.T, _draw(target, options, generator)])
        # Dropout by hand: nn.Dropout would draw from PyTorch's global random state.
        keep = torch.rand(rows.shape, generator=generator) >= options.input_dropout
        rows = rows * keep.to(rows) / (1 - options.input_dropout)
        return F.binary_cross_entropy_with_logits(discriminator(rows)[:, 0], labels)

    steps = options.epochs * options.steps_per_epoch
    with tqdm(total=steps, desc="adversarial", disable=not show_progress, leave=False) as bar:
        for epoch in range(options.epochs):
            decay = options.learning_rate_decay**epoch
            for _ in range(options.steps_per_epoch):
                for _ in range(options.discriminator_steps):
                    seen_through = loss(rotation.detach(), comes_from_source)
                    _descend(seen_through, parameters, decay * options.learning_rate)
                fooled = loss(rotation, 1 - comes_from_source)
                _descend(fooled, [rotation], decay * options.rotation_learning_rate)
                with torch.no_grad():
                    rotation.copy_(pull_to_orthogonal(rotation, options.beta))
                bar.update()
            yield rotation.detach().double()


def _discriminator(dimension: int, options: AdversarialOptions) -> nn.Module:
    return nn.Sequential(
        nn.Linear(dimension, options.hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(options.hidden, options.hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(options.hidden, 1),
    )


def _draw(rows: Tensor, options: AdversarialOptions, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(len(rows), (options.batch_size,), generator=generator)
    return rows[drawn.to(rows.device)]


@torch.no_grad()
def _descend(loss: Tensor, parameters: Sequence[Tensor], rate: float) -> None:
    """Take a step of plain SGD on these parameters only; the bookkeeping of torch.optim would double the time."""
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.sub_(gradient, alpha=rate)
