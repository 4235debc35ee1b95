from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest

from st_xlret.data import DataError, LoadReport, load_documents
from tests.data.files import write_jsonl

Read = tuple[datasets.Dataset, LoadReport]


def document(language: str, *sentences: str) -> dict[str, Any]:
    return {"id": "1", "language": language, "title": "T", "sentences": list(sentences)}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(sources: Any, **options: Any) -> Read:
        report = LoadReport()
        options = {"cache_dir": tmp_path / "cache", "show_progress": False, "report": report, **options}
        return load_documents(sources, **options), report

    return read


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
    assert {name: feature.dtype for name, feature in dataset.features.items()} == {
        "sentence": "string",
        "language": "string",
        "document": "int64",
        "position": "int32",
    }
    assert dataset.cache_files
    assert (report.documents, report.sentences) == (3, 5)
    assert report.languages["en"].one_sentence_documents == 1


def test_numbering_does_not_depend_on_the_order_of_sources(tmp_path: Path, read: Any) -> None:
    files = [write_jsonl(tmp_path / f"{name}.jsonl", [document("en", name)]) for name in "bca"]
    expected = [("a", "en", 0, 0), ("b", "en", 1, 0), ("c", "en", 2, 0)]
    assert rows(read(files)[0]) == rows(read([*reversed(files), files[0]])[0]) == expected


def test_empty_and_short_documents_are_counted(read: Any) -> None:
    records = [document("en"), document("en", "", " "), document("en", "A."), document("en", "A.", "B.")]
    dataset, report = read(records, min_sentences=2)
    assert rows(dataset) == [("A.", "en", 0, 0), ("B.", "en", 0, 1)]
    counts = report.languages["en"]
    assert (counts.empty_documents, counts.short_documents, counts.one_sentence_documents) == (2, 1, 0)
    assert (counts.documents, counts.sentences) == (1, 2)


def test_text_is_split_or_taken_line_by_line(read: Any) -> None:
    record = {"language": "en", "text": "One. Two.\nThree."}
    assert read([record])[0]["sentence"][:] == ["One.", "Two.", "Three."]
    assert read([record], split_text=False)[0]["sentence"][:] == ["One. Two.", "Three."]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not valid JSON"),
        ({"id": "1", "sentences": ["A."]}, "no field 'language'"),
        ({"language": "en", "title": "T"}, "no field 'sentences' or 'text'"),
        ({"language": "xx1", "sentences": ["A."]}, "unknown language code 'xx1'"),
        ({"language": "en", "sentences": "A."}, "field 'sentences' must be a list, found str"),
        ({"language": "en", "sentences": ["A.", 3]}, "a sentence must be a string, found int"),
        ('{"language": "en", "sentences": ["\\ud800"]}', "the text .* half of a surrogate pair"),
        ('{"language": "en", "text": "\\ud800"}', "the text .* half of a surrogate pair"),
    ],
)
def test_bad_lines_are_named_or_counted(tmp_path: Path, read: Any, bad: Any, reason: str) -> None:
    file = write_jsonl(tmp_path / "d.jsonl", [document("en", "A."), bad, document("en", "B.")])
    with pytest.raises(DataError, match=f"d.jsonl, line 2: {reason}.*skip_bad_lines=True"):
        read(file)
    dataset, report = read(file, skip_bad_lines=True)
    assert dataset["sentence"][:] == ["A.", "B."]
    assert report.bad_line_count == 1
    assert report.bad_lines[0][:2] == (str(file), 2)
    assert "bad lines skipped: 1" in str(report)


def test_nothing_half_written_stays_behind(tmp_path: Path, read: Any) -> None:
    file = write_jsonl(tmp_path / "d.jsonl", [document("en", "A."), "{"])
    with pytest.raises(DataError):
        read(file)
    assert [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"] == []


def test_a_full_disk_is_named(tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="no space left .*cache'.*HF_DATASETS_CACHE"):
        read([document("en", "A.")])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_bad_record_in_memory_is_named(read: Any) -> None:
    with pytest.raises(DataError, match="<source 1>, line 2: no field 'language'"):
        read([document("en", "A."), {"sentences": ["B."]}])


def test_language_filter_takes_variants_in_the_same_script(read: Any) -> None:
    records = [document(code, code) for code in ["pt", "pt-BR", "zh", "zh-TW", "fr"]]
    dataset, report = read(records, languages=["pt", "zh"])
    assert dataset["language"][:] == ["pt", "pt", "zh"]
    assert report.other_languages == {"fr": 1, "zh-tw": 1}
    assert read(records)[0]["language"][:] == ["pt", "pt-br", "zh", "zh-tw", "fr"]


def test_a_language_without_documents_is_warned_of(read: Any) -> None:
    with pytest.warns(UserWarning, match="no documents in language 'de'"):
        read([document("en", "A.")], languages=["en", "de"])


def test_nothing_left_is_an_error_that_shows_what_was_there(read: Any) -> None:
    with pytest.raises(DataError, match=r"no documents left(.|\n)*left out by the language filter: en 1"):
        read([document("en", "A.")], languages=["fr"])


def test_limit_of_documents_per_language(read: Any) -> None:
    records = [document("en", f"{i}") for i in range(5)] + [document("fr", "0")]
    dataset, report = read(records, max_documents_per_language=2)
    assert rows(dataset) == [("0", "en", 0, 0), ("1", "en", 1, 0), ("0", "fr", 2, 0)]
    assert report.languages["en"].documents_over_limit == 3


@pytest.mark.parametrize("option", ["min_sentences", "max_documents_per_language"])
def test_limits_below_one_are_refused(read: Any, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be at least 1"):
        read([document("en", "A.")], **{option: 0})


def test_datasets_and_generators_are_sources(read: Any) -> None:
    records = [document("en", "A.", "B."), document("fr", "C.")]
    expected = [("A.", "en", 0, 0), ("B.", "en", 0, 1), ("C.", "fr", 1, 0)]
    dataset = datasets.Dataset.from_list(records)
    assert rows(read(dataset)[0]) == expected
    assert rows(read(dataset.to_iterable_dataset())[0]) == expected
    assert rows(read(record for record in records)[0]) == expected
    assert rows(read(datasets.DatasetDict(train=dataset))[0]) == expected
    assert rows(read([dataset.select([0]), [records[1]]])[0]) == expected


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


def test_a_file_in_a_directory_whose_first_line_is_bad_is_not_passed_over(tmp_path: Path, read: Any) -> None:
    write_jsonl(tmp_path / "in" / "d.jsonl", ["{", document("en", "A.")])
    with pytest.raises(DataError, match="d.jsonl, line 1"):
        read(tmp_path / "in")


@pytest.mark.parametrize(
    ("name", "message"),
    [("gone.jsonl", "no such file or directory"), ("there.json", "does not begin with a document")],
)
def test_wrong_paths_are_named(tmp_path: Path, read: Any, name: str, message: str) -> None:
    write_jsonl(tmp_path / "there.json", [{"data": []}])
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)
    with pytest.raises(DataError, match="no sources given"):
        read([])


def test_unchanged_files_are_not_read_again(tmp_path: Path, read: Any) -> None:
    file = write_jsonl(tmp_path / "d.jsonl", [document("en", "A."), document("en")])
    first, first_report = read(file)
    again, report = read(file)
    assert not first_report.reused
    assert report.reused
    assert rows(again) == rows(first)
    assert str(report) == str(first_report)
    write_jsonl(file, [document("en", "B.")])
    os.utime(file, ns=(1, 1))
    changed, report = read(file)
    assert not report.reused
    assert changed["sentence"][:] == ["B."]
    assert not read(file, languages=["en"])[1].reused


def test_the_report_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="st_xlret"):
        dataset = load_documents([document("en", "A.")], cache_dir=tmp_path, show_progress=False)
    assert dataset["sentence"][:] == ["A."] and "documents" in caplog.text


def test_report_is_a_table(read: Any) -> None:
    report = read([document("en", "A.", "B."), document("fr", "C."), document("fr")])[1]
    header, english, french, total = str(report).splitlines()
    assert header.split()[:3] == ["language", "documents", "sentences"]
    assert english.split() == ["en", "1", "2", "0", "0", "0", "0"]
    assert french.split() == ["fr", "1", "1", "1", "1", "0", "0"]
    assert total.split() == ["total", "2", "3", "1", "1", "0", "0"]
    assert len({len(line) for line in (header, english, french, total)}) == 1


@pytest.mark.real_data
def test_real_documents(real_data: Path, read: Any) -> None:
    folders = [real_data / "tico19" / "documents", real_data / "opensource_guide"]
    dataset, report = read(folders, languages=["en", "fr", "pt", "ru", "zh", "ar", "hi"])
    table = dataset.with_format("arrow")[:]
    documents, positions = table["document"].to_pylist(), table["position"].to_pylist()
    sizes = Counter(documents)
    assert documents == sorted(documents)
    assert positions == [p for number in range(report.documents) for p in range(sizes[number])]
    assert all(sentence.strip() for sentence in table["sentence"].to_pylist())
    assert report.bad_line_count == 0
