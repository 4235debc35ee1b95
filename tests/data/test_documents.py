from __future__ import annotations

import errno
import gzip
import json
import lzma
import os
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset

from st_xlret.data import DataError, HubDocuments, LoadReport, load_documents, read_documents
from st_xlret.data.lines import BadLines, Limits
from tests.data.files import beir, write_bytes, write_jsonl, write_text


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
        write_jsonl(folder / "d" / "documents.jsonl", [{"language": "en", "text": "Not of the corpus."}])
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
    assert texts(source, unit="sentence") == texts([source], unit="sentence") == SENTENCES
    assert texts(source, unit="document") == texts(source, unit="text") == DOCUMENTS
    assert texts(source, languages=["fr"], unit="document") == DOCUMENTS[1:]
    if kind != "on disk":
        assert texts(tmp_path, unit="sentence") == SENTENCES  # the folder that it is in


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
    write_jsonl(tmp_path / "d.jsonl", [document("en", "A.")])
    assert texts(tmp_path) == [("en", "A."), ("fr", "un")]
    assert sorted(texts(tmp_path, language="de")) == [("de", "deux"), ("de", "trois"), ("en", "A."), ("fr", "un")]


def test_a_folder_of_text_files_alone_is_read_whole(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    write_text(tmp_path / "notes.md", f"{EN}\n")
    write_text(tmp_path / "deep" / "more.txt", f"{FR}\n")
    assert sorted(texts(tmp_path, unit="document")) == DOCUMENTS
    write_text(tmp_path / "pairs.jsonl", json.dumps({"source": "A.", "target": "B."}))
    with pytest.raises(DataError, match="contains no documents.*or it has nothing else"):
        texts(tmp_path)


def test_a_unit_of_its_own_for_each_source(tmp_path: Path) -> None:
    row = {"text": "One. Two.", "language": "en"}
    beir = write_jsonl(tmp_path / "beir" / "corpus.jsonl", [{"_id": "a", **row}]).parent
    other = write_jsonl(tmp_path / "other" / "d.jsonl", [row]).parent
    assert [text for _, text in texts([beir, other])] == ["One. Two.", "One.", "Two."]
    assert [text for _, text in texts(beir, unit="sentence")] == ["One.", "Two."]


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


def read_rows(read: Any, *given: Any, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read(*given, **options)[0]]


def write_xz(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode()))
    return file


@pytest.mark.parametrize("end", [".json", ".json.gz"])
def test_ccnet_has_a_paragraph_per_line(tmp_path: Path, read: Any, end: str) -> None:
    page = {
        "url": "u",
        "title": "t",
        "raw_content": "Un titre\nIl pleut. Il fait froid.",
        "language": "fr",
        "bucket": "h",
    }
    file = write_jsonl(tmp_path / "in" / f"fr_head_0000{end}", [page])
    expected = [("Un titre", "fr", 0, 0), ("Il pleut.", "fr", 0, 1), ("Il fait froid.", "fr", 0, 2)]
    # JSON files of other kinds are passed over.
    write_text(tmp_path / "in" / "nq.json", json.dumps([{"question": "q"}], indent=1))
    write_text(tmp_path / "in" / "config.json", "{}")
    assert read_rows(read, file) == read_rows(read, tmp_path / "in") == expected


def test_cc100_has_blank_lines_between_documents(tmp_path: Path, read: Any) -> None:
    text = "Un titre\nIl pleut. Il fait froid.\n\nDeux.\n\n\n"
    write_xz(tmp_path / "in" / "fr.txt.xz", text)
    write_xz(tmp_path / "in" / "zh-Hans.txt.xz", "下雨了。\n")
    write_text(tmp_path / "in" / "README.txt", "not read")
    assert read_rows(read, tmp_path / "in") == [
        ("Un titre", "fr", 0, 0),
        ("Il pleut.", "fr", 0, 1),
        ("Il fait froid.", "fr", 0, 2),
        ("Deux.", "fr", 1, 0),
        ("下雨了。", "zh-hans", 2, 0),
    ]


def parquet(folder: Path, files: int = 3, rows: int = 8) -> Path:
    for file in range(files):
        texts = [f"Page {file} {row}. It ends." for row in range(rows)]
        datasets.Dataset.from_dict({"text": texts}).to_parquet(folder / f"train-{file:05}.parquet")
    return folder


def test_a_data_set_is_streamed(tmp_path: Path, read: Any) -> None:
    (tmp_path / "wiki").mkdir()
    name, report = f"{parquet(tmp_path / 'wiki')}=sw", LoadReport()
    found = read_rows(read, name)
    assert [row[0] for row in found[::2]] == [f"Page {file} {row}." for file in range(3) for row in range(8)]
    assert {row[1] for row in found} == {"sw"}
    assert read_rows(read, name, report=report) == found and report.reused
    parquet(tmp_path / "wiki", rows=9)
    assert len(read_rows(read, name)) == 54


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    calls: list[tuple] = []

    def load_dataset(path: str, config: str | None, split: str) -> Dataset:
        calls.append((path, config, split))
        return Dataset.from_dict({"text": ["Il pleut. Il fait froid.", "Bonjour."], "id": [1, 2]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_a_data_set_is_loaded_by_its_name(asked: list[tuple], tmp_path: Path) -> None:
    reports = LoadReport(), LoadReport()
    record = {"language": "en", "sentences": ["Hello."]}
    for report in reports:
        sentences = load_documents(
            ["wikimedia/wikipedia:20231101.fr=FR", [record]], report=report, cache_dir=tmp_path, show_progress_bar=False
        )
        assert asked[-1] == ("wikimedia/wikipedia", "20231101.fr", "train")
        assert sentences["sentence"][:] == ["Il pleut.", "Il fait froid.", "Bonjour.", "Hello."]
        assert sentences["language"][:] == ["fr"] * 3 + ["en"]
    load_documents("some/texts=sw", cache_dir=tmp_path, show_progress_bar=False)
    assert asked[-1] == ("some/texts", None, "train")


def test_an_unchanged_data_set_is_not_read_again(tmp_path: Path) -> None:
    texts = Dataset.from_dict({"content": ["Il pleut."]})
    reused = []
    for language in ("fr", "fr", "it"):
        report = LoadReport()
        load_documents(HubDocuments(texts, language), report=report, cache_dir=tmp_path, show_progress_bar=False)
        reused.append(report.reused)
    assert reused == [False, True, False]
