"""Texts and questions of each language, drawn from anything that has some."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

import st_xlret
from st_xlret.calibration import Sample, sample_queries, sample_texts
from st_xlret.calibration.fit_options import TEXTS_FOR_MEANS, TEXTS_FOR_OTHER_STEPS
from st_xlret.data import DataError

TEXTS = {code: [f"{code} {number % 30}" for number in range(40)] for code in ("en", "fr")}


def rows_of(texts: dict[str, list[str]]) -> list[dict[str, Any]]:
    rows = []
    for code, part in texts.items():
        for text in part:
            rows.append({"text": text, "language": code})
    return rows


def write_lines(file: Path, records: list[dict[str, Any]], *more: str) -> Path:
    lines = [json.dumps(record) for record in records]
    file.write_text("\n".join([*lines, *more]))
    return file


def test_a_draw_is_distinct_seeded_and_the_beginning_of_a_larger_one() -> None:
    drawn = sample_texts(TEXTS, texts_per_language=20, seed=3)
    for sample in drawn.values():
        assert len(sample.texts) == 20
        assert len(set(sample.texts)) == 20
    other_seed = sample_texts(TEXTS, texts_per_language=20, seed=4)
    assert other_seed["fr"].texts != drawn["fr"].texts
    smaller = sample_texts(TEXTS, texts_per_language=5, seed=3)
    assert smaller["fr"].texts == drawn["fr"].texts[:5]


def test_a_data_set_and_a_sample_give_what_a_mapping_gives() -> None:
    drawn = sample_texts(TEXTS, texts_per_language=20, seed=3)
    of_rows = sample_texts(Dataset.from_list(rows_of(TEXTS)), texts_per_language=20, seed=3)
    assert of_rows["fr"].texts == drawn["fr"].texts
    assert sample_texts(drawn)["fr"] is drawn["fr"]


def test_a_folder_of_beir_and_a_file_give_their_texts_but_bad_lines(tmp_path: Path) -> None:
    records = [{"_id": row["text"], **row} for row in rows_of(TEXTS)]
    write_lines(tmp_path / "corpus.jsonl", records, "{")
    (tmp_path / "queries.jsonl").write_text("")
    of_folder = sample_texts(tmp_path, skip_bad_lines=True)
    of_file = sample_texts(tmp_path / "corpus.jsonl", unit="text", skip_bad_lines=True)
    assert set(of_folder["fr"].texts) == set(TEXTS["fr"])
    assert set(of_file["fr"].texts) == set(TEXTS["fr"])


def test_every_document_gives_a_text_before_one_gives_two() -> None:
    rows = []
    for code in TEXTS:
        for number in range(40):
            document = min(number, 4)  # the last one is long
            rows.append({"text": f"{code} {number}", "language": code, "document": document})
    drawn = sample_texts(Dataset.from_list(rows), texts_per_language=5)
    for sample in drawn.values():
        assert len(set(sample.documents.tolist())) == 5


THREE_LANGUAGES = {"en": ["a", "b", "c"], "fr": ["d", "e", "f"], "sw": ["g"]}


def test_texts_of_one_document_count_as_documents_of_their_own(tmp_path: Path, caplog: Any) -> None:
    records = [{"metadata": {"document": "News"}, **row} for row in rows_of(TEXTS)]
    drawn = sample_texts(write_lines(tmp_path / "a.jsonl", records))
    numbers = [*drawn["en"].documents, *drawn["fr"].documents]
    assert len(set(numbers)) == len(numbers) == 60
    assert "en" in caplog.text


def test_a_language_with_few_texts_is_left_out_and_named(caplog: Any) -> None:
    assert list(sample_texts(THREE_LANGUAGES, min_texts=2)) == ["en", "fr"]
    assert "'sw': 1" in caplog.text
    two = {"en": ["a", "b", "c"], "sw": ["g"]}
    with pytest.raises(DataError, match="'sw': 1"):
        sample_texts(two, min_texts=2)


def test_a_language_without_a_text_is_named() -> None:
    with pytest.raises(DataError, match="'de': 0"):
        sample_texts(THREE_LANGUAGES, languages=["en", "fr", "de"])


NUMBERS = {
    "en": [str(number) for number in range(40)],
    "fr": [str(number % 30) for number in range(40)],
}


@pytest.mark.parametrize(
    ("texts", "how", "wrong"),
    [
        (NUMBERS, {"languages": ["en", "de"]}, "'de': 0"),
        (NUMBERS, {"min_texts": 31}, "31 distinct.*2 languages.*'fr': 30"),
        ({"english": ["a"], "fr": ["c"]}, {}, "'english'"),
        ({"en": ["a"]}, {}, "2 languages"),
        ({"en": Sample(["a"], None)}, {}, "2 languages"),  # type: ignore[arg-type]
        ({}, {}, "2 languages"),
    ],
)
def test_texts_that_cannot_be_drawn_are_named(texts: Any, how: dict, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        sample_texts(texts, **how)


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    for name in ("queries.jsonl", "corpus.jsonl"):
        (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match="corpus.jsonl, line 1"):
        sample_texts(tmp_path)


QUESTIONS = {
    "en": ["a?", "b?", "b?"],
    "fr": ["c?", "d?"],
    "de": ["e?"],
    "ja": ["f?", "g?"],
}


def beir_folder(folder: Path) -> Path:
    (folder / "beir").mkdir()
    write_lines(folder / "beir" / "queries.jsonl", rows_with("text"))
    return folder / "beir"


def rows_with(field: str) -> list[dict[str, Any]]:
    """Records of the questions, in a field of this name."""
    records = []
    for row in rows_of(QUESTIONS):
        records.append({"_id": row["text"], field: row["text"], "language": row["language"]})
    return records


def text_files(folder: Path) -> list[Path]:
    files = []
    for code, part in QUESTIONS.items():
        file = folder / f"questions.{code}.txt"
        file.write_text("\n".join(part))
        files.append(file)
    return files


def table(folder: Path, name: str) -> Path:
    """A table with a field beside the questions that documents have their text in."""
    rows = Dataset.from_list([{**row, "text": "a passage"} for row in rows_with("Question")])
    if name.endswith(".parquet"):
        rows.to_parquet(folder / name)
    else:
        rows.to_csv(folder / name, sep="\t" if ".tsv" in name else ",")
    return folder / name


SOURCES: dict[str, Any] = {
    "mapping": lambda folder: QUESTIONS,
    "data set": lambda folder: Dataset.from_list(rows_of(QUESTIONS)),
    "list of data sets": lambda folder: [Dataset.from_list(rows_of(QUESTIONS))],
    "folder of BEIR": lambda folder: str(beir_folder(folder)),
    "JSON lines": lambda folder: write_lines(folder / "questions.jsonl", rows_with("question")),
    "list of files": lambda folder: [write_lines(folder / "others.jsonl", rows_with("query"))],
    "commas": lambda folder: table(folder, "questions.csv"),
    "tabs": lambda folder: table(folder, "questions.tsv"),
    "Parquet": lambda folder: table(folder, "questions.parquet"),
    "text files": text_files,
    "iterator": lambda folder: iter(text_files(folder)),
    "tuple": lambda folder: tuple(text_files(folder)),
    "data frame": lambda folder: Dataset.from_list(rows_of(QUESTIONS)).to_pandas(),
}


@pytest.mark.parametrize("make", list(SOURCES.values()), ids=list(SOURCES))
def test_questions_are_read_from_everywhere_and_in_the_languages_of_the_documents(
    make: Any, tmp_path: Path
) -> None:
    drawn = sample_queries(make(tmp_path), ["en", "fr", "de"], min_texts=2)
    assert sorted(drawn) == ["en", "fr"]  # German has one, and no document is in Japanese
    assert sorted(drawn["en"]) == ["a?", "b?"]
    assert sorted(drawn["fr"]) == ["c?", "d?"]


@pytest.mark.parametrize(
    ("questions", "languages", "min_texts", "wrong"),
    [
        (QUESTIONS, ["en", "fr", "de"], 3, "3 distinct.*'de': 1, 'en': 2, 'fr': 2"),
        (QUESTIONS, ["sw"], 1, "{}"),
        ("", ["sw"], 1, "no name"),
    ],
)
def test_too_few_questions_are_counted(
    questions: Any, languages: list[str], min_texts: int, wrong: str
) -> None:
    with pytest.raises(DataError, match=wrong):
        sample_queries(questions, languages, min_texts=min_texts)


@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("queries.tsv", "1048585\twhere is the sun\n2\twhere is the moon\n", "no text in"),
        ("q.csv", "id,answer\n1,one\n2,two\n", "no text in"),
        ("q.json", '[\n {"query": "where",\n  "language": "en"}\n]', "not a JSON object"),
        ("q.ndjson", '{"query": "where", "language": "en"}\n', "in no format"),
    ],
)
def test_records_without_questions_are_refused_by_name(
    tmp_path: Path, name: str, content: str, wrong: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=f"{name}.*{wrong}|{wrong}.*{name}"):
        sample_queries(tmp_path / name, None)


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        ({"en": "one text", "fr": ["un"]}, "list of texts.*'en'.*one text"),
        ({"en": ["one", None], "fr": ["un"]}, "None in 'en'"),
        ({"en": [["one"]], "fr": ["un"]}, "string.*one.*'en'"),
        (Dataset.from_dict({"text": ["one", None], "language": ["en", "fr"]}), "None in 'fr'"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(texts: Any, wrong: str) -> None:
    with pytest.raises(DataError, match=wrong):
        sample_texts(texts)
    with pytest.raises(DataError, match=wrong):
        sample_queries(texts, None)


def test_questions_without_a_language_are_identified_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    lines = []
    for number in range(6):
        lines.append(f"Where does the train to the old town leave, {number}")
        lines.append(f"D'où part le train pour la vieille ville, {number}")
    (tmp_path / "questions.txt").write_text("\n".join(lines))
    drawn = sample_queries(tmp_path / "questions.txt", ["en", "fr"])
    assert len(drawn["en"]) == 6
    assert len(drawn["fr"]) == 6


def test_docstrings_name_the_texts_that_are_drawn_by_default() -> None:
    for documented in (st_xlret.calibrate, st_xlret.VectorCalibration.fit):
        words = (documented.__doc__ or "").replace(" ", "")
        assert str(TEXTS_FOR_MEANS) in words and str(TEXTS_FOR_OTHER_STEPS) in words
