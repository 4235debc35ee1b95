"""What a source may be, and where the results are kept."""

from __future__ import annotations

import gzip
import logging
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError, load_documents, load_pairs, load_retrieval
from st_xlret.data.cache import cached_dataset
from st_xlret.data.lines import read_lines
from st_xlret.data.sources import existing_path
from tests.data.files import write_jsonl, write_text

HELLO = {"language": "en", "sentences": ["Hello."]}


@pytest.mark.parametrize("load", [load_documents, load_pairs, load_retrieval])
def test_pipes_and_links_in_circles_are_refused(load: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "d.jsonl")
    with pytest.raises(DataError, match="d.jsonl' is neither a file nor a folder"):
        load(tmp_path / "d.jsonl")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "b.jsonl")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match="a.jsonl"):
        load(tmp_path / "a.jsonl")


def test_folders_with_pipes_and_loops_are_read(tmp_path: Path, read: Any) -> None:
    write_jsonl(tmp_path / "in" / "d.jsonl", [HELLO])
    os.mkfifo(tmp_path / "in" / "pipe.jsonl")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    assert read(tmp_path / "in")[0]["sentence"][:] == ["Hello."]
    assert existing_path(tmp_path / "in" / "again") == tmp_path / "in"


def test_gigabytes_of_blank_lines_are_counted_and_not_held(tmp_path: Path) -> None:
    file = tmp_path / "en.txt.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(b"one\n")
        for _ in range(200):
            stream.write(b"\n" * 1_000_000)
        stream.write(b"two\n")
    tracemalloc.start()
    assert list(read_lines(file)) == [(1, "one"), (200_000_002, "two")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_what_is_lost_of_a_damaged_file_is_said(
    damage: str, tmp_path: Path, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [{"language": "en", "sentences": [f"{i * i:09d}"]} for i in range(20_000)]
    file = write_jsonl(tmp_path / "d.jsonl.gz", lines)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data if damage == "flipped" else data[:-500])
    with pytest.raises(DataError, match=r"d.jsonl.gz, line \d+: "):
        read(file)
    assert read(file, skip_bad_lines=True)[1].bad_line_count and "bad lines skipped" in caplog.text


def test_sentences_that_are_cut_are_said_once(read: Any, caplog: pytest.LogCaptureFixture) -> None:
    read([{"language": "en", "sentences": ["x" * 10_001, "y" * 20_000]}])
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1 and "sentences cut to 10,000 characters: 2" in warned[0]


def test_excluded_sentences_of_documents_are_left_out(tmp_path: Path, read: Any) -> None:
    test = write_text(tmp_path / "test.txt", "HELLO\nbye now\n")
    records = [{"language": "en", "sentences": ["Hello!", "It rained.", "We left."]}, HELLO]
    found, report = read(records, exclude=[test])
    assert found["sentence"][:] == ["It rained.", "We left."] and found["position"][:] == [0, 1]
    assert (report.languages["en"]["excluded"], report.languages["en"]["empty"]) == (2, 1)
    assert len(read(records)[0]) == 4


@pytest.mark.parametrize("file", ["there", "no/such"])
def test_a_cache_that_cannot_be_written_is_replaced(
    file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = write_text(tmp_path / "there", "a file, and no folder")
    found = load_documents([HELLO], cache_dir=blocked / file, show_progress_bar=False)
    assert found["sentence"][:] == ["Hello."] and "cannot be written to" in caplog.text


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
def test_a_damaged_table_is_made_anew(suffix: str, tmp_path: Path) -> None:
    def make() -> list[int]:
        return cached_dataset("n", {"n": "int32"}, ((i,) for i in range(5)), key="k", cache_dir=tmp_path)["n"][:]

    assert make() == make() == list(range(5))
    (kept,) = tmp_path.glob(f"*{suffix}")
    kept.write_bytes(kept.read_bytes()[:-3])
    assert make() == list(range(5))


def test_a_table_of_many_batches(tmp_path: Path) -> None:
    rows = ((i, str(i)) for i in range(250_001))
    table = cached_dataset("n", {"n": "int64", "text": "string"}, rows, key=None, cache_dir=tmp_path)
    assert len(table) == 250_001 and table[250_000] == {"n": 250_000, "text": "250000"}
    assert table["n"][:] == list(range(250_001))
