"""Documents of every format, as a stream and as a table."""

import shutil
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from st_xlret.data import DataError, read_documents
from st_xlret.evaluation.pools import full_texts, read_beir
from tests.data.files import load, questions, read, rows, write_jsonl, write_text

EN, FR = "The cat sleeps. The dog does not.", "Le chat dort. Le chien ne dort pas."
DOCUMENTS = [("en", EN), ("fr", FR)]
SENTENCES = [("en", "The cat sleeps."), ("en", "The dog does not.")]
SENTENCES += [("fr", "Le chat dort."), ("fr", "Le chien ne dort pas.")]


def document(language: str, *sentences: str) -> dict[str, Any]:
    return {"id": "1", "language": language, "title": "T", "sentences": list(sentences)}


def texts(source: Any, **options: Any) -> list[tuple[str, str]]:
    return [
        (one.language, text) for one in read_documents(source, **options) for text in one.sentences
    ]


def written(file: Path, field: str = "language", text: str = "text") -> Path:
    """The two documents in the format that the name says, with their languages in a field."""
    records: list[Any] = [{field: code, text: content} for code, content in DOCUMENTS]
    if file.suffix == ".parquet":
        Dataset.from_list(records).to_parquet(file)
    elif mark := {"d.csv": ",", "d.tsv.gz": "\t"}.get(file.name):
        write_jsonl(file, [mark.join(cells) for cells in (records[0], *map(dict.values, records))])
    elif file.name == "corpus.jsonl":
        write_jsonl(
            file, [{"_id": "1", "text": record["text"], "metadata": record} for record in records]
        )
        write_jsonl(file.with_name("queries.jsonl"), [{"text": "Not of the corpus."}])
        return file.parent
    else:
        write_jsonl(file, records)
    return file


def test_a_row_per_sentence_with_its_place(tmp_path: Path) -> None:
    files = [
        write_jsonl(tmp_path / "b.jsonl.gz", [document("fr", "Un.", " ", "Deux\n fois.")]),
        write_jsonl(
            tmp_path / "a.jsonl",
            [document("en", "One."), document("en"), document("en", "A.", "B.")],
        ),
    ]
    table, counts = read(tmp_path)
    english = [("One.", "en", 0, 0), ("A.", "en", 1, 0), ("B.", "en", 1, 1)]
    assert rows(table) == [*english, ("Un.", "fr", 2, 0), ("Deux fois.", "fr", 2, 1)]
    assert [feature.dtype for feature in table.features.values()] == [
        "string",
        "string",
        "int64",
        "int32",
    ]
    assert table.cache_files and counts["en", "documents"] == 2 and counts["fr", "sentences"] == 2
    assert [line.split()[0] for line in str(counts).splitlines()[1:]] == ["en", "fr"]
    assert rows(read([*files, files[0], tmp_path])[0]) == rows(table)


@pytest.mark.parametrize(
    "name",
    [
        "d.jsonl.gz",
        "d.json",
        "d.jsonl.xz",
        "d.parquet",
        "d.csv",
        "d.tsv.gz",
        "d/corpus.jsonl",
        "AA/wiki_00",
    ],
)
def test_every_format_has_texts_and_languages(name: str, tmp_path: Path) -> None:
    untagged = written(tmp_path / "untagged" / name, "code")
    assert texts(untagged, language="de", unit="document") == [("de", EN), ("de", FR)]
    source = written(tmp_path / "folder" / name)
    assert texts(source, unit="sentence") == texts([source], unit="sentence") == SENTENCES
    assert texts(source, unit="document") == texts(source, unit="text") == DOCUMENTS
    assert texts(source, languages=["fr"], unit="document") == DOCUMENTS[1:]
    # Of the folder that it is in, with files of other kinds beside it.
    Dataset.from_dict({"vector": [[0.0]]}).to_parquet(tmp_path / "folder" / "vectors.parquet")
    write_text(tmp_path / "folder" / "WikiMatrix.en-fr.tsv", "1.2\tOne.\tUn.\n")
    write_jsonl(tmp_path / "folder" / "d" / "pairs.jsonl", [{"source": "A.", "target": "B."}])
    write_text(tmp_path / "folder" / "README.md", "About.\n")
    assert texts(tmp_path / "folder", unit="sentence") == SENTENCES


@pytest.mark.parametrize("field", ["Language", "LANG", "Lang"])
@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet", "d.csv", "d/corpus.jsonl"])
def test_labels_are_read_whatever_the_case_of_their_field(
    name: str, field: str, tmp_path: Path
) -> None:
    source = written(tmp_path / "in" / name, field)
    assert texts(source, unit="document", language="de") == DOCUMENTS
    assert texts(source, unit="document", languages=["fr"]) == DOCUMENTS[1:]


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet", "d.csv"])
def test_texts_are_read_whatever_the_case_of_their_field(name: str, tmp_path: Path) -> None:
    source = written(tmp_path / "in" / name, text="Text")
    assert texts(source, unit="document") == texts(source.parent, unit="document") == DOCUMENTS
    assert texts(source, unit="document", column="TEXT") == DOCUMENTS


@pytest.mark.parametrize("language", [None, "und"])
def test_labels_that_are_not_read_are_named(
    language: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if language is None:
        pytest.importorskip("py3langid")
    texts(written(tmp_path / "d.csv", "sprache"), language=language)
    assert "the field 'sprache' looks like languages: name it 'language'" in caplog.text
    caplog.clear()
    texts(written(tmp_path / "labelled" / "d.csv"), language=language)
    texts(written(tmp_path / "d.csv", "sprache"), language="fr")
    assert not caplog.records


def test_the_language_of_texts_without_one_is_identified(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    records = [{"text": EN}, {"sentences": [FR]}]
    assert (
        texts(records, unit="document")
        == texts(records, unit="document", languages=["fr", "en"])
        == DOCUMENTS
    )
    more = [*records, {"text": "Il pleut."}]
    assert texts(more, unit="document", languages=["fr-ca", "de"]) == [
        ("fr-ca", FR),
        ("fr-ca", "Il pleut."),
    ]
    # A folder of text files alone is read whole.
    write_text(tmp_path / "notes.md", f"{EN}\n")
    write_text(tmp_path / "deep" / "more.txt", f"{FR}\n")
    assert sorted(texts(tmp_path, unit="document")) == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "content", "column", "expected"),
    [
        ("a.tsv", "1\tone\n2\ttwo\n", "2", ["one", "two"]),
        ("a.tsv", 'text\tn\n"One", he said.\t1\n', None, ['"One", he said.']),
        ("a.csv", 'score,said\n1,"one,\n\nor two"\n', "said", ["one, or two"]),
        ("a.tsv", 'said\tn\n"one,\n\nor two"\t1\nthree\t2\n', "said", ["one, or two", "three"]),
        ("a.tsv", '1\t"one\nor two"\n2\tthree\n', "2", ["one or two", "three"]),
        ("a.csv", "said,Said\none,two\n", "Said", ["two"]),
        (
            "a.jsonl",
            '{"said": "one"}\n{"said": ["two", "three"]}\n',
            "said",
            ["one", "two", "three"],
        ),
        ("a.jsonl", '{"text": "no", "sentences": ["one", "two"]}\n', None, ["one", "two"]),
        (
            "a.jsonl",
            '{"sentences": [], "text": "one"}\n{"text": null, "content": "two"}\n',
            None,
            ["one", "two"],
        ),
        (
            "a.jsonl",
            '{"text": "one", "metadata": [1]}\n{"text": "2020-01-01"}\n',
            None,
            ["one", "2020-01-01"],
        ),
        ("a.txt", "One. Two.\nthree\n\n\nfour\n", None, ["One. Two.", "three", "four"]),
        ("a.md", "# Head\n\none\ntwo\n \n\nthree\n", None, ["# Head", "one two", "three"]),
    ],
)
def test_texts_are_taken_as_they_stand(
    name: str, content: str, column: str, expected: Any, tmp_path: Path
) -> None:
    for file in (
        write_text(tmp_path / name, content),
        write_text(tmp_path / f"{name}.gz", content),
    ):
        assert texts(file, unit="text", column=column, language="und") == [
            ("und", text) for text in expected
        ]


def test_units_and_names(tmp_path: Path) -> None:
    records = [
        {"language": "ja", "sentences": ["猫。", "犬。"]},
        {"language": "en", "sentences": ["One.", "", "Two."]},
    ]
    assert texts(records, unit="document") == [("ja", "猫。犬。"), ("en", "One. Two.")]
    file = write_text(tmp_path / "en.txt", "One. Two.\nThree.\n")
    assert texts(file, unit="document") == [("en", "One. Two."), ("en", "Three.")]
    # The texts of one document have its name in common.
    records = [{"text": "a", "metadata": {"document": "D"}}, {"text": "b", "title": "T", "id": "I"}]
    records += [
        {"text": "c", "id": "I"},
        {"text": "d"},
        {"text": "e", "id": 0},
        {"text": "f", "id": float("nan")},
    ]
    read_records = list(read_documents(records, language="en"))
    assert [one.id for one in read_records] == ["D", "I", "I", "4", "0", "6"]
    other = write_text(tmp_path / "fr.txt", "Un.\n")
    assert len({one.id for one in read_documents([file, other])}) == 2, (
        "a line of one file is none of another"
    )


OF_ONE_DOCUMENT = [  # in the order of their places, which is not that of the rows
    {"document": 7, "language": "en", "position": 10, "text": "Four."},
    {"document": 7, "language": "en", "position": 2, "text": "One. Two."},
    {"document": 7, "language": "fr", "position": 3, "text": "Un."},
    {"document": 7, "language": "en", "position": 3, "text": "Three."},
]


def as_source(kind: str, records: list[dict[str, Any]], folder: Path) -> Any:
    """Records as what `load_documents` takes."""
    table = Dataset.from_list(records)
    if kind == "folder":
        table.save_to_disk(folder / "saved")
        return folder / "saved"
    if kind == "frame":
        return table.to_pandas()
    if kind == "records":
        return [records]
    file = folder / f"d.{kind}"
    {"jsonl": table.to_json, "parquet": table.to_parquet, "csv": table.to_csv}[kind](file)
    return file


@pytest.mark.parametrize("kind", ["folder", "frame", "records", "jsonl", "parquet", "csv"])
def test_rows_of_one_document_are_joined_by_their_places(kind: str, tmp_path: Path) -> None:
    other = {"document": 8, "language": "en", "position": 0, "text": "Five."}
    source = as_source(kind, [*OF_ONE_DOCUMENT, other], tmp_path)
    english = ["One.", "Two.", "Three.", "Four."]
    expected = [(text, "en", 0, position) for position, text in enumerate(english)]
    expected += [("Un.", "fr", 1, 0), ("Five.", "en", 2, 0)]
    assert rows(read(source)[0]) == expected
    documents = read_documents(source, unit="document")
    assert [(one.id, one.sentences) for one in documents] == [
        ("7", ["One. Two. Three. Four."]),
        ("7", ["Un."]),
        ("8", ["Five."]),
    ]


def test_a_table_of_documents_that_is_read_again_is_the_same(tmp_path: Path) -> None:
    table, _ = read([document("en", "One.", "Two.") | {"id": str(place)} for place in range(3)])
    table.save_to_disk(tmp_path / "saved")
    for source in (table, tmp_path / "saved"):
        assert rows(read(source)[0]) == rows(table)


def test_rows_of_a_document_that_stand_apart_are_no_documents(tmp_path: Path) -> None:
    other = {"document": 8, "language": "en", "text": "Five."}
    source = write_jsonl(tmp_path / "d.jsonl", [*OF_ONE_DOCUMENT, other, OF_ONE_DOCUMENT[0]])
    with pytest.raises(DataError, match="d.jsonl, line 6: document '7' has rows before"):
        read(source)
    # An index needs no order.
    assert [one.id for one in read_documents(source)] == ["7", "7", "8", "7"]


def test_a_document_of_beir_is_title_and_text_as_the_benchmark_embeds_it(tmp_path: Path) -> None:
    titles = ["A title.", "A title.", "A title.", "", None]
    bodies = ["", " ", "One. Two.", "One.", "Two."]
    lines = []
    for number, (title, text) in enumerate(zip(titles, bodies, strict=True)):
        lines.append({"_id": f"d{number}", "Title": title, "TEXT": text, "language": "en"})
    file = write_jsonl(tmp_path / "corpus.jsonl", lines)
    whole = ["A title.", "A title.", "A title. One. Two.", "One.", "Two."]
    assert [text for _, text in texts(tmp_path)] == whole
    write_jsonl(tmp_path / "queries.jsonl", [{"_id": "q", "text": "Which?", "language": "en"}])
    write_text(tmp_path / "qrels" / "test.tsv", "q\td1\t1\n")
    assert full_texts(read_beir(tmp_path).corpus) == whole

    sentences = ["A title.", "A title.", "One.", "Two.", "One.", "Two."]
    assert [text for _, text in texts(tmp_path, unit="sentence")] == sentences
    pages = texts(file.rename(tmp_path / "wiki.jsonl"))
    assert [text for _, text in pages] == sentences[2:], "a redirect has no text"


def test_cc100_has_blank_lines_between_documents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_text(tmp_path / "in" / "fr.txt.xz", "Un titre\nIl pleut. Il fait froid.\n\nDeux.\n\n\n")
    write_text(tmp_path / "in" / "hi_rom.txt", "ek\n")
    write_text(tmp_path / "in" / "zh-Hans.txt.xz", "下雨了。\n")
    write_text(tmp_path / "in" / "README.txt", "not read")
    (tmp_path / "in" / "more").symlink_to(tmp_path)
    first = [
        (text, "fr", 0, position)
        for position, text in enumerate(["Un titre", "Il pleut.", "Il fait froid."])
    ]
    others = [("Deux.", "fr", 1, 0), ("ek", "hi-latn", 2, 0), ("下雨了。", "zh", 3, 0)]
    assert rows(read(tmp_path / "in")[0]) == [*first, *others]
    assert "not read: 1 files, such as more" in caplog.text
    assert ("de", "not read") in texts(tmp_path / "in", language="de")


@pytest.mark.parametrize(
    ("name", "content", "column", "named"),
    [
        ("a.tsv", "one\n", "2", "line 1: .*'2'"),
        ("a.csv", "text,score\n1,2\n", "title", "line 2: .*'title'.*text, score"),
        ("a.csv", 'text\none\n"two\nthree\n', None, "line 4"),
        ("a.tsv", 'n\ttext\n1\t"Yes", he said\n2\t"one\ntwo"\n', None, "line 4: .*open quote"),
        (
            "a.csv",
            "language,text\nen,Rain, wind and snow.\n",
            None,
            "line 2: 3 cells under 2 names",
        ),
        ("a.csv", "text,language,text\none,en,two\n", None, "'text' and 'text' are names of one"),
        ("a.parquet", "PAR1", None, ""),
        (
            "a.parquet",
            pa.table([["one"], ["two"]], names=["text", "text"]),
            None,
            ': .*"text" exists 2 times',
        ),
        ("a.jsonl", '{"text": "one", "text": "two"}', None, "line 1: .*a name stands twice"),
        ("a.jsonl", '{"text": "one", "Text ": "two"}', None, "line 1: 'text' and 'Text '"),
        ("a.csv", "text,TEXT\none,two\n", None, "line 1: 'text' and 'TEXT'"),
        ("a.tsv", "text\tid\tID\none\t1\t2\n", None, "line 1: 'id' and 'ID'"),
        ("a.csv", "said,Said,SAID\n1,2,3\n", "saId", "line 1: 'said' and 'Said'"),
        (
            "a.parquet",
            pa.table([["one"], ["en"], ["fr"]], names=["text", "lang", "Lang"]),
            None,
            "line 1: 'lang' and 'Lang'",
        ),
        ("a.parquet", pa.table({"text": ["one", None]}), None, "line 2: .*'text': NoneType"),
        ("a.parquet", pa.table({"text": [b"one"]}), None, "line 1: .*'text': bytes"),
        ("a.jsonl", '{"text": "one"}\n{"text": 2}', None, "line 2: .*'text': int 2"),
        ("a.jsonl", '{"sentences": ["one", null]}', None, "line 1: .*found NoneType"),
        ("a.pdf", "%PDF", None, "jsonl"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    tmp_path: Path, name: str, content: Any, column: str, named: str
) -> None:
    write: Any = (
        pq.write_table
        if isinstance(content, pa.Table)
        else lambda text, file: write_text(file, text)
    )
    write(content, tmp_path / name)
    with pytest.raises(DataError, match=rf"{name}.*{named}"):
        texts(tmp_path / name, column=column, language="en")


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", '{{"text": "{}"}}'), ("a.csv", "text\n{}"), ("a.txt", "{}")]
)
def test_folders_named_after_a_language_are_a_column(
    name: str, content: str, tmp_path: Path
) -> None:
    for code, text in DOCUMENTS:
        write_text(tmp_path / f"language={code}" / name, f"{content.format(text)}\n")
    assert texts(tmp_path, unit="document") == DOCUMENTS
    for folder, languages in ((tmp_path, ["fr"]), (tmp_path / "language=fr", None)):
        assert texts(folder, unit="document", languages=languages) == DOCUMENTS[1:]
    write_text(tmp_path / "text=all" / "a.jsonl", '{"language": "en", "content": "its own"}')
    assert texts(tmp_path / "text=all", unit="document") == [("en", "its own")]


def test_a_folder_above_those_that_are_named_labels_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "language=de"
    write_text(work / "docs.jsonl", '{"text": "a"}')
    write_text(work / "language=fr" / "docs.jsonl", '{"text": "b"}')
    monkeypatch.chdir(work)
    assert texts("docs.jsonl", language="en") == [("en", "a")]
    assert texts("language=fr/docs.jsonl", language="en") == [("fr", "b")]
    assert texts("language=fr", language="en") == [("fr", "b")]


@pytest.mark.parametrize("name", ["a.JSONL", "fr.TXT", "b.Csv"])
def test_endings_are_read_in_any_case(name: str, tmp_path: Path) -> None:
    content = {"a.JSONL": '{"text": "Un."}', "b.Csv": "text\nUn.\n"}.get(name, "Un.\n")
    write_text(tmp_path / name, content)
    assert [text for _, text in texts(tmp_path, language="fr")] == ["Un."]


def test_what_does_not_belong_to_a_folder_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (
        "a.jsonl",
        "_temporary/0/a.jsonl",
        ".cache/a.jsonl",
        "_a.jsonl",
        "a.jsonl.st-xlret-x/a.jsonl",
    ):
        written(tmp_path / name)
    write_text(tmp_path / "b.jsonl.bz2", "")
    written(tmp_path / "a.jsonl.gz")
    assert (
        texts(tmp_path, unit="document") == DOCUMENTS
        and "5 files, such as b.jsonl.bz2" in caplog.text
    )
    assert (
        texts([*tmp_path.glob("a.jsonl*[lz]")], unit="document") == DOCUMENTS
        and "copies" in caplog.text
    )
    for log in ("_delta_log", "deep/_spark_metadata", "deep/.hoodie"):
        write_jsonl(tmp_path / log / "0.json", [])
        with pytest.raises(DataError, match=Path(log).name):
            texts(tmp_path)
        shutil.rmtree(tmp_path / log)


def test_files_of_a_folder_without_texts_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / "a.jsonl")
    write_jsonl(tmp_path / "first.jsonl", [{"rows": 2}, {"language": "en", "text": EN}])
    write_jsonl(tmp_path / "semicolons.csv", ["language;text", f"en;{EN}"])
    write_jsonl(tmp_path / "array.json", [[{"language": "en", "text": EN}]])
    assert texts(tmp_path, unit="document") == DOCUMENTS
    assert "3 files hold no documents" in caplog.text
    assert "array.json" in caplog.text


def test_a_language_filter_takes_variants_in_the_same_script(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = [document(code, code) for code in ["pt", "pt-BR", "zh", "zh-TW", "fr"]]
    assert read(records, languages=["pt", "zh", "de"])[0]["language"][:] == ["pt", "pt", "zh"]
    assert "no documents are in de" in caplog.text
    assert read(records)[0]["language"][:] == ["pt", "pt-br", "zh", "zh-tw", "fr"]


def test_data_sets_and_iterables_are_sources(tmp_path: Path) -> None:
    records = [document("en", "A.", "B."), document("fr", "C.")]
    dataset = Dataset.from_list(records)
    dataset.save_to_disk(tmp_path / "saved")
    sources = [
        dataset,
        dataset.to_iterable_dataset(),
        tmp_path / "saved",
        [dataset.select([0]), [records[1]]],
    ]
    for source in (*sources, iter(records)):
        assert rows(read(source)[0]) == [("A.", "en", 0, 0), ("B.", "en", 0, 1), ("C.", "fr", 1, 0)]
    with pytest.raises(DataError, match="<source 1>, line 2"):
        read([[records[0], "B."]])


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ('{"language": "fr"}', "fr"),
        ('{"Lang": "fr"}', "fr"),
        ('{"language": null}', "de"),
        ("null", "de"),
        ("a note", "de"),
        (None, "de"),
    ],
)
def test_metadata_may_be_a_text_of_json(metadata: Any, language: str) -> None:
    records = [{"text": "one", "metadata": metadata}]
    assert texts(records, language="de") == [(language, "one")]


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"text": "one", "Text": "two"}, "'text' and 'Text' are names of one field"),
        ({"text": "one", "language": "en", "LANGUAGE": "fr"}, "'language' and 'LANGUAGE'"),
        ({"text": None}, "'text': NoneType"),
        ({"text": 3.5}, "'text': float"),
    ],
)
def test_what_is_wrong_with_a_record_is_named_in_data_sets_and_frames(
    record: dict[str, Any], named: str
) -> None:
    rows = [record]
    pandas = pytest.importorskip("pandas")
    for source in (
        rows,
        Dataset.from_list(rows),
        pandas.DataFrame(rows),
        pa.Table.from_pylist(rows),
    ):
        with pytest.raises(DataError, match=f"<source 1>, line 1: .*{named}"):
            read(source)


def test_the_label_of_a_folder_is_that_of_records_without_their_own(tmp_path: Path) -> None:
    lines = [{"text": "one", "Language": None}, {"text": "two", "Language": "de"}]
    write_jsonl(tmp_path / "language=fr" / "a.jsonl", lines)
    assert texts(tmp_path) == [("fr", "one"), ("de", "two")]


FRAME = {"Text": ["One.", "Un."], "language": ["en", "fr"]}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "columns"])
def test_a_data_frame_has_its_rows_as_records(kind: str) -> None:
    makers: dict[str, Any] = {"arrow": pa.table, "columns": dict}
    if kind in ("pandas", "polars"):
        makers[kind] = pytest.importorskip(kind).DataFrame
    frame = makers[kind](FRAME)
    first = read(frame)[0]
    again = read(makers[kind](FRAME))[0]
    assert rows(first) == [("One.", "en", 0, 0), ("Un.", "fr", 1, 0)]
    assert first.cache_files == again.cache_files
    pairs = makers[kind](
        {"source": ["A"], "target": ["B"], "source_language": ["en"], "target_language": ["fr"]}
    )
    assert rows(load(pairs)[0]) == [("A", "B", "en", "fr")]
    with pytest.raises(DataError, match="questions are read from files and folders"):
        questions(frame)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"text": "One.", "language": "en"}, "a dict of text, language is no collection"),
        (
            DatasetDict({"train": Dataset.from_dict(FRAME)}),
            "a DatasetDict of train is no collection",
        ),
        (pa.chunked_array([["One."]]), "no table of records"),
        (pa.table([["a"], ["b"]], names=["text", "text"]), "a Table .* exists 2 times"),
        (iter(["One."]), "<source 1>, line 1: a record must have fields, .* found str 'One.'"),
    ],
)
def test_what_is_no_collection_of_records_is_refused(source: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(source)


def test_what_changed_is_read_again_and_nothing_else(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "d.jsonl", [document("en", "A.")])
    first, again = read(file), read(file)
    assert again[0].cache_files == first[0].cache_files and again[1] == first[1]
    tables = [first[0], read(file, languages=["en"])[0], read([document("en", "A.")])[0]]
    write_jsonl(file, [document("en", "Another one.")])
    tables.append(read(file)[0])
    assert [table["sentence"][0] for table in tables] == ["A.", "A.", "A.", "Another one."]
    assert len({str(table.cache_files) for table in tables}) == 4
    # Iterators look alike, and are never the same.
    assert [read(iter([document("en", text)]))[0]["sentence"][0] for text in "CD"] == ["C", "D"]


@pytest.mark.parametrize("offline", [False, True])
def test_a_data_set_is_read_by_its_name(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", offline)
    for count in (2, 3):  # a change is seen
        for part in range(2):
            pages = {
                "text": [f"Page {part} {row}. It ends." for row in range(count)],
                "id": [""] * count,
            }
            Dataset.from_dict(pages).to_parquet(tmp_path / "wiki" / f"train-{part}.parquet")
        table, _ = read(f"{tmp_path / 'wiki'}=sw")
        assert table["sentence"][::2] == [
            f"Page {part} {row}." for part in range(2) for row in range(count)
        ]
        assert (
            set(table["language"]) == {"sw"}
            and read(f"{tmp_path / 'wiki'}=sw")[0].cache_files == table.cache_files
        )
