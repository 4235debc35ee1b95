import json
from pathlib import Path
from typing import get_type_hints

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.commands import main
from st_xlret.commands.mine import Arguments
from st_xlret.data import load_pairs
from st_xlret.search import mining
from tests.training_scripts.scripts import WORDS


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """A file for each language, with a word a line."""
    for code, words in WORDS.items():
        (tmp_path / f"{code}.txt").write_text("\n".join(words))
    return [str(tmp_path / f"{code}.txt") for code in WORDS]


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_translations_are_mined_best_first(
    tmp_path: Path, model: Path, lines: list[str], ending: str
) -> None:
    output = tmp_path / f"pairs.{ending}"
    main(["mine", *lines, "--model", str(model), "--output", str(output)])
    rows = output.read_text(encoding="utf-8").splitlines()
    pairs = [
        row.split("\t") if ending == "tsv" else [str(value) for value in json.loads(row).values()]
        for row in rows
    ]
    scores = [float(score) for score, *_ in pairs]
    assert scores == sorted(scores, reverse=True)
    assert sorted((source, target) for _, source, target in pairs) == sorted(
        zip(*WORDS.values(), strict=True)
    )
    shown = sorted(path.name for path in tmp_path.glob("[!.]*"))
    assert shown == ["en.txt", "fr.txt", output.name]


def test_mined_json_lines_are_pairs_of_the_languages_named(
    tmp_path: Path, model: Path, lines: list[str]
) -> None:
    output = str(tmp_path / "pairs.jsonl")
    languages = ["--source_language", "eng", "--target_language", "fr"]
    main(["mine", *lines, "--model", str(model), "--output", output, *languages])
    pairs = load_pairs(output, languages=["en", "fr"], min_score=0, cache_dir=tmp_path / "kept")
    assert sorted(zip(pairs["source"], pairs["target"], strict=True)) == sorted(
        zip(*WORDS.values(), strict=True)
    )


@pytest.mark.parametrize("name", ["pairs.tsv.gz", "pairs.csv", "pairs", "pairs.jsonl.gz"])
def test_a_name_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit, match=rf"{name}.*FILE\.tsv or FILE\.jsonl"):
        main(["mine", "a.txt", "b.txt", "--model", "m", "--output", str(tmp_path / name)])


def test_kept_embeddings_are_those_of_these_texts(
    tmp_path: Path, model: Path, lines: list[str]
) -> None:
    output, cache = tmp_path / "pairs.tsv", tmp_path / "cache"
    options = [
        "mine",
        *lines,
        "--model",
        str(model),
        "--output",
        str(output),
        "--embedding_cache",
        str(cache),
    ]
    main(options)
    first, files = (
        output.read_text(),
        {file: file.stat().st_mtime_ns for file in cache.rglob("*.npy")},
    )
    main(options)
    assert (
        output.read_text() == first
        and {file: file.stat().st_mtime_ns for file in cache.rglob("*.npy")} == files
    )
    Path(lines[1]).write_text("loup\nloup\n\n")  # a text that is repeated is one
    main(options)
    assert output.read_text().split("\t")[1:] == ["wolf", "loup\n"]
    main([*options, "--threshold", "99"])
    assert output.read_text() == ""
    kept = len(list(cache.rglob("*.npy")))
    encoder = SentenceTransformer(str(model))
    encoder.prompts["query"] = "another "
    encoder.default_prompt_name = "query"
    encoder.save(str(tmp_path / "prompted"))
    main([*options, "--model", str(tmp_path / "prompted")])
    assert len(list(cache.rglob("*.npy"))) == kept + 2  # those of another prompt are others


def test_a_map_per_language_is_told_the_languages(
    tmp_path: Path, per_language: Path, lines: list[str]
) -> None:
    output = tmp_path / "pairs.tsv"
    options = [
        "--source_language",
        "en",
        "--target_language",
        "fra",
        "--margin",
        "absolute",
        "--output",
        str(output),
    ]
    main(["mine", *lines, "--model", str(per_language), *options])
    assert {line.partition("\t")[0] for line in output.read_text().splitlines()} == {"1.000000"}


@pytest.mark.parametrize(
    "content", ["0.123456\tmeasured\tby me\n", '{"score": 1, "source": "a", "target": "b"}\n']
)
def test_only_what_was_mined_is_replaced(
    tmp_path: Path, model: Path, lines: list[str], content: str
) -> None:
    """A table of somebody else's stays, however alike it is, and so does one that was changed."""
    output = tmp_path / "pairs.tsv"
    command = ["mine", *lines, "--model", str(model), "--output", str(output)]
    output.write_text(content)
    with pytest.raises(SystemExit, match=r"pairs\.tsv"):
        main(command)
    assert output.read_text() == content
    output.unlink()
    main(command)
    main(command)
    output.write_text(output.read_text() + content)
    with pytest.raises(SystemExit, match=r"pairs\.tsv"):
        main(command)
    assert output.read_text().endswith(content)


def test_the_option_has_the_margins_that_there_are() -> None:
    assert get_type_hints(Arguments)["margin"] == mining.Margin
