from __future__ import annotations

import json
from pathlib import Path

import pytest

from st_xlret.commands import main
from tests.commands.conftest import WORDS

PAIRS = set(zip(*WORDS.values(), strict=True))


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_translations_are_mined_best_first(tmp_path: Path, model: Path, lines: dict[str, str], ending: str) -> None:
    output = tmp_path / f"pairs.{ending}"
    main(["mine", *lines.values(), "--model", str(model), "--output", str(output)])
    rows = output.read_text(encoding="utf-8").splitlines()
    if ending == "tsv":
        pairs = [tuple(row.split("\t")) for row in rows]
    else:
        pairs = [tuple(str(json.loads(row)[key]) for key in ("score", "source", "target")) for row in rows]
    scores = [float(score) for score, _, _ in pairs]
    assert scores == sorted(scores, reverse=True) and {(source, target) for _, source, target in pairs} == PAIRS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["en.txt", "fr.txt", output.name]


def test_pairs_below_the_threshold_and_repeated_texts_are_left_out(
    tmp_path: Path, model: Path, lines: dict[str, str]
) -> None:
    output = tmp_path / "pairs.tsv"
    options = ["mine", *lines.values(), "--model", str(model), "--output", str(output)]
    Path(lines["en"]).write_text("sun\nsun\n\n")
    main(options)
    assert [line.split("\t")[1:] for line in output.read_text().splitlines()] == [["sun", "soleil"]]
    main([*options, "--threshold", "99"])
    assert output.read_text() == ""


def test_kept_embeddings_are_those_of_these_texts(tmp_path: Path, model: Path, lines: dict[str, str]) -> None:
    output, cache = tmp_path / "pairs.tsv", tmp_path / "cache"
    options = ["mine", *lines.values(), "--model", str(model), "--output", str(output), "--embedding_cache", str(cache)]
    main(options)
    first, files = output.read_text(), {file: file.stat().st_mtime_ns for file in cache.rglob("*.npy")}
    main(options)
    assert output.read_text() == first and {file: file.stat().st_mtime_ns for file in cache.rglob("*.npy")} == files
    Path(lines["fr"]).write_text("loup\n")
    main(options)
    assert [line.split("\t")[1:] for line in output.read_text().splitlines()] == [["wolf", "loup"]]


def test_a_model_with_a_map_per_language_is_told_the_languages(
    tmp_path: Path, per_language: Path, lines: dict[str, str]
) -> None:
    output = tmp_path / "pairs.tsv"
    options = ["--source_language", "en", "--target_language", "fra", "--margin", "absolute", "--output", str(output)]
    main(["mine", *lines.values(), "--model", str(per_language), *options])
    assert {line.partition("\t")[0] for line in output.read_text().splitlines()} == {"1.000000"}


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_mined_is_never_written_over(tmp_path: Path, model: Path, lines: dict[str, str], is_link: bool) -> None:
    output = tmp_path / "link.tsv" if is_link else Path(lines["fr"])
    if is_link:
        output.symlink_to(lines["fr"])
    with pytest.raises(SystemExit, match="what is read"):
        main(["mine", *lines.values(), "--model", str(model), "--output", str(output)])
    assert Path(lines["fr"]).read_text().startswith("soleil")
    Path(lines["fr"]).write_text("\n")
    with pytest.raises(SystemExit, match="fr.txt.*no text"):
        main(["mine", *lines.values(), "--model", str(model), "--output", str(tmp_path / "o.tsv")])
