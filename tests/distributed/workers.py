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
from torch.nn.parallel import DistributedDataParallel

from st_xlret.losses.base import CrossLingualLoss
from st_xlret.training.loss_state import average_gradients
from tests import tiny

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
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in {**address, "LOCAL_RANK": rank}.items()})
    # The ranks compute on the CPU: on a machine with one GPU, the second would look for another.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    torch.save(work(rank, ranks, folder), folder / f"result-{rank}.pt")
    dist.destroy_process_group()


def share(items: list, rank: int, ranks: int) -> list:
    size = len(items) // ranks
    return items[rank * size : (rank + 1) * size]


def train(
    loss: CrossLingualLoss,
    model: SentenceTransformer,
    batches: list[Features],
    ranks: int,
    labels: Any = None,
) -> Result:
    """Plain gradient descent in double precision; the result must not depend on the number of ranks."""
    losses = [module for module in loss.double().modules() if isinstance(module, CrossLingualLoss)]
    names = {id(p): name for name, p in loss.named_parameters()}
    owned = {names[id(p)]: p for p in loss.owned_parameters()}
    encoder = {
        name: p
        for name, p in model.named_parameters()
        if ".pooler." not in name and p.requires_grad
    }
    # As the host sets it: with buffers sent, ranks of different numbers of micro-batches wait for each other.
    options = {"find_unused_parameters": True, "broadcast_buffers": False}
    wrapped: Any = DistributedDataParallel(model, **options) if ranks > 1 else model
    for inner in losses:
        inner.model = wrapped
        inner.state_is_kept = True  # as `LossStateCallback` says
    result: Result = {"losses": []}
    for step, batch in enumerate(batches):
        value: Any = loss(batch, None if labels is None else labels[step])
        value = sum(value.values()) if isinstance(value, dict) else value
        value.backward()
        if ranks > 1:
            average_gradients(list(owned.values()))
        result["losses"].append(value.detach())
        for name, parameter in (encoder | owned).items():
            if parameter.grad is not None:
                result[f"step {step} gradient of {name}"] = parameter.grad.clone()
                with torch.no_grad():
                    parameter -= 0.05 * parameter.grad
            parameter.grad = None
    for name, tensor in loss.owned_state().items():
        result[f"state {name}"] = tensor.clone()
    return result


def mask_every_third(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Masking without chance, so that two ranks hide what one does."""
    chosen = (input_ids > 4) & (input_ids % 3 == 0)
    return input_ids.masked_fill(chosen, tiny.tokenizer().mask_token_id), chosen
