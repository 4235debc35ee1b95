from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest

from st_xlret.data import DataError
from tests.data.files import write_jsonl


def document(language: str, *sentences: str) -> dict[str, Any]:
    return {"id": "1", "language": language, "title": "T", "sentences": list(sentences)}


def rows(dataset: datasets.Dataset) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dataset]


def test_a_row_per_sentence_with_its_place(tmp_path: Path, read: Any) -> None:
    write_jsonl(tmp_path / "in" / "b.jsonl.gz", [document("fr", "Un.", " ", "Deux\n fois.")])
    write_jsonl(tmp_path / "in" / "a.jsonl", [document("en", "One."), document("en", "A.", "B.")])
    dataset, report = read(tmp_path / "in")
    assert rows(dataset) == [
        ("One.", "en", 0, 0),
        ("A.", "en", 1, 0),
        ("B.", "en", 1, 1),
        ("Un.", "fr", 2, 0),
        ("Deux fois.", "fr", 2, 1),
    ]
    assert [feature.dtype for feature in dataset.features.values()] == ["string", "string", "int64", "int32"]
    assert dataset.cache_files


def test_numbering_does_not_depend_on_the_order_of_sources(tmp_path: Path, read: Any) -> None:
    files = [write_jsonl(tmp_path / f"{name}.jsonl", [document("en", name)]) for name in "bca"]
    expected = [("a", "en", 0, 0), ("b", "en", 1, 0), ("c", "en", 2, 0)]
    assert rows(read(files)[0]) == rows(read([*reversed(files), files[0]])[0]) == expected


def test_languages_without_documents_are_named(read: Any) -> None:
    with pytest.warns(UserWarning, match="no documents in language 'de'"):
        read([document("en", "A.")], languages=["en", "de"])
    with pytest.raises(DataError, match=r"no documents left(.|\n)*left out by the language filter: en 1"):
        read([document("en", "A.")], languages=["fr"])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not valid JSON"),
        ({"language": "en", "title": "T"}, "no field 'sentences' or 'text'"),
        ({"language": "xx1", "sentences": ["A."]}, "unknown language code 'xx1'"),
        ({"language": "en", "sentences": {}}, "field 'sentences' must be a text or a list of texts, found dict"),
        ({"language": "en", "sentences": ["A.", 3]}, "a sentence must be a string, found int"),
        ('{"language": "en", "sentences": ["\\ud800"]}', "the text .* half of a surrogate pair"),
        ('{"language": "en", "text": "\\ud800"}', "the text .* half of a surrogate pair"),
    ],
)
def test_bad_lines_are_named_or_counted(tmp_path: Path, read: Any, bad: Any, reason: str) -> None:
    file = write_jsonl(tmp_path / "d.jsonl", [document("en", "A."), bad, document("en", "B.")])
    with pytest.raises(DataError, match=f"d.jsonl, line 2: {reason}.*skip_bad_lines=True"):
        read(file)
    assert "bad lines skipped: 1" in str(read(file, skip_bad_lines=True)[1])


def test_a_full_disk_is_named(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="no space left .*cache'.*HF_DATASETS_CACHE"):
        read([document("en", "A.")])
    assert list((tmp_path / "cache").iterdir()) == []


def test_language_filter_takes_variants_in_the_same_script(read: Any) -> None:
    records = [document(code, code) for code in ["pt", "pt-BR", "zh", "zh-TW", "fr"]]
    dataset, report = read(records, languages=["pt", "zh"])
    assert dataset["language"][:] == ["pt", "pt", "zh"]
    assert report.other_languages == {"fr": 1, "zh-tw": 1}
    assert read(records)[0]["language"][:] == ["pt", "pt-br", "zh", "zh-tw", "fr"]


def test_datasets_and_generators_are_sources(read: Any) -> None:
    records = [document("en", "A.", "B."), document("fr", "C.")]
    dataset = datasets.Dataset.from_list(records)
    generator, in_splits = (record for record in records), datasets.DatasetDict(train=dataset)
    for source in (dataset, dataset.to_iterable_dataset(), generator, in_splits, [dataset.select([0]), [records[1]]]):
        assert rows(read(source)[0]) == [("A.", "en", 0, 0), ("B.", "en", 0, 1), ("C.", "fr", 1, 0)]


def test_a_directory_gives_only_files_of_documents(tmp_path: Path, read: Any) -> None:
    write_jsonl(tmp_path / "in" / "deep" / "d.jsonl", [document("en", "A.")])
    write_jsonl(tmp_path / "in" / "p.jsonl", [{"source": "A.", "target": "B."}])
    write_jsonl(tmp_path / "in" / "notes.txt", ["not read"])
    dataset, report = read(tmp_path / "in")
    assert dataset["sentence"][:] == ["A."]
    assert report.skipped_files == [str((tmp_path / "in" / "p.jsonl").resolve())]
    (tmp_path / "in" / "deep" / "d.jsonl").unlink()
    with pytest.raises(DataError, match="in.*contains no documents.*jsonl"):
        read(tmp_path / "in")


def test_unchanged_files_are_not_read_again(tmp_path: Path, read: Any) -> None:
    file = write_jsonl(tmp_path / "d.jsonl", [document("en", "A."), document("en")])
    first, first_report = read(file)
    again, report = read(file)
    assert report.reused and not first_report.reused
    assert rows(again) == rows(first) and str(report) == str(first_report)
    write_jsonl(file, [document("en", "B.")])
    os.utime(file, ns=(1, 1))
    changed, report = read(file)
    assert changed["sentence"][:] == ["B."] and not report.reused
    assert not read(file, languages=["en"])[1].reused


def test_report_is_a_table(read: Any) -> None:
    report = read([document("en", "A.", "B."), document("fr", "C."), document("fr")])[1]
    header, english, french, total = str(report).splitlines()
    assert header.split()[:3] == ["documents", "sentences", "one"]
    assert english.split() == ["en", "1", "2", "0", "0"]
    assert french.split() == ["fr", "1", "1", "1", "1"]
    assert total.split() == ["total", "2", "3", "1", "1"]
    assert len({len(line) for line in (header, english, french, total)}) == 1


@pytest.mark.real_data
def test_real_documents(real_data: Path, read: Any) -> None:
    folders = [real_data / "tico19" / "documents", real_data / "opensource_guide"]
    dataset, report = read(folders, languages=["en", "fr", "pt", "ru", "zh", "ar", "hi"])
    table = dataset.with_format("arrow")[:]
    documents, positions = table["document"].to_pylist(), table["position"].to_pylist()
    sizes = Counter(documents)
    assert documents == sorted(documents)
    assert positions == [p for number in range(report.total("documents")) for p in range(sizes[number])]
    assert all(sentence.strip() for sentence in table["sentence"].to_pylist())
    assert report.bad_line_count == 0
