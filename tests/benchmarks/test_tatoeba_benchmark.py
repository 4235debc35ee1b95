"""The benchmark of TatoebaEvaluator runs at toy sizes. Times are not tested."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import tatoeba


def test_seconds_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "tatoeba.json"
    given = ["--size", "tiny", "--languages", "2", "--sentences", "20", "--rounds", "1", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["tatoeba", *given])
    tatoeba.main()
    figures = json.loads(output.read_text(encoding="utf-8"))
    assert figures["seconds_encoding"] > 0 and figures["seconds_beyond"] > 0
    assert figures["ratio"] == pytest.approx(figures["seconds_beyond"] / figures["seconds_encoding"])
    assert "2 languages of 20 sentences" in capsys.readouterr().out


def test_sentences_are_distinct() -> None:
    assert len(set(tatoeba.sentences(300, 0))) == 300
    assert tatoeba.sentences(5, 1) == tatoeba.sentences(5, 1) != tatoeba.sentences(5, 2)
