from __future__ import annotations

import json
from pathlib import Path

import pytest

from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl
from tests.data.files import write_bytes

RECORDS = [{"text": "one"}, {"text": "zwölf"}, {"text": "三"}]


def write(file: Path, lines: list[bytes]) -> Path:
    return write_bytes(file, b"\n".join(lines) + b"\n")


def encoded(records: list[dict]) -> list[bytes]:
    return [json.dumps(record, ensure_ascii=False).encode() for record in records]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_plain_and_gzip_give_numbered_records(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, encoded(RECORDS))
    assert list(read_jsonl(file)) == list(enumerate(RECORDS, start=1))


def test_blank_lines_and_byte_order_mark_do_not_count_as_records(tmp_path: Path) -> None:
    first, *others = encoded(RECORDS)
    file = write(tmp_path / "a.jsonl", [b"\xef\xbb\xbf" + first, b"", b"  \r", *others])
    assert [number for number, _ in read_jsonl(file)] == [1, 4, 5]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": ', "not valid JSON"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b'["text"]', "expected a JSON object, found list"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, line: bytes, reason: str) -> None:
    file = write(tmp_path / "bad.jsonl", [*encoded(RECORDS[:1]), line, *encoded(RECORDS[1:])])
    with pytest.raises(DataError, match=f"bad.jsonl, line 2: {reason}"):
        list(read_jsonl(file))
    bad_lines = BadLines(skip=True)
    assert [number for number, _ in read_jsonl(file, on_bad_line=bad_lines)] == [1, 3, 4]
    assert bad_lines.count == 1
    assert bad_lines.examples[0][:2] == (str(file), 2)
    assert reason in bad_lines.examples[0][2]


def test_a_truncated_gzip_file_is_named_and_what_came_before_is_kept(tmp_path: Path) -> None:
    records = [{"text": f"{i * i:08d}" * 20} for i in range(2_000)]
    file = write(tmp_path / "cut.jsonl.gz", encoded(records))
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(DataError, match=r"cut.jsonl.gz, line \d+: the compressed file is truncated or damaged"):
        list(read_jsonl(file))
    bad_lines = BadLines(skip=True)
    kept = list(read_jsonl(file, on_bad_line=bad_lines))
    assert 0 < len(kept) < len(records)
    assert [record for _, record in kept] == records[: len(kept)]
    assert bad_lines.count == 1


def test_a_file_that_only_pretends_to_be_gzip_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_text('{"text": "one"}\n', encoding="utf-8")
    with pytest.raises(DataError, match="a.jsonl.gz, line 1: the compressed file is truncated or damaged"):
        list(read_jsonl(file))


def test_bytes_read_sum_to_the_file_size(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl.gz", encoded(RECORDS * 500))
    read: list[int] = []
    list(read_jsonl(file, on_bytes_read=read.append))
    assert sum(read) == file.stat().st_size


def test_data_error_is_a_value_error() -> None:
    assert issubclass(DataError, ValueError)
