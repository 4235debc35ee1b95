"""What the processes of the distributed tests run; the single process runs the same functions."""

from __future__ import annotations

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

from st_xlret.losses import CCPLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.losses.base import CrossLingualLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
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
    multiprocessing.get_context("forkserver").set_forkserver_preload(["sentence_transformers", "accelerate"])
    mp.start_processes(_join_and_work, (2, port, work, folder), nprocs=2, start_method="forkserver")
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in (0, 1)]


def _join_and_work(rank: int, ranks: int, port: int, work: Callable[..., Result], folder: Path) -> None:
    torch.set_num_threads(1)
    # As torchrun sets them; accelerate reads them too.
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in {**address, "LOCAL_RANK": rank}.items()})
    # The ranks compute on the CPU: on a machine with one GPU, the second would look for another.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
    torch.save(work(rank, ranks, folder), folder / f"result-{rank}.pt")
    dist.destroy_process_group()


def losses_and_gradients(rank: int, ranks: int, folder: Path) -> Result:
    """Some steps of each loss with the rank's share of the batches."""
    return {
        "ccp": ccp(rank, ranks, "total"),
        "ccp per language": ccp(rank, ranks, "per_language"),
        "pairs": pairs(rank, ranks),
        "mlm": mlm(rank, ranks),
    }


def share(items: list, rank: int, ranks: int) -> list:
    size = len(items) // ranks
    return items[rank * size : (rank + 1) * size]


def ccp(rank: int, ranks: int, scope: str) -> Result:
    model = tiny.transformer()
    head = AsymmetricBNHead(32, out_features=8)
    bank = LanguageMemoryBank(8, 13, scope=scope)  # type: ignore[arg-type]
    batches = []
    for step in range(4):
        rows = tiny.window_rows(8, seed=step, language=("en", "fr")[step % 2])
        mine = share(rows[:8], rank, ranks) + share(rows[8:], rank, ranks)
        batches.append([tiny.features(model, mine)])
    return train(CCPLoss(model, head, bank), model, batches, ranks)


def pairs(rank: int, ranks: int) -> Result:
    model = tiny.transformer()
    rows = tiny.pairs(24).to_list()
    batches = []
    for step in range(3):
        mine = share(rows[step * 8 : step * 8 + 8], rank, ranks)
        batches.append([tiny.features(model, mine, side) for side in ("source", "target")])
    return train(SemanticContrastiveLoss(model), model, batches, ranks)


def mlm(rank: int, ranks: int) -> Result:
    model = tiny.transformer()
    loss = MaskedLMLoss(model)
    mask = tiny.tokenizer().mask_token_id

    def mask_every_third(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        chosen = (input_ids > 4) & (input_ids % 3 == 0)
        return input_ids.masked_fill(chosen, mask), chosen

    loss.mask_tokens = mask_every_third  # type: ignore[method-assign]
    rows = [row["sentence"] for row in tiny.window_rows(12)]
    # In the last batch the second rank has nothing to predict.
    texts = [rows[:8], rows[8:16], rows[16:20] + [""] * 4]
    batches = [[model.preprocess(share(batch, rank, ranks))] for batch in texts]
    return train(loss, model, batches, ranks)


def train(loss: CrossLingualLoss, model: SentenceTransformer, batches: list[Features], ranks: int) -> Result:
    """Plain gradient descent in double precision; the result must not depend on the number of ranks."""
    loss.double().state_is_kept = True
    if ranks > 1:
        loss.model = DistributedDataParallel(model, find_unused_parameters=True)
    encoder = {name: p for name, p in model.named_parameters() if ".pooler." not in name}
    owned = {name: p for name, p in loss.named_parameters() if not name.startswith("model.")}
    result: Result = {"losses": []}
    for step, batch in enumerate(batches):
        value = loss(batch)
        value.backward()
        if ranks > 1:
            average_gradients(list(owned.values()))
        result["losses"].append(value.detach())
        for name, parameter in (encoder | owned).items():
            if parameter.grad is not None:
                result[f"step {step} gradient of {name}"] = parameter.grad.clone()
        with torch.no_grad():
            for parameter in (encoder | owned).values():
                if parameter.grad is not None:
                    parameter -= 0.05 * parameter.grad
                parameter.grad = None
    for name, tensor in loss.owned_state().items():
        result[f"state {name}"] = tensor.clone()
    return result
