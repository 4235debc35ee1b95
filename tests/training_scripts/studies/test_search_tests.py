"""The test sets of the study of search, and the sentences that are not trained on."""

from __future__ import annotations

import json
from pathlib import Path

from training_scripts.studies import search_tests


def test_the_test_set_is_whole_paragraphs_with_their_questions(data: Path, tmp_path: Path) -> None:
    search_tests.write_test_sets(data, tmp_path, 2)
    folder = search_tests.test_set(data, tmp_path, 2)
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    paragraphs = {row["_id"].split("-")[1] for row in corpus}
    assert len(paragraphs) == 2 and len(corpus) == 8 and len(queries) == 4
    judgements = (folder / "qrels/test.tsv").read_text().splitlines()
    assert len(judgements) == 1 + 8 and len((folder / "qrels/test-same-language.tsv").read_text().splitlines()) == 5
    known, asked = {row["_id"] for row in corpus}, {row["_id"] for row in queries}
    assert all(line.split("\t")[0] in asked and line.split("\t")[1] in known for line in judgements[1:])


def test_no_test_sentence_is_trained_on(data: Path, tmp_path: Path) -> None:
    mining = tmp_path / "mining" / "fr-en"
    mining.mkdir(parents=True)
    for split in ("training", "test"):
        (mining / f"fr-en.{split}.fr").write_text(f"fr-1\tCaché {split}.\nfr-2\tSeul.\n")
        (mining / f"fr-en.{split}.en").write_text(f"en-1\tAlone.\nen-2\tHidden {split}.\n")
        (mining / f"fr-en.{split}.gold").write_text("fr-1\ten-2\n")
    search_tests.write_test_sets(data, tmp_path, None, str(mining.parent))
    sentences = search_tests.excluded(tmp_path).read_text().splitlines()
    assert {"Good morning.", "en 0 1", "fr 3?", "Hidden test.", "Hidden training."} <= set(sentences)
    assert "Alone." not in sentences
    held_out = (search_tests.held_out(tmp_path) / "corpus.jsonl").read_text().splitlines()
    english = [row["text"] for row in map(json.loads, held_out) if row["language"] == "en"]
    assert len(english) > 400 and {" ".join(text.split()) for text in english} <= set(sentences)
