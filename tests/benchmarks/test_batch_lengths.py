"""The benchmark of batch lengths runs on a tiny encoder. Times are not tested."""

from __future__ import annotations

import pytest

from benchmarks import batch_lengths


def test_both_ways_take_the_same_passes() -> None:
    values = [batch_lengths.passes(None, 1, 2, 3, 20, multiple).run() for multiple in (1, 16)]
    assert values[0].item() == pytest.approx(values[1].item(), rel=0.02)


def test_the_table_has_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    found = batch_lengths.main(["--steps", "2", "--texts", "2", "--longest", "12"])
    printed = capsys.readouterr().out
    assert set(found) == set(batch_lengths.MULTIPLES) and all(way in printed for way in found)
