"""The benchmark of optimizer steps runs on a tiny encoder. Times are not tested."""

from __future__ import annotations

import math

from benchmarks import training_step


def test_every_way_takes_steps_on_the_weights_that_it_trains() -> None:
    result = training_step.measure(None, 3, 8, 1)
    figures = result["figures"]
    assert set(figures) == set(training_step.WAYS)
    assert all(math.isfinite(figure["loss"]) and figure["speed"] > 0 for figure in figures.values())
    trained = {way: figure["trained"] for way, figure in figures.items()}
    assert trained["bf16, LoRA of rank 16"] < trained["bf16, frozen word embeddings"] < trained["fp32"]
    assert all(way in training_step.show(result) for way in figures)
