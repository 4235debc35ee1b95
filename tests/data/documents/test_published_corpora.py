"""Pre-training corpora as they are published: CCNet, CC-100, and data sets that are streamed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import datasets
import pytest

from st_xlret.data import DataError, HubDocuments, LoadReport, load_documents
from st_xlret.data.documents.plain_text import read_plain_text
from st_xlret.data.reading import arrow_cache
from st_xlret.data.reading.jsonl import BadLines, Limits
from st_xlret.data.reading.sources import Place
from tests.data.files import write_jsonl, write_text


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(sources: Any, **options: Any) -> list[tuple[Any, ...]]:
        options = {"cache_dir": tmp_path / "cache", "show_progress": False, **options}
        return [tuple(row.values()) for row in load_documents(sources, **options)]

    return read


def write_xz(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode()))
    return file


@pytest.mark.parametrize("end", [".json", ".json.gz"])
def test_ccnet_has_a_paragraph_per_line(tmp_path: Path, read: Any, end: str) -> None:
    page = {
        "url": "u",
        "title": "t",
        "raw_content": "Un titre\nIl pleut. Il fait froid.",
        "language": "fr",
        "bucket": "h",
    }
    file = write_jsonl(tmp_path / "in" / f"fr_head_0000{end}", [page])
    expected = [("Un titre", "fr", 0, 0), ("Il pleut.", "fr", 0, 1), ("Il fait froid.", "fr", 0, 2)]
    # JSON files of other kinds are passed over.
    write_text(tmp_path / "in" / "nq.json", json.dumps([{"question": "q"}], indent=1))
    write_text(tmp_path / "in" / "config.json", "{}")
    assert read(file) == read(tmp_path / "in") == expected


def test_cc100_has_blank_lines_between_documents(tmp_path: Path, read: Any) -> None:
    text = "Un titre\nIl pleut. Il fait froid.\n\nDeux.\n\n\n"
    write_xz(tmp_path / "in" / "fr.txt.xz", text)
    write_xz(tmp_path / "in" / "zh-Hans.txt.xz", "下雨了。\n")
    write_text(tmp_path / "in" / "README.txt", "not read")
    assert read(tmp_path / "in") == [
        ("Un titre", "fr", 0, 0),
        ("Il pleut.", "fr", 0, 1),
        ("Il fait froid.", "fr", 0, 2),
        ("Deux.", "fr", 1, 0),
        ("下雨了。", "zh-hans", 2, 0),
    ]
    with pytest.raises(DataError, match="README.txt.*fr.txt.xz"):
        read(tmp_path / "in" / "README.txt")


def test_text_without_blank_lines_does_not_fill_the_memory(tmp_path: Path) -> None:
    file = write_text(tmp_path / "en.txt", "one two\n" * 10)
    found = list(read_plain_text(file, on_bad_line=BadLines(limits=Limits(line_bytes=20))))
    assert [number for number, _ in found] == [3, 6, 9, 10]
    assert list(read_plain_text(file, after=8))[0][1]["text"] == "one two\n\none two"


def test_a_damaged_xz_file_is_named(tmp_path: Path, read: Any) -> None:
    whole = write_xz(tmp_path / "en.txt.xz", "".join(f"Line {i}.\n\n" for i in range(50_000)))
    whole.write_bytes(whole.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"en.txt.xz, line \d+: the compressed file is truncated or damaged"):
        read(whole)
    assert read(whole, skip_bad_lines=True)[0] == ("Line 0.", "en", 0, 0)


class Killed(Exception):
    pass


def documents_of(folder: Path) -> list[Any]:
    """Three kinds of sources with bad lines, other languages and empty documents among them."""
    rows = [{"language": ("en", "fr", "de")[i % 3], "text": f"One {i}. Two.\n\nThree."} for i in range(60)]
    lines: list[Any] = [*rows[:20], "{", {"language": "en", "sentences": []}, *rows[20:40]]
    write_jsonl(folder / "a.jsonl.gz", lines)
    write_xz(folder / "en.txt.xz", "".join(f"Text {i}.\nMore.\n\n" for i in range(25)))
    return [str(folder), datasets.Dataset.from_list(rows[40:])]


@pytest.mark.parametrize("stop", range(1, 11))
def test_a_killed_reading_is_continued(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    options = {"languages": ["en", "fr"], "skip_bad_lines": True, "min_sentences": 1}
    sources = documents_of(tmp_path / "in")
    whole, report = LoadReport(), LoadReport()
    expected = read(sources, **options, cache_dir=tmp_path / "other", report=whole)
    monkeypatch.setattr(arrow_cache, "ROWS_PER_PART", 12)
    monkeypatch.setattr(arrow_cache, "_ROWS_PER_BATCH", 4)
    written: list[Path] = []
    write = arrow_cache.ArrowCache._write

    def write_some(self: Any, path: Path, *others: Any) -> bool:
        written.append(path)
        if len(written) == stop:
            raise Killed
        return write(self, path, *others)

    monkeypatch.setattr(arrow_cache.ArrowCache, "_write", write_some)
    with pytest.raises(Killed):
        read(sources, **options)
    before = len(written)
    assert read(sources, **options, report=report) == expected
    # The parts that were whole are not written again.
    assert len(written) - before + stop - 1 == len(list((tmp_path / "cache").glob("*.arrow"))) > 10
    assert str(report) == str(whole) and not report.reused
    again = LoadReport()
    assert read(sources, **options, report=again) == expected and again.reused
    assert str(again) == str(whole) and not list((tmp_path / "cache").glob("*.part*.json"))


def test_a_damaged_part_is_read_again(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = documents_of(tmp_path / "in")[:1]
    expected = read(sources, skip_bad_lines=True, cache_dir=tmp_path / "other")
    monkeypatch.setattr(arrow_cache, "ROWS_PER_PART", 12)
    monkeypatch.setattr(arrow_cache, "_ROWS_PER_BATCH", 4)
    assert read(sources, skip_bad_lines=True) == expected
    part = next((tmp_path / "cache").glob("*.part00002.arrow"))
    part.write_bytes(part.read_bytes()[:-1])
    assert read(sources, skip_bad_lines=True) == expected


def parquet(folder: Path, files: int = 3, rows: int = 8) -> Path:
    for file in range(files):
        texts = [f"Page {file} {row}. It ends." for row in range(rows)]
        datasets.Dataset.from_dict({"text": texts}).to_parquet(folder / f"train-{file:05}.parquet")
    return folder


def test_a_data_set_is_streamed_and_continued(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wiki").mkdir()
    name = f"{parquet(tmp_path / 'wiki')}=sw"
    monkeypatch.setattr(arrow_cache, "ROWS_PER_PART", 7)
    monkeypatch.setattr(arrow_cache, "_ROWS_PER_BATCH", 1)
    streamed: list[Any] = []
    records = HubDocuments._records

    def recorded(self: HubDocuments, rows: Any) -> Any:
        for record in records(self, rows):
            if len(streamed) == 15:
                streamed.append("killed")
                raise Killed
            streamed.append(record["text"])
            yield record

    monkeypatch.setattr(HubDocuments, "_records", recorded)
    with pytest.raises(Killed):
        read(name)
    found = read(name)
    assert [row[0] for row in found[::2]] == [f"Page {file} {row}." for file in range(3) for row in range(8)]
    assert {row[1] for row in found} == {"sw"}
    # It went on after the last part, in the second file, without reading the first one again.
    assert streamed[16].startswith("Page 1 4")
    report = LoadReport()
    assert read(name, report=report) == found and report.reused
    parquet(tmp_path / "wiki", rows=9)
    assert len(read(name)) == 54


def test_a_data_set_in_memory_is_continued_by_the_number_of_rows() -> None:
    documents = HubDocuments(datasets.Dataset.from_dict({"text": list("abc")}), "en")
    assert [record["text"] for record in documents.after(Place(0, 2))] == ["c"]
    assert documents.state() is None and documents.total == 3
