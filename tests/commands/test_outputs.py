"""Every command writes into something new, or over what it has written itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from st_xlret.commands import main


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("report --model m --documents docs.json --output docs.json", "docs.json"),
        ("report --model m --documents docs.json --output bias.json", "bias.png"),
        ("mine docs.txt other.txt --model m --output docs.txt", "docs.txt"),
        ("mine docs.txt other.txt --model m --output pairs.jsonl", "pairs.jsonl"),
        ("evaluate --model m --data data --output t.json", "t.json"),
        ("evaluate --model m --data data --output t.json", "t.md"),
        ("evaluate --compare a=r.json --output t.md", "t.tex"),
        ("index docs --model m --output docs/index.parquet", "docs/a.txt"),
        ("index docs.txt --model m --output other.parquet --overwrite", "other.parquet"),
        ("calibrate --vectors m/vectors.parquet --output m --overwrite", "m/vectors.parquet"),
        ("calibrate --model m --documents m/README.md --output m --overwrite", "m/README.md"),
        ("calibrate --model m --documents docs.json --output m --overwrite", "m/modules.json"),
        ("export m --output m --overwrite", "m/modules.json"),
        ("export m/checkpoint-5 --output m --overwrite", "m/checkpoint-5/modules.json"),
    ],
)
def test_what_is_not_ours_or_is_read_stays(command: str, file: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = {path: '{"benchmark": "bucc"}' for path in ("m/modules.json", "r.json", "t.json")}
    for path, content in {**ours, file: "mine"}.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(content)
    before = {path: path.read_text() for path in Path().rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match=r"^error: (?s:.*)(give another|move it away)"):
        main(command.split())
    assert {path: path.read_text() for path in Path().rglob("*") if path.is_file()} == before
