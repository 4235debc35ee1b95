"""MSMLoss on two ranks with different numbers of sentences computes what one rank computes with all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from st_xlret.losses import MaskedLMLoss, MSMLoss
from st_xlret.losses.embedding import take_texts
from st_xlret.modules import DocumentEncoder
from st_xlret.training.loss_state import average_gradients
from tests import tiny
from tests.distributed.workers import Result, keep_state, mask_every_third, train
from tests.losses.batches import EN, block_features

pytestmark = pytest.mark.distributed
OPTIONS: dict[str, dict[str, Any]] = {"one pass": {}, "micro-batches": {"mini_batch_size": 3, "num_negatives": 2}}
# Gradients of the loss's own parameters are exchanged in 32 bits, the ranks' parts nearly cancel, and the next steps
# carry that on. The encoder's first gradients are exact.
ROUNDED = {"rtol": 1e-3, "atol": 2e-5}
# Rows of the first rank: seven sentences of three documents, then nine of four, of which one is alone; then the other
# way round, and at last a rank whose documents have one sentence each.
BATCHES = [((3, 2, 2), (4, 2, 2, 1)), ((4, 2, 2, 1), (2, 2)), ((3, 3), (1, 1))]


def share(model: SentenceTransformer, step: int, rank: int, ranks: int) -> dict[str, Tensor]:
    first, second = BATCHES[step]
    features = block_features(model, (*first, *second), seed=step, languages=[EN] * len((*first, *second)))
    # The last document of the first rank and the first of the second are two blocks of one document.
    last, next_one = 100 * step + len(first) - 1, 100 * step + len(first)
    features["document_id"][features["document_id"] == next_one] = last
    if ranks == 1:
        return features
    rows = torch.arange(sum(first) + sum(second)).split([sum(first), sum(second)])[rank]
    return take_texts(features, rows)


def work(rank: int, ranks: int, folder: Path) -> Result:
    results = {}
    for name, options in OPTIONS.items():
        model = tiny.transformer()
        torch.manual_seed(1)
        loss = MSMLoss(model, DocumentEncoder(32, dropout=0.0), **options)
        batches = [[share(model, step, rank, ranks)] for step in range(len(BATCHES))]
        results[name] = train(loss, model, batches, ranks)
    results["with mlm"] = summed(rank, ranks)
    return results


def summed(rank: int, ranks: int) -> Result:
    """A masked language model added, whose gradients must reach the other rank too."""
    model = tiny.transformer()
    torch.manual_seed(1)
    mlm = MaskedLMLoss(model)
    loss = MSMLoss(model, DocumentEncoder(32, dropout=0.0), mini_batch_size=3, mlm=mlm).double()
    keep_state(loss)
    mlm.mask_tokens = mask_every_third  # type: ignore[method-assign]
    # All rows: which ones are drawn depends on the share of the rank.
    loss._some_texts = lambda columns: columns  # type: ignore[method-assign]
    if ranks > 1:
        loss.model = mlm.model = DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)
    parts = loss([share(model, 0, rank, ranks)])
    assert isinstance(parts, dict)
    torch.stack(list(parts.values())).sum().backward()
    if ranks > 1:
        average_gradients(loss.owned_parameters())
    owned = ((name, p) for name, p in loss.named_parameters() if "model" not in name.split("."))
    return {name: p.grad.clone() for name, p in (*model.named_parameters(), *owned) if p.grad is not None}


@pytest.mark.parametrize("name", [*OPTIONS, "with mlm"])
def test_losses_and_gradients(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (result[name] for result in results)
    if name != "with mlm":
        losses, *of_ranks = (torch.stack(result[name].pop("losses")) for result in results)
        assert torch.equal(*of_ranks)
        torch.testing.assert_close(of_ranks[0], losses, **ROUNDED)
        torch.testing.assert_close(of_ranks[0][0], losses[0], rtol=1e-10, atol=0)
    for part in ("word_embeddings", "document_encoder", "projections"):
        assert any(part in key for key in single)
    assert any("lm_head" in key for key in single) == (name == "with mlm")
    for key in [key for key in single if not key.startswith("state ")]:
        tolerance = {"rtol": 1e-8, "atol": 1e-12} if ".model." in key and "step 0" in key else ROUNDED
        torch.testing.assert_close(ranks[0][key], single[key], **tolerance, msg=lambda m, k=key: f"{k}: {m}")
        assert torch.equal(ranks[0][key], ranks[1][key]), key
