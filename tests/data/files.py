"""Writing the files that the tests read, and loading them with the counts beside the table."""

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
    if file.suffix == ".gz":
        data = gzip.compress(data)
    if file.suffix == ".xz":
        data = lzma.compress(data)
    file.write_bytes(data)
    return file


def write_text(file: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write a text, compressed if the name ends in `.gz` or `.xz`."""
    return write_bytes(file, text.encode(encoding, "surrogateescape"))


def write_jsonl(file: Path, records: Iterable[Any]) -> Path:
    """Write records, one per line; strings are written as they are."""
    lines = []
    for record in records:
        line = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
        lines.append(f"{line}\n")
    return write_text(file, "".join(lines))


def counting(load: Callable[..., Any]) -> Any:
    """The loader with the counts beside its table."""

    def loader(sources: Any, **options: Any) -> tuple[Dataset, Counts]:
        counts = Counts()
        table = load(sources, counts=counts, **options)
        return table, counts

    return loader


read = counting(load_documents)
load = counting(load_pairs)
questions = counting(load_retrieval)


def rows(table: Dataset) -> list[tuple[Any, ...]]:
    """The rows of a table, without the names of its columns."""
    return [tuple(row.values()) for row in table]


def pair(
    source: Any, target: Any, source_language: Any = "en", target_language: Any = "fr"
) -> dict[str, Any]:
    return {
        "source": source,
        "target": target,
        "source_language": source_language,
        "target_language": target_language,
    }


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
    corpus = []
    for name, (title, text) in PARAGRAPHS.items():
        corpus.append({"_id": name, "title": title, "text": text})
    write_jsonl(folder / f"corpus.jsonl{end}", corpus)
    asked = []
    lines = ["query-id\tcorpus-id\tscore"]
    for name, (text, answer, passage) in QUESTIONS.items():
        asked.append({"_id": name, "text": text, "metadata": {"answers": [answer]}})
        lines.append(f"{name}\t{passage}\t1")
    write_jsonl(folder / f"queries.jsonl{end}", queries or asked)
    lines.append(lines[1])  # once more
    lines.append("q1\td3\t0")
    write_jsonl(folder / "qrels" / f"{split}.tsv{end}", lines)
    return folder


def question_rows(file: Path, **changed: Any) -> Path:
    """The questions as rows, each with the passage of another as a negative.

    `changed` are fields of the first.
    """
    rows: list[dict[str, Any]] = []
    for text, answer, passage in QUESTIONS.values():
        title, positive = PARAGRAPHS[passage]
        _, negative = PARAGRAPHS["d1" if passage == "d2" else "d2"]
        row = {
            "query": text,
            "positive": positive,
            "title": title,
            "answers": [answer],
            "answer_start": max(0, positive.find(answer)),
            "negatives": [positive, negative],
        }
        rows.append(row)
    rows[0].update(changed)
    return write_jsonl(file, rows)


def multilingual_pool(folder: Path, texts: dict[str, list[str]]) -> Path:
    """Translations in BEIR's layout.

    The question of each text has that text in every language as an answer.
    """
    corpus = []
    queries = []
    lines = ["query-id\tcorpus-id\tscore"]
    for code, of_code in texts.items():
        metadata = {"language": code}
        for number, text in enumerate(of_code):
            query = f"q-{code}-{number}"
            document = f"c-{code}-{number}"
            corpus.append({"_id": document, "text": text, "metadata": metadata})
            queries.append({"_id": query, "text": f"{text}?", "metadata": metadata})
            for other in texts:
                lines.append(f"{query}\tc-{other}-{number}\t1")
    write_jsonl(folder / "corpus.jsonl", corpus)
    write_jsonl(folder / "queries.jsonl", queries)
    write_jsonl(folder / "qrels" / "test.tsv", lines)
    return folder
