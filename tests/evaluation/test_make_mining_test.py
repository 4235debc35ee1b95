"""A mining test of hand-made documents: what is hidden, what is not, and that nothing else is."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from st_xlret.data import normalise_text
from st_xlret.evaluation.bucc import load_bucc_directory

VERSES, STORY_LINES, NEWS = 14, 10, 24
SPLITS = ("training", "test")


def verse(language: str, number: int) -> str:
    return f"Verse {number} of the book." if language == "en" else f"{number}. Vers im Buch."


def story(language: str, number: int) -> str:
    return f"The fox met bear {number}." if language == "en" else f"Fuchs trifft Bär {number}."


def write(file: Path, *records: dict[str, Any]) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return file


@pytest.fixture
def verses(tmp_path: Path) -> Path:
    """Two chapters in both languages; two German verses share their text."""
    for language in ("en", "de"):
        texts = [verse(language, number) for number in range(VERSES)]
        if language == "de":
            texts[1] = f"  {texts[0].upper()} "
        for chapter, rows in enumerate((range(6), range(6, VERSES))):
            record = {"id": f"b-{chapter}", "language": language, "verses": [f"B {row}" for row in rows]}
            write(
                tmp_path / "book" / f"{language}{chapter}.jsonl", record | {"sentences": [texts[row] for row in rows]}
            )
    return tmp_path / "book"


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A story in both languages, under one id, and news and a novel in one language each, with a line in common."""
    folder = tmp_path / "others"
    for language in ("en", "de"):
        lines = [story(language, number) for number in range(STORY_LINES)]
        write(folder / f"story.{language}.jsonl", {"id": "fox", "language": language, "sentences": lines})
    news = [f"Rain fell in town {number}." for number in range(NEWS)]
    novel = [f"Kapitel {number}, in dem es regnet." for number in range(2 * NEWS)]
    write(folder / "news.jsonl", {"id": "n", "language": "en", "sentences": [*news, "print(1)", verse("en", 3)]})
    write(folder / "novel.jsonl", {"language": "de", "sentences": [*novel, "print(1)", verse("de", 2)]})
    return folder


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a cache of its own for the data."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    file = repository / "evaluation" / "make_mining_test.py"
    specification = importlib.util.spec_from_file_location("make_mining_test", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "make_mining_test", module)
    specification.loader.exec_module(module)
    return module


def make(program: ModuleType, verses: Path, others: Path | None, output: Path, *options: str) -> Path:
    given = ["--parallel-documents", str(verses), "--output", str(output), "--languages", "de"]
    given += [] if others is None else ["--documents", str(others)]
    program.main([*given, "--sentences", "18", "--gold", "3", *options])
    return output


def translations() -> set[tuple[str, str]]:
    """All pairs that mean the same."""
    of_verses = [(verse("de", number if number != 1 else 0), verse("en", number)) for number in range(VERSES)]
    of_story = [(story("de", number), story("en", number)) for number in range(STORY_LINES)]
    return {(normalise_text(own), normalise_text(other)) for own, other in [*of_verses, *of_story]}


def test_the_files_are_buccs_and_hide_what_their_gold_says(
    program: ModuleType, verses: Path, others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = make(program, verses, others, tmp_path / "mining")
    assert "3 translations among 18 sentences" in capsys.readouterr().out
    kinds = [f"{split}.{part}" for split in SPLITS for part in ("de", "en", "gold")]
    assert sorted(file.name for file in (output / "de-en").iterdir()) == sorted(f"de-en.{kind}" for kind in kinds)
    seen: set[str] = set()
    for split in SPLITS:
        corpus = load_bucc_directory(output, split=split)["de"]  # type: ignore[arg-type]
        german, english = ([normalise_text(text) for text in side.values()] for side in (corpus.source, corpus.target))
        assert len(set(german)) == len(set(english)) == 18 and not set(german) & set(english)
        # No sentence is in two splits, or on both sides.
        assert not seen & {*german, *english}
        seen |= {*german, *english}
        text_of = dict(zip([*corpus.source, *corpus.target], [*german, *english], strict=True))
        gold = {(text_of[own], text_of[other]) for own, other in corpus.gold or ()}
        assert len(gold) == 3
        # All of the gold are translations, and all translations are in the gold.
        assert {pair for pair in translations() if pair[0] in german and pair[1] in english} == gold
        # Ids tell nothing: neither where the hidden ones are nor which belong together.
        assert sorted(corpus.source) == [f"de-{row:06d}" for row in range(1, 19)]
        assert any(own[3:] != other[3:] for own, other in corpus.gold or ())


def test_the_side_that_is_short_of_sentences_has_what_stands_in_both_languages(
    program: ModuleType, verses: Path, others: Path, tmp_path: Path
) -> None:
    filler = program.read_filler([str(others)], ["en", "de"])
    sides = program.fill_of_sides(filler, "de")
    assert story("en", 0) in sides["en"] and not any("Fuchs" in text for text in sides["de"])
    assert len(sides["en"]) == STORY_LINES + NEWS + 2 and len(sides["de"]) == 2 * NEWS + 2
    # English is short of seven sentences: all of the verses that are not hidden stand there.
    output = make(program, verses, others, tmp_path / "mining", "--sentences", "24")
    texts = [(output / "de-en" / f"de-en.{split}.{side}").read_text() for split in SPLITS for side in ("en", "de")]
    english, german = ("".join(texts[side::2]) for side in (0, 1))
    assert german.lower().count("vers im buch") == 6 and english.count("of the book") == 13


def test_too_little_is_an_error_and_nothing_is_written(
    program: ModuleType, verses: Path, others: Path, tmp_path: Path
) -> None:
    output = tmp_path / "mining"
    # Of the two verses with one text one is left out.
    with pytest.raises(ValueError, match="de: 14 translations are to be hidden, there are 13"):
        make(program, verses, others, output, "--gold", "7")
    with pytest.raises(ValueError, match=r"de-en, training: \d+ sentences in (de|en), --sentences asks for 18; give"):
        make(program, verses, None, output)
    with pytest.raises(ValueError, match="no pairs left"):
        make(program, verses, others, output, "--languages", "fr")
    assert not output.exists()
