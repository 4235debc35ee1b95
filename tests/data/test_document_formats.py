"""Every format of documents through the reader that all commands share."""

from __future__ import annotations

import gzip
import json
import os
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, HubDocuments, read_documents
from st_xlret.data.lines import BadLines, Limits
from tests.data.files import beir, write_bytes, write_jsonl, write_text

EN, FR = "The cat sleeps. The dog does not.", "Le chat dort. Le chien ne dort pas."


def texts(source: Any, **options: Any) -> list[tuple[str, str]]:
    found = read_documents(source, show_progress_bar=False, **options)
    return [(document.language, text) for document in found for text in document.sentences]


SENTENCES = [("en", "The cat sleeps."), ("en", "The dog does not."), ("fr", "Le chat dort.")]
SENTENCES.append(("fr", "Le chien ne dort pas."))
DOCUMENTS = [("en", EN), ("fr", FR)]
RECORDS = [{"language": "en", "text": EN}, {"language": "fr", "text": FR}]


def written(folder: Path, kind: str, *, tagged: bool = True) -> Path:
    """The two documents in a format, with or without their languages."""
    records = [{k: v for k, v in record.items() if tagged or k != "language"} for record in RECORDS]
    if kind == "parquet":
        Dataset.from_list(records).to_parquet(folder / "d.parquet")
    elif kind == "on disk":
        Dataset.from_list(records).save_to_disk(folder / "d")
        return folder / "d"
    elif kind == "beir":
        metadata = [{"metadata": {"language": r["language"]}} if tagged else {} for r in RECORDS]
        rows = [{"_id": str(i), "text": r["text"], **metadata[i]} for i, r in enumerate(RECORDS)]
        write_jsonl(beir(folder / "d") / "corpus.jsonl", rows)
        return folder / "d"
    elif kind in ("csv", "tsv.gz"):
        mark = "," if kind == "csv" else "\t"
        lines = [mark.join(f'"{v}"' if kind == "csv" else v for v in record.values()) for record in records]
        return write_text(folder / f"d.{kind}", "\n".join([mark.join(records[0]), *lines]) + "\n")
    else:
        return write_jsonl(folder / f"d.{kind}", records)
    return folder / "d.parquet"


KINDS = ["jsonl", "jsonl.gz", "json", "parquet", "csv", "tsv.gz", "beir", "on disk"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_has_texts_and_languages(kind: str, tmp_path: Path) -> None:
    source = written(tmp_path, kind)
    assert texts(source) == texts([source]) == SENTENCES
    assert texts(source, unit="document") == texts(source, unit="text") == DOCUMENTS
    assert texts(source, languages=["fr"], unit="document") == DOCUMENTS[1:]
    if kind != "on disk":
        assert texts(tmp_path) == SENTENCES  # the folder that it is in


@pytest.mark.parametrize("kind", KINDS)
def test_the_language_of_texts_without_one_is_identified(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    source = written(tmp_path, kind, tagged=False)
    assert texts(source, unit="document") == texts(source, unit="document", languages=["fr", "en"]) == DOCUMENTS
    assert texts(source, language="und", unit="document") == [("und", EN), ("und", FR)]
    assert texts(source, language="de", unit="document") == [("de", EN), ("de", FR)]


def test_without_the_identifier_the_ways_out_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(DataError, match=r"d.jsonl, line 1: no field 'language'.*st-xlret\[langid\]"):
        texts(written(tmp_path, "jsonl", tagged=False))


@pytest.mark.parametrize(
    ("name", "content", "column", "expected"),
    [
        ("a.tsv", "1\tone\n2\ttwo\n", "2", ["one", "two"]),
        ("a.tsv", 'text\tn\n"One", he said.\t1\n', None, ['"One", he said.']),
        ("a.csv", 'score,said\n1,"one,\nor two"\n', "said", ["one, or two"]),
        ("a.jsonl", '{"said": "one"}\n{"said": ["two", "three"]}\n', "said", ["one", "two", "three"]),
        ("a.jsonl", '{"text": "no", "sentences": ["one", "two"]}\n', None, ["one", "two"]),
        ("a.jsonl", '{"sentences": [], "text": "one"}\n{"text": null, "content": "two"}\n', None, ["one", "two"]),
        ("a.txt", "One. Two.\nthree\n\n\nfour\n", None, ["One. Two.", "three", "four"]),
        ("a.md", "# Head\n\none\ntwo\n \n\nthree\n", None, ["# Head", "one two", "three"]),
    ],
)
def test_texts_are_taken_as_they_stand(name: str, content: str, column: str, expected: Any, tmp_path: Path) -> None:
    for file in (write_text(tmp_path / name, content), write_text(tmp_path / f"{name}.gz", content)):
        assert [text for _, text in texts(file, unit="text", column=column, language="und")] == expected


def test_a_document_is_one_text(tmp_path: Path) -> None:
    records = [{"language": "ja", "sentences": ["猫。", "犬。"]}, {"language": "en", "sentences": ["One.", "", "Two."]}]
    assert texts(records, unit="document") == [("ja", "猫。犬。"), ("en", "One. Two.")]
    file = write_text(tmp_path / "en.txt", "One. Two.\nThree.\n")
    assert texts(file, unit="document") == [("en", "One. Two."), ("en", "Three.")]
    assert [text for _, text in texts(file)] == ["One.", "Two.", "Three."]


def test_texts_of_one_document_have_its_name_in_common(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "a", "metadata": {"language": "en", "document": "D"}}]
    rows += [{"text": "b", "language": "en", "title": "T"}, {"text": "c", "lang": "en"}]
    found = read_documents(write_jsonl(tmp_path / "d.jsonl", rows), show_progress_bar=False)
    assert [document.name for document in found] == ["D", "T", "3"]


def test_text_files_of_a_folder_need_a_language(tmp_path: Path) -> None:
    write_text(tmp_path / "fr.txt", "un\n")
    write_text(tmp_path / "README.md", "deux\n")
    write_text(tmp_path / "notes.txt", "trois\n")
    assert texts(tmp_path) == [("fr", "un")]
    assert sorted(texts(tmp_path, language="de")) == [("de", "deux"), ("de", "trois"), ("fr", "un")]


def test_columns_of_data_sets(tmp_path: Path) -> None:
    Dataset.from_dict({"n": [1], "words": ["un"], "lang": ["fr"]}).save_to_disk(tmp_path / "d")
    assert texts(tmp_path / "d", column="words") == [("fr", "un")]
    with pytest.raises(DataError, match="needs a text column title; it has: n, words, lang"):
        texts(tmp_path / "d", column="title")
    rows = HubDocuments(Dataset.from_dict({"sentence": ["un"]}), "fr")
    assert texts(rows) == [("fr", "un")]


@pytest.mark.parametrize(
    ("name", "content", "column", "named"),
    [
        ("a.tsv", "one\n", "2", "line 1: no field '2'"),
        ("a.csv", "text,score\n", "title", "line 1: no column is named 'title'; there are: text, score"),
        ("a.csv", "title,score\n1,2\n", None, "line 1: no column is named 'text'; there are: title, score"),
        ("a.csv", "text\none\ntw\ro\n", None, "line 3: no row of a table.*new-line"),
        ("a.csv", 'text\none\n"two\nthree\n', None, "line 4: no row of a table.*unexpected end"),
        ("a.jsonl", '{"text": 3}\n', None, "line 1: field 'text' must be a text or a list of texts, found int"),
        ("a.jsonl", '{"sentences": ["one", 3]}\n', None, "line 1: a sentence must be a string.*3"),
        ("a.parquet", "PAR1", None, "no whole Parquet file"),
        ("a.pdf", "%PDF", None, "is not in a format of documents"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, column: str, named: str) -> None:
    with pytest.raises(DataError, match=rf"{name}'?,? ?:?.*{named}"):
        texts(write_text(tmp_path / name, content), column=column, language="en")


def test_a_parquet_file_with_flipped_bytes_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "parquet")
    data = bytearray(file.read_bytes())
    for place in range(4, len(data) // 3):
        data[place] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"d\.parquet.*Parquet"):
        texts(file)


def test_bad_rows_of_a_table_are_skipped_and_counted(tmp_path: Path) -> None:
    bad_lines = BadLines(skip=True)
    file = write_bytes(tmp_path / "a.csv", b'text\none\n\xff\ntwo\n"three\n')
    assert [text for _, text in texts(file, language="en", bad_lines=bad_lines)] == ["one", "two"]
    assert [line for _, line, _ in bad_lines.bad_lines] == [3, 5]


def test_markdown_with_gigabytes_of_blank_lines_is_not_held(tmp_path: Path) -> None:
    file = tmp_path / "a.md.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(b"one\n")
        for _ in range(100):
            stream.write(b"\n" * 1_000_000)
        stream.write(b"two\n")
    tracemalloc.start()
    assert texts(file, language="en") == [("en", "one"), ("en", "two")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_text_without_blank_lines_does_not_fill_the_memory(tmp_path: Path) -> None:
    file = write_text(tmp_path / "en.txt", "one two\n" * 10)
    found = list(read_documents(file, bad_lines=BadLines(limits=Limits(line_bytes=20)), show_progress_bar=False))
    assert [document.line for document in found] == [3, 6, 9, 10]


def test_pipes_and_deep_records_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "en.txt")
    with pytest.raises(DataError, match="neither a file nor a folder"):
        texts(tmp_path / "en.txt")
    write_text(tmp_path / "in" / "d.json", '{"text": ' + "[" * 100_000)
    with pytest.raises(DataError, match="d.json' does not begin with a document"):
        texts(tmp_path / "in" / "d.json")
    with pytest.raises(DataError, match="no such file.*NAME:CONFIG"):
        texts("some/texts")


def test_metadata_that_is_no_mapping_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(json.dumps({"language": "en", "text": "one", "metadata": [1]}))
    assert texts(tmp_path / "d.jsonl") == [("en", "one")]
