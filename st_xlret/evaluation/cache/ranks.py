"""The processes of one torchrun that share a corpus."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import NamedTuple

import torch.distributed as dist

_LONGEST_WAIT = timedelta(days=7)  # a rank may have hours more to encode than another


class Ranks(NamedTuple):
    """This process among those that share the work.

    Attributes:
        rank: Number of this process.
        world: How many there are.
    """

    rank: int = 0
    world: int = 1

    @property
    def on_this_machine(self) -> int:
        """How many of them write to this machine's disk."""
        return min(self.world, int(os.environ.get("LOCAL_WORLD_SIZE", self.world)))


def join_ranks() -> Ranks:
    """Joins the processes that torchrun has started; alone outside torchrun.

    What they exchange is small and on the CPU, so that gloo serves any machine.

    Example:
        >>> join_ranks()
        Ranks(rank=0, world=1)
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("gloo", timeout=_LONGEST_WAIT)
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()
