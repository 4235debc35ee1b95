"""Writing the files that the tests read: text, pairs in every format, questions in every layout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_bytes(file: Path, data: bytes) -> Path:
    """Write bytes, gzipped if the name ends in `.gz`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


def write_text(file: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write a text, gzipped if the name ends in `.gz`."""
    return write_bytes(file, text.encode(encoding))


def write_jsonl(file: Path, records: Iterable[Any]) -> Path:
    """Write records, one per line; strings are written as they are."""
    lines = (record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records)
    return write_text(file, "".join(f"{line}\n" for line in lines))


PARAGRAPHS = {
    "d1": ("Weather", "It rained on Monday. The sun came out at seven."),
    "d2": ("Zoo", "A wolf lives there. It eats fish."),
    "d3": (None, "Nothing of interest."),
}
QUESTIONS = {
    "q1": ("When did the sun come out?", "seven", "d1"),
    "q2": ("Who lives there?", "A wolf", "d2"),
    "q3": ("What does it eat?", "meat", "d2"),
}
SENTENCES = ["The sun came out at seven.", "A wolf lives there.", "A wolf lives there. It eats fish."]


def beir(folder: Path, *, end: str = "", qrels: str | None = None, split: str = "train") -> Path:
    corpus = [{"_id": name, "title": title, "text": text} for name, (title, text) in PARAGRAPHS.items()]
    write_jsonl(folder / f"corpus.jsonl{end}", corpus)
    queries = [
        {"_id": name, "text": text, "metadata": {"answers": [answer]}} for name, (text, answer, _) in QUESTIONS.items()
    ]
    write_jsonl(folder / f"queries.jsonl{end}", queries)
    lines = [f"{name}\t{passage}\t1\n" for name, (_, _, passage) in QUESTIONS.items()]
    text = "query-id\tcorpus-id\tscore\n" + ("".join([*lines, "q1\td3\t0\n"]) if qrels is None else qrels)
    write_text(folder / "qrels" / f"{split}.tsv{end}", text)
    return folder


def dpr(file: Path, **changed: Any) -> Path:
    def context(name: str) -> dict[str, Any]:
        return {"title": PARAGRAPHS[name][0], "text": PARAGRAPHS[name][1], "score": 1.5, "passage_id": name}

    records = [
        {
            "dataset": "nq",
            "question": text,
            "answers": [answer],
            "positive_ctxs": [context(passage), context("d3")],
            "negative_ctxs": [context("d3")],
            "hard_negative_ctxs": [context(passage), context("d1" if passage == "d2" else "d2")],
        }
        for text, answer, passage in QUESTIONS.values()
    ]
    records[0] |= changed
    return write_text(file, json.dumps(records, indent=1))


def squad(file: Path, **changed: Any) -> Path:
    articles = []
    for name, (title, context) in PARAGRAPHS.items():
        questions = [
            {"id": key, "question": text, "answers": [{"text": answer, "answer_start": max(0, context.find(answer))}]}
            for key, (text, answer, passage) in QUESTIONS.items()
            if passage == name
        ]
        articles.append({"title": title, "paragraphs": [{"context": context, "qas": questions}]})
    articles[0] |= changed
    return write_text(file, json.dumps({"version": "1.1", "data": articles}))


def triplets(file: Path, *, ids: bool = False) -> Path:
    if ids:
        lines = ["1\t10\t11", "2\t11\t10"]
        (file.parent / "collection.tsv").write_text("10\tsun and rain\n11\ta wolf\n12\tnothing\n", encoding="utf-8")
        (file.parent / "queries.train.tsv").write_text("1\twhat weather\n2\twhat animal\n", encoding="utf-8")
    else:
        lines = ["what weather\tsun and rain\ta wolf", "what animal\ta wolf\tsun and rain"]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def tmx(file: Path, body: str) -> Path:
    head = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/>\n<body>\n'
    return write_text(file, f"{head}{body}\n</body></tmx>")


def unit(**sides: str) -> str:
    variants = "".join(f'<tuv xml:lang="{k.replace("_", "-")}"><seg>{v}</seg></tuv>' for k, v in sides.items())
    return f"<tu>{variants}</tu>"


def moses(folder: Path, sides: dict[str, str], name: str = "X.en-fr") -> Path:
    """Write both sides; returns the first."""
    return [write_text(folder / f"{name}.{end}", text) for end, text in sides.items()][0]


def every_format(folder: Path) -> Path:
    """A folder of all formats, with files beside them that are not parallel sentences."""
    languages = {"source_language": "en", "target_language": "fr"}
    write_jsonl(folder / "a.jsonl.gz", [{"source": f"a{i}", "target": f"jsonl{i}", **languages} for i in (1, 2)])
    verses = [("en", ["b1", "b2"]), ("fr", ["verses1", "verses2"])]
    documents = [{"language": code, "sentences": texts, "verses": ["X 1:1", "X 1:2"]} for code, texts in verses]
    write_jsonl(folder / "deep" / "verses.jsonl", documents)
    write_jsonl(folder / "documents.jsonl", [{"language": "en", "sentences": ["One."]}])
    tmx(folder / "a.tmx", unit(en="c1", fr="tmx1") + unit(en="c2", fr="tmx2"))
    write_text(folder / "WikiMatrix.en-fr.tsv.gz", "1.2\td1\tmined1\n1.03\td0\tmined0\n1.1\td2\tmined2\n")
    write_text(folder / "my-words.en-fr.tsv", "e1\ttsv1\ne2\ttsv2\n")
    write_text(folder / "en-fr.txt", "f1 muse1\nf2\tmuse2\n")
    moses(folder, {"en": "g1\ng2\n", "fr": "moses1\nmoses2\n"})
    write_text(folder / "NOTICE.txt", "licence\n")
    write_text(folder / "README.md", "# about\n")
    return folder
