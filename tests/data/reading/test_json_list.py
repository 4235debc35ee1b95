"""Entries of one JSON list are those that the standard library reads, however the file is cut into pieces."""

from __future__ import annotations

import io
import json

import pytest

from st_xlret.data.reading import json_list
from st_xlret.data.reading.json_list import stream_list

ENTRIES = [
    {"text": 'quotes " and \\ and \u00fc \U0001f600 ] } ,', "n": [1, -2.5, 1e30, True, None]},
    {"half": "\ud800", "deep": [[[[{}]]]]},
    12345,
    "a string",
    [],
    None,
]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1 << 18])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_entries_are_those_of_the_standard_library(
    chunk: int, ascii_only: bool, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_list, "_CHUNK_BYTES", chunk)
    entries = ENTRIES if ascii_only else [entry for entry in ENTRIES if entry != ENTRIES[1]]
    text = json.dumps(entries, ensure_ascii=ascii_only, indent=indent)
    assert list(stream_list(io.BytesIO(text.encode()), limit=10_000)) == entries
    assert list(stream_list(io.BytesIO(b"\xef\xbb\xbf \n" + text.encode() + b"\n"), limit=10_000)) == entries


@pytest.mark.parametrize("chunk", [3, 1 << 18])
@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "cut short"),
        ("{}", "expected a list"),
        ("[", "cut short"),
        ('[{"a": 1}', "cut short"),
        ('[{"a": 1},', "cut short"),
        ('[{"a": 1} {"a": 2}]', "comma"),
        ('[{"a": }]', "Expecting value"),
        ('[{"a": "b', "Unterminated"),
        ("[tru]", "Expecting value"),
    ],
)
def test_what_is_no_list_is_refused(chunk: int, text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "_CHUNK_BYTES", chunk)
    with pytest.raises(ValueError, match=reason):
        list(stream_list(io.BytesIO(text.encode()), limit=10_000))


def test_an_error_is_found_without_reading_on() -> None:
    stream = io.BytesIO(b'[{"a" 1}, ' + b" " * (1 << 23))
    with pytest.raises(ValueError, match="delimiter"):
        list(stream_list(stream, limit=1 << 26))
    assert stream.tell() < 1 << 20


def test_entries_over_the_limit_are_not_read_to_their_end() -> None:
    stream = io.BytesIO(b'["' + b"x" * (1 << 23))
    with pytest.raises(ValueError, match="longer than 1,000 characters"):
        list(stream_list(stream, limit=1000))
    assert stream.tell() < 1 << 20
