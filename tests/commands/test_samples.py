"""Texts to calibrate on or to measure, from damaged folders in BEIR's layout."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import pytest

from st_xlret.commands.samples import sample_texts
from st_xlret.data import DataError

GOOD = [
    {"_id": "a", "text": "sun", "metadata": {"language": "en"}},
    {"_id": "b", "text": "soleil", "metadata": {"language": "fr"}},
]
BAD = {
    "no JSON": b"{",
    "no object": b"[1]",
    "no text": b'{"_id": "c", "metadata": {"language": "en"}}',
    "a number as text": b'{"_id": "c", "text": 5, "metadata": {"language": "en"}}',
    "an unknown language": b'{"_id": "c", "text": "x", "metadata": {"language": "xx1"}}',
    "not UTF-8": b'{"_id": "c", "text": "\xff", "metadata": {"language": "en"}}',
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_bad_lines_of_a_corpus_are_named_or_skipped(
    tmp_path: Path, name: str, packed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [json.dumps(record).encode() for record in GOOD]
    content = b"\n".join([lines[0], BAD[name], lines[1], b""])
    file = tmp_path / ("corpus.jsonl" + ".gz" * packed)
    file.write_bytes(gzip.compress(content) if packed else content)
    (tmp_path / "queries.jsonl").write_text("")
    with pytest.raises(DataError, match=rf"{file}, line 2: "):
        sample_texts([str(tmp_path)])
    with caplog.at_level(logging.WARNING):
        found = sample_texts([str(tmp_path)], skip_bad_lines=True)
    assert {language: sample.texts for language, sample in found.items()} == {"en": ["sun"], "fr": ["soleil"]}
    assert "1 bad lines were skipped" in caplog.text
