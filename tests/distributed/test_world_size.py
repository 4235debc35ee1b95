"""Two ranks with batches of 4 take the steps of one rank with batches of 8, and a run can go on with another number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor

from st_xlret.batches import pairs_and_others
from st_xlret.losses import (
    CCPLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.modules import ContextualEncoder, LanguageMemoryBank, first_last_encoder
from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import questions, trainer_of

pytestmark = pytest.mark.distributed
GLOBAL_BATCH = 8
KINDS = ["ccp", "msm", "ml-ctl", "joint"]


def parts(kind: str) -> tuple[dict[str, Any], dict[str, Dataset]]:
    """Losses and data sets of a system. Without dropout, which every rank draws by itself."""
    model = tiny.transformer()
    if kind == "ccp":
        losses: dict[str, Any] = {
            "ccp": CCPLoss(model, {"out_features": 16}, LanguageMemoryBank(16, 22), batches={"window_size": 2}),
            "mlm": MaskedLMLoss(model),
            "pairs": SemanticContrastiveLoss(model),
        }
        return losses, {"ccp": tiny.documents(24, 5), "mlm": tiny.texts(48), "pairs": tiny.pairs(48)}
    if kind == "msm":
        msm = MSMLoss(model, {"dropout": 0.0}, num_negatives=5, mini_batch_size=5, batches={"block_size": 4})
        # Documents of 3 to 8 sentences in blocks of up to 4: the ranks have different numbers of sentences.
        rows = [row for row in tiny.documents(48, 8) if row["position"] < 3 + row["document"] % 6]
        return {"msm": msm, "mlm": MaskedLMLoss(model)}, {"msm": Dataset.from_list(rows), "mlm": tiny.texts(200)}
    if kind == "ml-ctl":
        model = first_last_encoder(model)
        words = CZNCELoss(model, ContextualEncoder(32, out_features=8), mlm=MaskedLMLoss(model))
        return {"words": words}, {"words": tiny.pairs(40).map(with_words, with_indices=True)}
    losses = {
        "semantic": SemanticContrastiveLoss(model),
        "language": LangContrastiveLoss(model),
        "retrieval": RetrievalContrastiveLoss(model),
    }
    pairs = tiny.pairs(40)
    return losses, {
        "semantic": pairs_and_others(pairs, None),
        "language": pairs_and_others(pairs, tiny.texts(30)),
        "retrieval": questions(40),
    }


def with_words(row: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        f"{side}_{end}": 1 + number % 2 + 2 * (end == "end")
        for side in ("source", "target")
        for end in ("start", "end")
    }


def run(kind: str, ranks: int, folder: Path, steps: int, save_at: int, resume_from: Path | None = None) -> Result:
    """Losses of every step, and what the run ends with."""
    losses, datasets = parts(kind)
    # In double precision, so that what remains is a fault and no rounding.
    for loss in losses.values():
        loss.double()
    trainer, recorder = trainer_of(
        folder,
        losses,
        datasets,
        per_device_train_batch_size=GLOBAL_BATCH // ranks,
        max_steps=steps,
        learning_rate=1e-3,
        ddp_backend="gloo" if ranks > 1 else None,
        save_strategy="steps",
        save_steps=save_at,
        joint=kind == "joint",
    )
    trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
    model: Any = trainer.model
    owned = {f"{name}/{key}": tensor for name, loss in losses.items() for key, tensor in loss.owned_state().items()}
    return {
        "steps": [(step, name) for step, name, _ in recorder.steps],
        "losses": torch.tensor([value for *_, value in recorder.steps], dtype=torch.float64),
        "state": {key: tensor.clone() for key, tensor in (model.state_dict() | owned).items()},
    }


def check(single: Result, ranks: list[Result], first_step: int = 0) -> None:
    """Two ranks did what one does from a step on, and ended with the same."""
    expected = [i for i, (step, _) in enumerate(single["steps"]) if step >= first_step]
    assert expected
    for rank in ranks:
        assert rank["steps"] == [single["steps"][i] for i in expected]
    # The loss of masked words is that of each rank's own words, weighted such that the mean is that of all.
    mean = torch.stack([rank["losses"] for rank in ranks]).mean(0)
    torch.testing.assert_close(mean, single["losses"][expected], rtol=1e-6, atol=1e-9)
    for key, tensor in single["state"].items():
        for rank in ranks:
            torch.testing.assert_close(
                rank["state"][key], tensor, rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}"
            )


def all_kinds(rank: int, ranks: int, folder: Path, *, steps: int, save_at: int, resume: bool = False) -> Result:
    results = {}
    for kind in KINDS:
        before = folder / f"1-{kind}" / f"checkpoint-{save_at}"
        results[kind] = run(kind, ranks, folder / f"{ranks}-{kind}", steps, save_at)
        if resume and ranks == 2:
            results[f"{kind} resumed"] = run(kind, 2, folder / f"1-{kind}-on-2", steps, steps, before)
    return results


def same_losses(steps: int, folder: Path) -> None:
    save_at = steps // 2
    single = all_kinds(0, 1, folder, steps=steps, save_at=save_at)
    work: Callable[..., Result] = partial(all_kinds, steps=steps, save_at=save_at, resume=True)
    ranks = run_on_two_ranks(work, folder)
    for kind in KINDS:
        check(single[kind], [rank[kind] for rank in ranks])
        # On two ranks from the middle of one rank's run, and the other way round.
        check(single[kind], [rank[f"{kind} resumed"] for rank in ranks], save_at)
        resumed = run(kind, 1, folder / f"2-{kind}-on-1", steps, steps, folder / f"2-{kind}" / f"checkpoint-{save_at}")
        check(single[kind], [resumed], save_at)
    # They were runs worth repeating: the bank is full, the head has learnt statistics, all losses had steps.
    state: dict[str, Tensor] = single["ccp"]["state"]
    assert len(state["ccp/bank.keys"]) == 22 or steps < 20
    assert not torch.equal(state["ccp/head.norm.running_var"], torch.ones(32, dtype=torch.float64))
    assert {name for _, name in single["joint"]["steps"]} == {"semantic", "language", "retrieval"}


def test_a_few_steps(tmp_path: Path) -> None:
    same_losses(6, tmp_path)
