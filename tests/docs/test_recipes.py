"""What `examples/convert.py` makes of published formats is what the loaders read."""

import runpy
from pathlib import Path

import pytest

from st_xlret import load_pairs, load_retrieval
from tests.conftest import REPOSITORY
from tests.data.files import rows

PROGRAM = runpy.run_path(str(REPOSITORY / "examples" / "convert.py"))
COMMANDS = [
    "dpr dpr_train_data.json xor.jsonl --questions xor_train_retrieve_eng_span.jsonl",
    "squad squad.json squad.jsonl",
    "ms-marco triples.tsv ms-marco.jsonl",
    "mr-tydi mrtydi-v1.1-swahili/train.jsonl.gz mr-tydi.sw.jsonl --language sw",
    "mewsli-x wikipedia_pairs-train.jsonl mewsli-x.jsonl",
    "verses bible.jsonl bible-pairs.jsonl",
    "tmx memory.tmx memory.jsonl",
]
QUESTIONS: dict[str, list[tuple[str, ...]]] = {
    "xor.jsonl": [("nani?", "A a text", "B b text", "sw")],
    "mr-tydi.sw.jsonl": [
        ("wapi?", "A a text", "C c text", "sw"),
        ("wapi?", "B b text", "C c text", "sw"),
    ],
}
PAIRS = {
    "bible-pairs.jsonl": [
        ("one", "eins", "en", "de"),
        ("one", "un", "en", "fr"),
        ("two", "zwei", "en", "de"),
    ],
    "memory.jsonl": [("one x", "eins x", "en", "de"), ("one x", "un x", "en", "fr")],
}


def test_published_files_become_what_the_loaders_read(workspace: Path) -> None:
    for command in COMMANDS:
        PROGRAM["main"](command.split())
    for name, expected in QUESTIONS.items():
        assert rows(load_retrieval(workspace / name, negatives=1)) == expected
    for name, pairs in PAIRS.items():
        assert rows(load_pairs(workspace / name)) == pairs
    mention = ("Ann: { Ann } won.", "A runner.", "en")
    assert rows(load_retrieval(workspace / "mewsli-x.jsonl")) == [mention]
    lines = (workspace / "triples.tsv").read_text(encoding="utf-8").splitlines()
    triples = [(*line.split("\t"), "en") for line in lines]
    assert rows(load_retrieval(workspace / "ms-marco.jsonl", negatives=1)) == triples
    squad = workspace / "squad.jsonl"
    passages = load_retrieval(squad, positives="passage")
    sentences = load_retrieval(squad, positives="sentence")
    assert len(passages) == 40
    assert rows(passages) == rows(sentences)
    assert passages[0]["positive"].startswith("Title ")


def test_a_file_that_is_there_is_not_replaced(workspace: Path) -> None:
    with pytest.raises(FileExistsError):
        PROGRAM["main"](["squad", "squad.json", "documents.jsonl"])
