"""The losses over parallel sentences: two ranks compute what one computes with a batch twice as large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from st_xlret.losses import (
    CrossLingualLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.modules import ContextualEncoder, first_last_encoder
from st_xlret.training.loss_state import average_gradients
from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks, share
from tests.losses.routers import columns, two_encoders

pytestmark = pytest.mark.distributed
LOSSES = ["sentences", "words and masked words", "semantic", "language", "language, router", "distillation"]


def parallel_losses(rank: int, ranks: int, folder: Path) -> Result:
    """Some steps of each loss with the rank's share of the batches."""
    return {name: some_steps(name, rank, ranks) for name in LOSSES}


def build(name: str) -> tuple[Any, CrossLingualLoss]:
    torch.manual_seed(0)
    if name == "language, router":
        model = two_encoders()[0]
        return model, LangContrastiveLoss(model, reduction="paper")
    model = tiny.transformer()
    if name == "sentences":
        return model, CZNCELoss(model)
    if name == "distillation":
        return model, SimilarityDistillationLoss(model, torch.randn(40, 32), bank_size=10, temperature=0.1)
    if name == "words and masked words":
        model = first_last_encoder(model)
        mlm = MaskedLMLoss(model)
        mlm.mask_tokens = mask_every_third  # type: ignore[method-assign]
        return model, CZNCELoss(model, ContextualEncoder(32, out_features=8), mlm=mlm)
    return model, (SemanticContrastiveLoss if name == "semantic" else LangContrastiveLoss)(model)


def mask_every_third(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    chosen = (input_ids > 4) & (input_ids % 3 == 0)
    return input_ids.masked_fill(chosen, tiny.tokenizer().mask_token_id), chosen


def batch(step: int) -> list[dict[str, Any]]:
    pairs = tiny.pairs(36).to_list()
    rows = [{**row, "other": other["target"]} for row, other in zip(pairs[:18], pairs[18:], strict=True)]
    for i, row in enumerate(rows):
        for side in ("source", "target"):
            row |= {f"{side}_start": 1 + i % 2, f"{side}_end": 3 + i % 2}
    rows = rows[6 * step : 6 * step + 6]
    # The same pair on both ranks.
    rows[5] = rows[0]
    return rows


def some_steps(name: str, rank: int, ranks: int) -> Result:
    """Plain gradient descent in double precision; the result must not depend on the number of ranks."""
    model, loss = build(name)
    names = {"language": ("source", "target", "other"), "distillation": ("target",)}.get(
        name.partition(",")[0], ("source", "target")
    )
    loss.double().state_is_kept = True
    if ranks > 1:
        wrapped = DistributedDataParallel(model, find_unused_parameters=True)
        for module in loss.modules():
            if isinstance(module, CrossLingualLoss):
                module.model = wrapped  # type: ignore[assignment]
    encoder = {key: p for key, p in model.named_parameters() if ".pooler." not in key and p.requires_grad}
    owned = loss.owned_parameters()
    result: Result = {"losses": []}
    for step in range(3):
        labels = torch.tensor(share([7 * step + row for row in range(6)], rank, ranks))
        value: Any = loss(columns(model, share(batch(step), rank, ranks), names), labels)
        value = sum(value.values()) if isinstance(value, dict) else value
        value.backward()
        if ranks > 1:
            average_gradients(owned)
        result["losses"].append(value.detach())
        parameters = encoder | {f"owned {i}": p for i, p in enumerate(owned)}
        for key, parameter in parameters.items():
            if parameter.grad is None:
                continue
            result[f"step {step} gradient of {key}"] = parameter.grad.clone()
            with torch.no_grad():
                parameter -= 0.05 * parameter.grad
            parameter.grad = None
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result, Result]:
    """Of one rank, and of each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    first, second = run_on_two_ranks(parallel_losses, folder)
    return parallel_losses(0, 1, folder), first, second


@pytest.mark.parametrize("name", LOSSES)
def test_losses(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (torch.stack(result[name]["losses"]) for result in results)
    torch.testing.assert_close(torch.stack(ranks).mean(0), single)
    if "masked" not in name and name != "distillation":  # each rank predicts its own tokens, or reaches its own goals
        assert torch.equal(*ranks)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (result[name] for result in results)
    gradients = [key for key in single if "gradient of" in key]
    assert any("word_embeddings" in key for key in gradients)
    assert any("owned" in key for key in gradients) == (name == "words and masked words")
    if "router" in name:
        used = [key for key in gradients if single[key].abs().sum() > 0]
        assert used and all(".document." in key for key in used)
    for key in gradients:
        for rank in ranks:
            torch.testing.assert_close(rank[key], single[key], rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")
        assert torch.equal(ranks[0][key], ranks[1][key]), key
