"""A small copy of the data of the study of search."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("tico19/pairs", "tico19/documents", "tensorflow_docs/pairs", "tatoeba/v1", "xquad_r/qrels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tatoeba/v1/tatoeba.fra-eng.eng").write_text("Good  morning.\n", encoding="utf-8")
    corpus, queries, same, every = [], [], ["query-id\tcorpus-id\tscore"], ["query-id\tcorpus-id\tscore"]
    for paragraph in range(4):
        for code in ("en", "fr"):
            corpus += [{"_id": f"{code}-0{paragraph}-0-{n}", "text": f"{code} {paragraph} {n}"} for n in range(2)]
            queries.append({"_id": f"q-{code}-{paragraph}", "text": f"{code} {paragraph}?"})
            same.append(f"q-{code}-{paragraph}\t{code}-0{paragraph}-0-1\t1")
            every += [f"q-{code}-{paragraph}\t{other}-0{paragraph}-0-1\t1" for other in ("en", "fr")]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "xquad_r" / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "xquad_r/qrels/test.tsv.gz").write_bytes(gzip.compress("\n".join(every).encode()))
    (folder / "xquad_r/qrels/test-same-language.tsv").write_text("\n".join(same))
    return folder
