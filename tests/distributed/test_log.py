"""The log of two ranks that step on different data sets, as the host's sampler has it."""

from pathlib import Path

import pytest
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from tests import tiny
from tests.distributed.workers import Result, run_on_two_ranks
from tests.training.runs import trainer_of

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def work(rank: int, ranks: int, folder: Path) -> Result:
    """What each step lost on this rank, and the log."""
    model = tiny.static()
    rows = tiny.pairs(24).select_columns(["source", "target"])
    datasets = {"a": rows, "b": rows.select(range(12))}
    losses = {name: MultipleNegativesRankingLoss(model) for name in datasets}
    options = {"logging_strategy": "steps", "logging_steps": 1, "ddp_backend": "gloo"}
    trainer, recorder = trainer_of(folder, losses, datasets, max_steps=4, **options)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    return {"steps": recorder.steps, "lines": lines}


def test_each_loss_has_its_mean_over_the_ranks_that_had_it(tmp_path: Path) -> None:
    first, second = run_on_two_ranks(work, tmp_path)
    counts = set()
    for step, line in enumerate(first["lines"]):
        values: dict[str, list[float]] = {}
        for at, name, value in [*first["steps"], *second["steps"]]:
            if at == step:
                values.setdefault(f"loss_{name}", []).append(value)
        for name, each in values.items():
            mean = sum(each) / len(each)
            assert line[name] == pytest.approx(mean, abs=1e-4)
        assert {name for name in line if name.startswith("loss_")} == set(values)
        counts.add(len(values))
    assert counts == {1, 2}  # both ranks had the same data set, or one each
