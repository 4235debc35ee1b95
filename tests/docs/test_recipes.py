"""The tables that the recipes of the guide of data make of published formats."""

from pathlib import Path

from st_xlret import load_pairs, load_retrieval
from tests.data.files import rows
from tests.docs.blocks import python_blocks

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "data.md"
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


def test_recipes_make_what_the_loaders_read(workspace: Path) -> None:
    blocks = python_blocks(GUIDE.read_text(encoding="utf-8"))
    exec("\n".join(block.code for block in blocks), {"__name__": "__main__"})
    for name, expected in QUESTIONS.items():
        assert rows(load_retrieval(workspace / name, negatives=1)) == expected
    for name, pairs in PAIRS.items():
        assert rows(load_pairs(workspace / name)) == pairs
    mention = ("Ann: { Ann } won.", "A runner.", "en")
    assert rows(load_retrieval(workspace / "mewsli-x.jsonl")) == [mention]
    triples = [
        line.split("\t")
        for line in (workspace / "triples.tsv").read_text(encoding="utf-8").splitlines()
    ]
    assert rows(load_retrieval(workspace / "ms-marco.jsonl", negatives=1)) == [
        (*triple, "en") for triple in triples
    ]
    squad = workspace / "squad.jsonl"
    passages, sentences = (
        load_retrieval(squad, positives=unit) for unit in ("passage", "sentence")
    )
    assert (
        len(passages) == 40
        and rows(passages) == rows(sentences)
        and passages[0]["positive"].startswith("Title ")
    )
