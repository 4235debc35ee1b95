"""A pool in BEIR's layout for the studies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny
from tests.data.files import write_jsonl, write_text
from training_scripts.studies.measure_search import FURTHER, TATOEBA


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


def write_tatoeba(folder: Path) -> Path:
    """Sentences of six words in each language, of which one, two or three are the translation's."""
    texts = tiny.texts(12)["sentence"][:]
    for place, code in enumerate([*TATOEBA, *FURTHER]):
        own = [" ".join([*text.split()[: 1 + place % 3], *tiny.WORDS[:3]]) for text in texts]
        write_text(folder / f"tatoeba.{code}-eng.{code}", "\n".join(own) + "\n")
        write_text(folder / f"tatoeba.{code}-eng.eng", "\n".join(texts) + "\n")
    return folder
