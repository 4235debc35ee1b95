"""Parallel sentences in every format that is read, two pairs in each."""

from __future__ import annotations

from pathlib import Path

from tests.data.files import write_jsonl, write_text


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
