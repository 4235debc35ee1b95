"""The benchmarks run at toy sizes, and ways that are compared compute the same. Times are never tested."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import losses, measuring, mine_command, search, training_step
from benchmarks.measuring import Comparison

# Comparisons whose steps are of different things.
DIFFERENT = {"encoder", "in_batch", "msm", "joint", "growth"}


def cases(comparisons: Mapping[str, Comparison]) -> list[tuple[str, Comparison]]:
    return [(name, comparisons[name]) for name in comparisons if name not in DIFFERENT]


@pytest.mark.parametrize(
    ("name", "comparison"),
    [*cases(losses.comparisons(True)), *cases(search.comparisons(True))],
    ids=lambda each: str(each)[:20],
)
def test_rivals_compute_the_same(name: str, comparison: Comparison) -> None:
    if comparison.needs:
        pytest.importorskip(comparison.needs)
    ours, *others = (float(build().run()) for build in comparison.steps.values())
    assert others and others == pytest.approx([ours] * len(others), rel=1e-5)


def test_one_pass_for_each_loss_is_one_for_their_sum() -> None:
    steps = losses.comparisons(True)["joint"].steps
    assert float(steps["sequential"]().run()) == pytest.approx(float(steps["sum"]().run()), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "name"), [(losses, "msm"), (losses, "ntxent"), (search, "growth")])
def test_figures_and_ratios(module: object, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "figures.json"
    given = ["--quick", "--only", name, "--output", str(output)]
    found = measuring.main(module.comparisons, "", given)  # type: ignore[attr-defined]
    assert json.loads(output.read_text(encoding="utf-8")) == found and set(found["machine"]) == {
        "cpu",
        "cores",
        "torch",
    }
    if name == "ntxent" and not find_spec("pytorch_metric_learning"):
        assert not found["comparisons"] and "is not installed" in capsys.readouterr().out
        return
    result = found["comparisons"][name]
    assert result["ratios"] and result["title"] in measuring.table(result)
    for ratio in result["ratios"]:
        key = {"time": "seconds", "memory": "peak_bytes"}[ratio["measure"]]
        one, other = (result["figures"][ratio[part]][key] for part in ("of", "to"))
        assert ratio["ratio"] == pytest.approx(one / other)


def test_a_step_in_micro_batches_counts_as_often() -> None:
    build = losses.comparisons(True)["msm"].steps["encoder"]
    plain, thrice = ({"a": 1.0}, {"a": 3.0})
    titles = [
        measuring.measure(Comparison("", {"a": build}, [("a", "a")], rounds=1, memory=False, times=times))
        for times in (plain, thrice)
    ]
    assert all(found["ratios"][0]["ratio"] == 1 for found in titles)


@pytest.mark.slow
def test_mining_as_a_whole() -> None:
    found = mine_command.measure(300, 16, 0.5, [])
    assert found["recall"] > 0.8 and found["precision"] > 0.5 and found["peak_MiB"] > 100


def test_every_way_takes_steps_on_the_weights_that_it_trains() -> None:
    figures = training_step.measure(None, 3, 8, 1)
    assert set(figures) == set(training_step.WAYS)
    assert all(figure["speed"] > 0 for figure in figures.values())
    trained = {way: figure["trained"] for way, figure in figures.items()}
    assert trained["bf16, LoRA of rank 16"] < trained["bf16, frozen word embeddings"] < trained["fp32"]
    assert all(way in training_step.show(figures) for way in figures)
