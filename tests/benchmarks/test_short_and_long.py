"""The benchmark of short and long texts runs on a tiny encoder. Times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import short_and_long


@pytest.mark.parametrize("precision", short_and_long.PRECISIONS)
def test_both_ways_have_the_same_loss(precision: str) -> None:
    setting = short_and_long.Setting(None, [], rows=32, longest=64, dropout=0.0)
    whole, apart = (short_and_long.step(setting, precision, apart).run() for apart in short_and_long.APART.values())
    torch.testing.assert_close(whole, apart, rtol=1e-4 if precision == "fp32" else 0.05, atol=1e-6)


def test_the_table_has_both_ways_and_the_share_of_padding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents, output = tmp_path / "documents.jsonl", tmp_path / "figures.json"
    lines = [{"language": "en", "sentences": ["a b c", "a b c d a b c d", "a"]} for _ in range(4)]
    documents.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--documents", str(documents), "--rows", "8", "--longest", "16", "--rounds", "1"]
    found = short_and_long.main([*options, "--output", str(output)])
    printed = capsys.readouterr().out
    assert found["rows"] == 8 and 0 < found["padding"] < 1 and json.loads(output.read_text()) == found
    assert all(f"{precision}, {way}" in printed for precision in ("fp32", "bf16") for way in short_and_long.APART)
