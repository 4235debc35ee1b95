"""What the processes of the distributed tests run; the single process runs the same functions."""

import multiprocessing
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel

from st_xlret.losses.base import CrossLingualLoss
from st_xlret.training.loss_state import average_gradients

Result = dict[str, Any]
Features = list[dict[str, Tensor]]


def run_on_two_ranks(work: Callable[[int, int, Path], Result], folder: Path) -> list[Result]:
    """Results of ``work`` on each of two processes joined by gloo."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # One process imports the libraries, and the ranks of all tests are forked from it.
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["sentence_transformers", "accelerate"]
    )
    mp.start_processes(_join_and_work, (2, port, work, folder), nprocs=2, start_method="forkserver")
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in (0, 1)]


def _join_and_work(
    rank: int, ranks: int, port: int, work: Callable[..., Result], folder: Path
) -> None:
    torch.set_num_threads(1)
    # As torchrun sets them; accelerate reads them too.
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["RANK"] = str(rank)
    os.environ["LOCAL_RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(ranks)
    # The ranks compute on the CPU: on a machine with one GPU, the second would look for another.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    torch.save(work(rank, ranks, folder), folder / f"result-{rank}.pt")
    dist.destroy_process_group()


def train(
    loss: CrossLingualLoss,
    model: SentenceTransformer,
    batches: list[Features],
    labels: list[Tensor | None],
    ranks: int,
) -> Result:
    """Plain gradient descent in double precision.

    The result must not depend on the number of ranks.
    """
    loss.double()
    owned = names_of(loss, loss.owned_parameters())
    trained = {**parameters_of(model), **owned}
    prepare(loss, model, ranks)
    result: Result = {"losses": []}
    for step, (batch, labels_of_step) in enumerate(zip(batches, labels, strict=True)):
        value = loss(batch, labels_of_step)
        if isinstance(value, dict):
            value = sum(value.values())
        value.backward()
        if ranks > 1:
            average_gradients(list(owned.values()))
        result["losses"].append(value.detach())
        for name, parameter in trained.items():
            if parameter.grad is not None:
                result[f"step {step} gradient of {name}"] = parameter.grad.clone()
                with torch.no_grad():
                    parameter -= 0.05 * parameter.grad
            parameter.grad = None
    for name, tensor in loss.owned_state().items():
        result[f"state {name}"] = tensor.clone()
    return result


def prepare(loss: CrossLingualLoss, model: SentenceTransformer, ranks: int) -> None:
    """Wrap the encoder as the host does, and keep state as `LossStateCallback` does."""
    wrapped: Any = model
    if ranks > 1:
        # As the host sets it: with buffers sent, ranks of different numbers of micro-batches wait
        # for each other.
        wrapped = DistributedDataParallel(
            model, find_unused_parameters=True, broadcast_buffers=False
        )
    losses = [module for module in loss.modules() if isinstance(module, CrossLingualLoss)]
    for inner in losses:
        inner.model = wrapped
        inner.state_is_kept = True


def parameters_of(model: SentenceTransformer) -> dict[str, Parameter]:
    """The parameters of an encoder that are trained."""
    trained = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and ".pooler." not in name:
            trained[name] = parameter
    return trained


def names_of(module: Module, parameters: list[Parameter]) -> dict[str, Parameter]:
    """Some parameters of a module, by name."""
    wanted = {id(parameter) for parameter in parameters}
    named = {}
    for name, parameter in module.named_parameters():
        if id(parameter) in wanted:
            named[name] = parameter
    return named
