"""The test sets of the study of search, and the sentences whose translations no row may be trained on."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from st_xlret.data.reading.jsonl import read_jsonl
from st_xlret.evaluation.readers.bucc import load_bucc_directory
from st_xlret.files import atomic_directory, write_text_atomically
from training_scripts.demo.encoder import read_sentences, write_pool

HELD_OUT_SENTENCES = 500


def test_set(data: Path, output: Path, paragraphs: int | None) -> Path:
    """The folder of the pool that rows are measured on."""
    return data / "xquad_r" if paragraphs is None else output / f"xquad-{paragraphs}"


def held_out(output: Path) -> Path:
    """The folder of the pool of held-out translations, which learning rates are chosen on."""
    return output / "held-out"


def excluded(output: Path) -> Path:
    """The file of the English sentences of the test sets and of the held-out ones, which are not trained on."""
    return output / "test-sentences.txt"


def write_test_sets(data: Path, output: Path, paragraphs: int | None, mining: str | None = None) -> None:
    """Write the held-out translations, the sentences not to train on, and the smaller pool.

    Args:
        data: Folder of the data.
        output: Folder of the study.
        paragraphs: Paragraphs of XQuAD-R to measure on; None for all.
        mining: Folder of hidden translations to mine, in BUCC's layout.
    """
    sentences = read_sentences(HELD_OUT_SENTENCES)
    if not held_out(output).is_dir():
        write_pool(sentences, held_out(output))
    whole = data / "xquad_r"
    corpus, queries = (list(read_jsonl(next(whole.glob(f"{name}.jsonl*")))) for name in ("corpus", "queries"))
    if not excluded(output).is_file():
        english = {" ".join(row["text"].split()) for _, row in (*corpus, *queries)}
        english |= {" ".join(row["en"].split()) for row in sentences}
        english |= hidden_sentences(mining) if mining else set()
        for file in sorted((data / "tatoeba/v1").glob("*.eng")):
            english |= {" ".join(line.split()) for line in file.read_text(encoding="utf-8").splitlines()}
        write_text_atomically(excluded(output), "\n".join(sorted(english)) + "\n")
    if paragraphs is None or test_set(data, output, paragraphs).is_dir():
        return
    # The id of a sentence is its language, its paragraph and its number.
    paragraph = {row["_id"]: row["_id"].split("-", 1)[1].rsplit("-", 1)[0] for _, row in corpus}
    kept = set(random.Random(5).sample(sorted(set(paragraph.values())), paragraphs))
    with atomic_directory(test_set(data, output, paragraphs)) as folder:
        (folder / "qrels").mkdir()
        asked: set[str] = set()
        for split in ("test", "test-same-language"):
            lines = _judgements(whole, split)
            chosen = [line for line in lines[1:] if paragraph[line.split("\t")[1]] in kept]
            asked |= {line.split("\t")[0] for line in chosen}
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join([lines[0], *chosen]) + "\n", encoding="utf-8")
        for name, rows, wanted in (("corpus", corpus, None), ("queries", queries, asked)):
            texts = [
                row for _, row in rows if (paragraph[row["_id"]] in kept if wanted is None else row["_id"] in wanted)
            ]
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in texts)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def hidden_sentences(mining: str) -> set[str]:
    """The English sides of the translations that are hidden in a test of mining."""
    corpora = [
        corpus
        for split in ("training", "test")
        for corpus in load_bucc_directory(mining, split=split).values()  # type: ignore[arg-type]
    ]
    hidden = set()
    for corpus in corpora:
        text_of = dict(zip(corpus.target.ids, corpus.target.sentences, strict=True))
        hidden |= {" ".join(text_of[name].split()) for _, name in corpus.gold or ()}
    return hidden


def _judgements(folder: Path, split: str) -> list[str]:
    for file in (folder / "qrels" / f"{split}.tsv", folder / "qrels" / f"{split}.tsv.gz"):
        if file.is_file():
            content = file.read_bytes()
            return (gzip.decompress(content) if file.suffix == ".gz" else content).decode().splitlines()
    raise FileNotFoundError(f"{folder / 'qrels'} has no {split}.tsv")
