"""Lines that are too long are bad lines; sentences that are too long are cut, counted and named."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from st_xlret.commands.samples import sample_texts
from st_xlret.data import DataError, LoadReport, PairOptions, PairReport, load_documents, load_pairs
from st_xlret.data.reading.jsonl import BadLines, Limits, read_lines
from st_xlret.options import parse
from st_xlret.training.arguments import DataArguments
from tests.data.files import write_jsonl, write_text
from tests.data.pairs.formats import moses, tmx, unit

LIMITS = Limits(sentence_characters=20)
LONG = "word " * 10


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_over_the_limit_is_a_bad_line(name: str, end: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / name, f"1234567890\n{'x' * 1000}\nthird\n{'y' * 12}{end}")
    bad_lines = BadLines(skip=True, limits=Limits(line_bytes=11))
    assert list(read_lines(file, on_bad_line=bad_lines)) == [(1, "1234567890"), (3, "third")]
    assert [line for _, line, _ in bad_lines.examples] == [2, 4]
    with pytest.raises(DataError, match=r"line 2: the line is longer than 11 bytes$"):
        list(read_lines(file, on_bad_line=BadLines(limits=Limits(line_bytes=11))))


def test_a_line_over_the_limit_is_not_held_in_memory(tmp_path: Path) -> None:
    file = write_text(tmp_path / "a.txt", "x" * 20_000_000 + "\nlast\n")
    tracemalloc.start()
    assert list(read_lines(file, on_bad_line=BadLines(skip=True, limits=Limits(line_bytes=1 << 20)))) == [(2, "last")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_long_sentences_of_documents_are_cut(tmp_path: Path) -> None:
    records = [{"language": "en", "sentences": ["short", LONG]}, {"language": "en", "text": LONG}]
    file, report = write_jsonl(tmp_path / "d.jsonl", records), LoadReport()
    options: dict[str, Any] = {"cache_dir": tmp_path / "cache", "show_progress": False}
    for reused in (False, True):
        found = load_documents(file, limits=LIMITS, report=report, **options)
        assert found["sentence"][:] == ["short", "word word word word", "word word word word"]
        assert report.cut_sentences == [(str(file), 1, 49), (str(file), 2, 49)] and report.reused is reused
        assert report.cut_sentence_count == 2 and f"{file}, line 1: 49 characters" in str(report)
    assert load_documents(file, **options)["sentence"][1] == LONG.strip()


def every_format(folder: Path) -> dict[str, tuple[Path, int]]:
    """A file of each format with a long target in its second entry, and the line that is named."""
    codes = {"source_language": "en", "target_language": "fr"}
    rows = [{"source": "a", "target": "b", **codes}, {"source": "c", "target": LONG, **codes}]
    verses = [
        {"language": code, "sentences": texts, "verses": [1, 2]} for code, texts in (("en", "ac"), ("fr", ["b", LONG]))
    ]
    return {
        "records": (write_jsonl(folder / "a.jsonl", rows), 2),
        "verses": (write_jsonl(folder / "v.jsonl", [{**v, "sentences": list(v["sentences"])} for v in verses]), 2),
        "columns": (write_text(folder / "X.en-fr.tsv", f"a\tb\nc\t{LONG}\n"), 2),
        "scored": (write_text(folder / "Y.en-fr.tsv", f"2\ta\tb\n2\tc\t{LONG}\n"), 2),
        "moses": (moses(folder, {"en": "a\nc\n", "fr": f"b\n{LONG}\n"}, name="Z.en-fr"), 2),
        "tmx": (tmx(folder / "a.tmx", unit(en="a", fr="b") + unit(en="c", fr=LONG.strip())), 2),
    }


@pytest.mark.parametrize("name", ["records", "verses", "columns", "scored", "moses", "tmx"])
def test_long_sentences_of_pairs_are_cut(name: str, tmp_path: Path) -> None:
    (file, line), report = every_format(tmp_path)[name], PairReport()
    options = PairOptions(limits=LIMITS)
    pairs = load_pairs(file, options, report=report, cache_dir=tmp_path / "cache", show_progress=False)
    assert pairs["target"][:] == ["b", "word word word word"]
    assert report.cut_sentences == [(str(file), line, 49)]


@pytest.mark.parametrize("limits", [{"line_bytes": 0}, {"sentence_characters": -1}])
def test_limits_below_one_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        Limits(**limits)


@pytest.mark.parametrize("word", ["line_bytes", "bytes=5", "line_bytes=-1", "line_bytes=0", "line_bytes=1e6", "=5", ""])
def test_words_that_are_no_limits_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"--limits {word}|line_bytes must be at least 1, got 0"):
        Limits.parse([word])


def test_limits_are_options_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    file = write_jsonl(tmp_path / "d.jsonl", [{"language": "en", "sentences": ["a", LONG]}])
    given = ["--documents", str(file), "--limits", "sentence_characters=20", "line_bytes=1000"]
    (options,) = parse([DataArguments], given)
    assert Limits.parse(options.limits) == Limits(1000, 20)
    found = options.load_documents()
    assert found is not None and found["sentence"][:] == ["a", "word word word word"]
    sample = sample_texts([str(file)], limits=Limits(sentence_characters=20))
    assert sorted(sample["en"].texts) == ["a", "word word word word"]


def test_a_folder_of_other_files_says_which_are_read(tmp_path: Path) -> None:
    write_text(tmp_path / "in" / "a.txt", "text\n")
    for load in (load_documents, load_pairs):
        with pytest.raises(DataError, match=r"in'.*(.|\n)*\.jsonl"):
            load(tmp_path / "in", cache_dir=tmp_path, show_progress=False)  # type: ignore[operator]
    with pytest.raises(DataError, match=r"a\.md' is not in a format.*\.jsonl.*sentences"):
        load_documents(write_text(tmp_path / "a.md", "text\n"))


@pytest.mark.parametrize("load", [load_documents, load_pairs])
def test_files_without_content_are_named(load: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl' is empty"):
        load(write_text(tmp_path / "a.jsonl", ""), cache_dir=tmp_path, show_progress=False)
    record = {"language": "en", "sentences": []} | {"source": "", "target": "", "source_language": "en"}
    file = write_jsonl(tmp_path / "b.jsonl", [{**record, "target_language": "fr"}])
    with pytest.raises(DataError, match=rf"left.* in {file}"):
        load(file, cache_dir=tmp_path, show_progress=False)
