"""The methods that MSM is compared with learn from the same documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny
from training_scripts.studies import train_rival


@pytest.mark.parametrize("objective", ["ict", "contriever", "mlm"])
def test_a_run_of_every_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    sentences: dict[tuple[str, int], list[str]] = {}
    for row in tiny.documents(count=40, sentences=4):
        sentences.setdefault((row["language"], row["document"]), []).append(row["sentence"])
    lines = [json.dumps({"language": code, "sentences": found}) + "\n" for (code, _), found in sentences.items()]
    (tmp_path / "documents.jsonl").write_text("".join(lines), encoding="utf-8")
    options = "--from_scratch tiny --vocabulary 150 --per_device_train_batch_size 6 --span_sentences 3 --use_cpu "
    options += f"--learning_rate 1e-2 --max_steps 4 --logging_steps 2 --save_strategy no --objective {objective}"
    given = [*options.split(), "--documents", str(tmp_path / "documents.jsonl"), "--output_dir", str(tmp_path / "run")]
    results = train_rival.main(given)
    assert results["steps"] == 4 and results["tokens"] > 0
    assert (tmp_path / "run" / "model" / "modules.json").is_file()
    assert f"- {objective}\n" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")


def test_nothing_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--documents"):
        train_rival.main(["--from_scratch", "tiny", "--use_cpu", "--output_dir", str(tmp_path / "run")])
