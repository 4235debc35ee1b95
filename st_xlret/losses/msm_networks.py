"""What the masked sentence model does with a batch: finds its blocks, predicts sentences, and projects both sides."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad
from torch import Tensor, nn

from st_xlret.data.languages import check_language, language_to_id
from st_xlret.modules import DocumentEncoder, ProjectionHead

Heads = Literal["separate", "shared", "none"]
WAY_OUT = "draw the batches with Blocks (CrossLingualTrainer does, or batch_sampler=Blocks() in the training arguments)"


class MSMNetworks(nn.Module):
    """Document encoder and projection heads, for all languages or for each group of them (MSM, Tables 4 and 7)."""

    def __init__(
        self,
        document_encoder: DocumentEncoder,
        heads: Heads = "separate",
        language_groups: Sequence[Sequence[str]] = (),
        *,
        separate_heads: bool = False,
    ) -> None:
        super().__init__()
        if heads not in ("separate", "shared", "none"):
            raise ValueError(f"heads must be 'separate', 'shared' or 'none', got {heads!r}")
        if separate_heads and (not language_groups or heads == "none"):
            raise ValueError("separate_heads needs language_groups, and heads to separate")
        self.features, self.heads, self.separate_heads = document_encoder.features, heads, separate_heads
        self.language_groups = [[check_language(code) for code in group] for group in language_groups]
        groups = 1 + len(self.language_groups)
        encoders = [document_encoder, *(deepcopy(document_encoder) for _ in range(groups - 1))]
        for encoder in encoders[1:]:
            encoder.reset_parameters()
        self.document_encoders = nn.ModuleList(encoders)
        # In each group the head of predictions comes first and the head of sentences last.
        sides = {"separate": 2, "shared": 1, "none": 0}[heads]
        self.projections = nn.ModuleList(
            nn.ModuleList(ProjectionHead(self.features) for _ in range(sides))
            for _ in range(groups if separate_heads else 1)
        )

    def predict(
        self, vectors: Tensor, rows: Tensor, present: Tensor, language_id: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Predict sentences from the others of their block."""
        rows, present = (x[present.sum(1) > 1] for x in (rows, present))
        predicted = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        predicted[rows[present]] = True
        result = torch.zeros_like(vectors)
        if not len(rows):
            return result, predicted
        group = self._groups_of(language_id)[rows[:, 0]] if self.language_groups else torch.zeros_like(rows[:, 0])
        for number, encoder in enumerate(self.document_encoders):
            mine = group == number
            if mine.any():
                places, there = rows[mine], present[mine]
                predictions = encoder(vectors[places], there)[there]
                result = result.index_copy(0, places[there], predictions.to(result.dtype))
        return result, predicted

    def project(
        self, predictions: Tensor, vectors: Tensor, predicted: Tensor, language_id: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Pass predictions (S, d), where `predicted` (S,), and sentences (S, d) through the heads of their groups."""
        if self.heads == "none":
            return predictions, vectors
        group = self._groups_of(language_id) if self.separate_heads else torch.zeros_like(predicted, dtype=torch.long)
        everything = torch.ones_like(predicted)
        return self._through(0, predictions, predicted, group), self._through(-1, vectors, everything, group)

    def _through(self, side: int, x: Tensor, rows: Tensor, group: Tensor) -> Tensor:
        result = x
        for number, heads in enumerate(self.projections):
            chosen = (rows & (group == number)).nonzero()[:, 0]
            if len(chosen):
                head: Any = list(heads.children())[side]
                result = result.index_copy(0, chosen, head(x[chosen]).to(x.dtype))
        return result

    def _groups_of(self, language_id: Tensor | None) -> Tensor:
        assert language_id is not None
        group = torch.zeros_like(language_id)
        for number, codes in enumerate(self.language_groups, start=1):
            ids = torch.tensor([language_to_id(code) for code in codes], device=language_id.device)
            group[torch.isin(language_id, ids)] = number
        return group

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the networks, for the model card."""
        encoder: Any = self.document_encoders[0]
        options = {name: getattr(self, name) for name in ("heads", "language_groups", "separate_heads")}
        return {"document_encoder_layers": len(encoder.layers), **options}


def arrange_blocks(block: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Find which row of the batch stands at which place of which block.

    Example:
        >>> rows, present = arrange_blocks(torch.tensor([7, 3, 7]), torch.tensor([5, 0, 2]))
        >>> rows.tolist(), present.tolist()
        ([[1, 0], [2, 0]], [[True, False], [True, True]])
    """
    order = torch.argsort(position, stable=True)
    order = order[torch.argsort(block[order], stable=True)]
    sorted_block, sorted_position = block[order], position[order]
    twice = (sorted_block[1:] == sorted_block[:-1]) & (sorted_position[1:] == sorted_position[:-1])
    if twice.any():
        at = int(twice.nonzero()[0, 0])
        raise ValueError(
            f"block {int(sorted_block[at])} has two sentences at position {int(sorted_position[at])}, and a batch may "
            f"contain a block once: {WAY_OUT}"
        )
    _, number, counts = torch.unique_consecutive(sorted_block, return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(block), device=block.device) - starts[number]
    shape = (len(counts), int(counts.max()) if len(counts) else 0)
    rows = order.new_zeros(shape)
    present = torch.zeros(shape, dtype=torch.bool, device=block.device)
    rows[number, place], present[number, place] = order, True
    return rows, present


def check_blocks(rows: Tensor, present: Tensor, tags: dict[str, Tensor], *, neighbours: bool) -> None:
    """Refuse blocks that mix documents or languages, or are scattered: on them the loss would teach nonsense."""
    for kind in ("document", "language"):
        if f"{kind}_id" not in tags:
            continue
        ids = tags[f"{kind}_id"][rows]
        mixed = ((ids != ids[:, :1]) & present).any(1)
        if mixed.any():
            block = int(mixed.nonzero()[0])
            found = ids[block][present[block]].unique().tolist()
            raise ValueError(
                f"block {block} of the batch has sentences of {len(found)} {kind}s (ids {found[:4]}), and a block is "
                f"a run of one document's sentences: {WAY_OUT}"
            )
    both, position = present[:, 1:], tags["sentence_position"]
    steps = position[rows[:, 1:]] - position[rows[:, :-1]]
    consecutive, pairs = int(((steps == 1) & both).sum()), int(both.sum())
    if neighbours and 2 * consecutive < pairs:
        raise ValueError(
            f"of {pairs} neighbours in the blocks of this batch {consecutive} are consecutive sentences (their "
            f"'position' differs by 1), so these are not runs of a document's sentences: {WAY_OUT}"
        )


def gather_ragged(vectors: Tensor, flags: Tensor, tags: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Gather the rows of all ranks, one rank after the other. Ranks may have different numbers of rows."""
    rows = torch.tensor(len(vectors), device=vectors.device)
    most = rows.clone()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most - rows)
    names = sorted(tags)
    integers = torch.stack([*(tags[name] for name in names), flags.long(), torch.ones_like(flags).long()], 1)
    integers = all_gather(F.pad(integers, (0, 0, 0, missing)))
    filled = integers[:, -1].bool()
    gathered = all_gather_with_grad(F.pad(vectors, (0, 0, 0, missing)).contiguous())
    columns = integers[filled].unbind(1)
    return gathered[filled], columns[-2].bool(), dict(zip(names, columns, strict=False))
