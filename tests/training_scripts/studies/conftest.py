"""A pool in BEIR's layout for the studies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny
from tests.data.files import write_jsonl, write_text


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    corpus = [
        {
            "_id": f"{row['language']}-{number}",
            "text": row["sentence"],
            "metadata": {"language": row["language"], "context": number // 2},
        }
        for number, row in enumerate(tiny.documents(count=160, sentences=2))
    ]
    write_jsonl(tmp_path / "corpus.jsonl", corpus)
    write_jsonl(tmp_path / "queries.jsonl", corpus[::2])
    for split in ("test", "test-same-language"):
        lines = "".join(f"{row['_id']}\t{row['_id']}\t1\n" for row in corpus[::2])
        write_text(tmp_path / "qrels" / f"{split}.tsv", lines)
    return tmp_path
