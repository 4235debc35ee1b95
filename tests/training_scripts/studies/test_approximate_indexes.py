"""Approximate indexes: what they find is compared with the exact search, by raw and by mapped queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.data.files import write_jsonl, write_text
from training_scripts.studies.approximate_indexes import main, shared
from training_scripts.studies.stored_vectors import main as measure_rows


def test_every_index_is_compared_with_the_exact_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.transformer().save(str(tmp_path / "model"))
    texts = tiny.documents(count=160, sentences=2)
    corpus = [
        {"_id": f"{row['language']}-{number}", "text": row["sentence"], "metadata": {"language": row["language"]}}
        for number, row in enumerate(texts)
    ]
    write_jsonl(tmp_path / "pool" / "corpus.jsonl", corpus)
    write_jsonl(tmp_path / "pool" / "queries.jsonl", corpus[::2])
    lines = "".join(f"{row['_id']}\t{row['_id']}\t1\n" for row in corpus[::2])
    for split in ("test", "test-same-language"):
        write_text(tmp_path / "pool" / "qrels" / f"{split}.tsv", lines)
    where = ["--data", str(tmp_path / "pool"), "--output", str(tmp_path / "stored")]
    given = ["--encoder", str(tmp_path / "model"), *where]
    figures = main(given)
    exact = figures["exact search"]
    assert [found for found, _ in exact] == [1, 1]
    rows = measure_rows(given)  # of the same vectors
    expected = [rows[name][3] for name in ("as it is", "lsar, half of the mean, queries alone")]
    assert [100 * recall for _, recall in exact] == pytest.approx(expected, abs=0.051)
    assert list(figures)[-1] == "PQ, 4 bytes" and len(figures) == 1 + 3 + 3 + 1
    assert all(0 < found <= 1 and 0 < recall <= 1 for sides in figures.values() for found, recall in sides)
    assert min(found for found, _ in figures["PQ, 4 bytes"]) < 1
    table = (tmp_path / "stored" / "model-pool-sentences-indexes.md").read_text()
    assert table in capsys.readouterr().out and "| HNSW, 32 links, `efSearch` 64 " in table


def test_the_share_of_the_exact_results() -> None:
    assert shared(np.array([[3, 1], [5, -1]]), np.array([[1, 2], [5, 6]])) == 0.5
