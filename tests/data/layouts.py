"""Tiny retrieval data in every layout that is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.data.files import write_jsonl, write_text

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
