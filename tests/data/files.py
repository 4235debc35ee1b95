"""Writing the files that the tests read (text, pairs, questions in both formats), and loading them with a report."""

import gzip
import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset

from st_xlret.data import Counts, load_documents, load_pairs, load_retrieval


def write_bytes(file: Path, data: bytes) -> Path:
    """Write bytes, compressed if the name ends in `.gz` or `.xz`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    compress = {".gz": gzip.compress, ".xz": lzma.compress}.get(file.suffix, bytes)
    file.write_bytes(compress(data))
    return file


def write_text(file: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write a text, compressed if the name ends in `.gz` or `.xz`."""
    return write_bytes(file, text.encode(encoding, "surrogateescape"))


def write_jsonl(file: Path, records: Iterable[Any]) -> Path:
    """Write records, one per line; strings are written as they are."""
    lines = (
        record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
        for record in records
    )
    return write_text(file, "".join(f"{line}\n" for line in lines))


def reporting(load: Callable[..., Any]) -> Any:
    """The loader with the report beside its table."""

    def loader(sources: Any, **options: Any) -> tuple[Dataset, Counts]:
        report = Counts()
        return load(sources, counts=report, **options), report

    return loader


read, load, questions = map(reporting, (load_documents, load_pairs, load_retrieval))


def rows(table: Dataset) -> list[tuple[Any, ...]]:
    """The rows of a table, without the names of its columns."""
    return [tuple(row.values()) for row in table]


def pair(
    source: Any, target: Any, source_language: Any = "en", target_language: Any = "fr"
) -> dict[str, Any]:
    names = ("source", "target", "source_language", "target_language")
    return dict(zip(names, (source, target, source_language, target_language), strict=True))


def moses(folder: Path, sides: dict[str, str], name: str = "X.en-fr") -> None:
    """Write both sides."""
    for end, text in sides.items():
        write_text(folder / f"{name}.{end}", text)


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


def beir(folder: Path, *, end: str = "", split: str = "train", queries: Any = None) -> Path:
    """The questions as a BEIR folder, in which the first has a passage that is judged 0."""
    corpus = [
        {"_id": name, "title": title, "text": text} for name, (title, text) in PARAGRAPHS.items()
    ]
    write_jsonl(folder / f"corpus.jsonl{end}", corpus)
    asked = [
        {"_id": q, "text": text, "metadata": {"answers": [answer]}}
        for q, (text, answer, _) in QUESTIONS.items()
    ]
    write_jsonl(folder / f"queries.jsonl{end}", queries or asked)
    lines = [f"{name}\t{passage}\t1" for name, (_, _, passage) in QUESTIONS.items()]
    judgements = "\n".join(["query-id\tcorpus-id\tscore", *lines, lines[0], "q1\td3\t0\n"])
    write_text(folder / "qrels" / f"{split}.tsv{end}", judgements)
    return folder


def question_rows(file: Path, **changed: Any) -> Path:
    """The questions as rows, each with the passage of another as a negative; `changed` are fields of the first."""
    rows = []
    for text, answer, passage in QUESTIONS.values():
        title, positive = PARAGRAPHS[passage]
        negative = PARAGRAPHS["d1" if passage == "d2" else "d2"][1]
        row = {"query": text, "positive": positive, "title": title, "answers": [answer]}
        rows.append(
            {
                **row,
                "answer_start": max(0, positive.find(answer)),
                "negatives": [positive, negative],
            }
        )
    return write_jsonl(file, [{**rows[0], **changed}, *rows[1:]])


def multilingual_pool(folder: Path, texts: dict[str, list[str]]) -> Path:
    """Translations in BEIR's layout: the question of each text has that text in every language as an answer."""
    rows = [
        (code, f"{code}-{i}", text)
        for code, of_code in texts.items()
        for i, text in enumerate(of_code)
    ]
    for file, prefix, end in (("corpus", "c", ""), ("queries", "q", "?")):
        about = [
            {"_id": f"{prefix}-{name}", "text": text + end, "metadata": {"language": c}}
            for c, name, text in rows
        ]
        write_jsonl(folder / f"{file}.jsonl", about)
    lines = [
        f"q-{name}\tc-{code}-{name.split('-')[1]}\t1\n" for _, name, _ in rows for code in texts
    ]
    write_text(folder / "qrels" / "test.tsv", "".join(["query-id\tcorpus-id\tscore\n", *lines]))
    return folder
