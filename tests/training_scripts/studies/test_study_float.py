"""study_float.py on tiny data: tables, figures, and going on where it stopped."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType

import pytest

from tests.training_scripts.scripts import load_script
from tests.training_scripts.train_ccp_runs import sentence, write_lines

SMALL = "--languages fr --pairs pairs.jsonl --vocabulary 150 --features 16 --steps 30 --batch-sizes 4 --types bf16 fp32"


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "study_float", monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    dice = random.Random(1)
    meanings = [dice.choices(range(12), k=4) for _ in range(80)]
    folder = tmp_path / "data"
    (folder / "tatoeba/v1").mkdir(parents=True)
    pairs = [{"fr": sentence("fr", meaning), "en": sentence("en", meaning)} for meaning in meanings]
    records = [
        {"source_language": "en", "target_language": "fr", "source": pair["en"], "target": pair["fr"]}
        for pair in pairs[20:]
    ]
    write_lines(folder / "pairs.jsonl", records)
    for side, language in (("fra", "fr"), ("eng", "en")):
        lines = "".join(f"{pair[language]}\n" for pair in pairs[:20])
        (folder / "tatoeba/v1" / f"tatoeba.fra-eng.{side}").write_text(lines, encoding="utf-8")
    return folder


def test_gradients_alone(program: ModuleType, tmp_path: Path) -> None:
    results = program.main(["--output", str(tmp_path / "out"), "--batch-sizes", "8", "--types", "bf16"])
    assert [curve["loss"] for curve in results["gradients"]] == ["usual", "cross_entropy", "softplus", "cz_nce"]
    table = (tmp_path / "out" / "gradients.md").read_text(encoding="utf-8")
    assert "8, bf16, usual" in table and "never" in table
    assert json.loads((tmp_path / "out" / "float.json").read_text())["gradients"] == results["gradients"]
    assert not (tmp_path / "out" / "training.md").exists()


def test_trainings_and_going_on(
    program: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*SMALL.split(), "--data", str(data), "--output", str(tmp_path / "out"), "--losses", "usual"]
    first = program.main(command)["trainings"]
    assert [(row["loss"], row["type"]) for row in first] == [("usual", "bf16"), ("usual", "fp32")]
    assert all(0 <= row["accuracy"] <= 1 and row["languages"].keys() == {"fr"} for row in first)
    trained = []
    train = program.train_and_measure
    monkeypatch.setattr(program, "train_and_measure", lambda *args: trained.append(args[3:6]) or train(*args))
    both = program.main([*command, "cz_nce"])["trainings"]
    assert trained == [("cz_nce", "bf16", 4), ("cz_nce", "fp32", 4)]
    assert [row for row in both if row["loss"] == "usual"] == first
    table = (tmp_path / "out" / "training.md").read_text(encoding="utf-8")
    assert "usual" in table and "cz_nce" in table and "4, bf16" in table and "4, fp32" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"\(steps\).*--output"):
        program.main([*command, "--steps", "31"])
