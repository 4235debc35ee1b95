"""Parallel sentences of every format in one table."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, load_pairs, read_dictionary
from tests.data.files import load, moses, pair, rows, write_jsonl, write_text

FILES = [
    "a.jsonl.gz",
    "X.en-fr.fr",
    "WikiMatrix.en-fr.tsv.gz",
    "my.en-fr.tsv.xz",
    "en-fr.txt",
    "tatoeba.fra-eng.eng",
]


def test_a_folder_mixes_all_formats(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    write_jsonl(folder / "deep" / "a.jsonl.gz", [pair(f"a{i}", f"jsonl{i}") for i in (1, 2)])
    write_text(
        folder / "WikiMatrix.en-fr.tsv.gz", "1.2\td1\tmined1\n1.03\td0\tmined0\n1.1\td2\tmined2\n"
    )
    write_text(folder / "my.en-fr.tsv.xz", "e1\ttsv1\ne2\ttsv2\n")
    write_text(folder / "en-fr.txt", "f1 muse1\nf2\tmuse2\n")
    moses(folder, {"en": "g1\ng2\n", "fr": "moses1\nmoses2\n"})
    moses(folder, {"fra": "laser1\nlaser2\n", "eng": "h1\nh2\n"}, "tatoeba.fra-eng")
    # Files beside them that are not parallel sentences.
    write_jsonl(folder / "documents.jsonl", [{"language": "en", "sentences": ["One."]}])
    write_text(folder / "NOTICE.txt", "licence\n")
    table, counts = load(folder)
    texts = [*table["source"], *table["target"]]
    for name in ("jsonl", "mined", "tsv", "muse", "moses", "laser"):
        assert texts.count(f"{name}1") == texts.count(f"{name}2") == 1
    assert len(table) == 12
    assert counts["en>fr", "low_score"] == 1 and counts["fr>en", "pairs"] == 2
    # Named one by one, in any order, both sides of Moses' format or one of them: the same rows.
    files = [next(folder.rglob(name)) for name in reversed(FILES)]
    assert rows(load(files)[0]) == rows(table)
    assert rows(load([*files, *files, folder])[0]) == rows(table)
    assert rows(load(folder, languages=["eng", "FR"])[0]) == rows(table)
    assert len(load(folder, per_language=1)[0]) == 2
    with pytest.raises(DataError, match="other_languages"):
        load(folder, languages=["en", "de"])


def test_what_is_no_pair_is_counted() -> None:
    records = [pair("A", "B"), pair("A", " "), pair("", "B"), pair("C", "C"), pair("A ", "B")]
    for source in (records, Dataset.from_list(records), iter(records)):
        table, counts = load(source)
        assert rows(table) == [("A", "B", "en", "fr")]
        assert counts["en>fr", "pairs"] == 1
        assert counts["en>fr", "empty"] == 2
        assert counts["en>fr", "identical"] == 1
        assert counts["en>fr", "duplicate"] == 1


def test_fields_are_known_whatever_their_case(tmp_path: Path) -> None:
    record = {"Source": "A", "TARGET": "B", "source_Language": "eng", "Target_language": "fr"}
    write_jsonl(tmp_path / "in" / "a.jsonl", [record])
    for source in (tmp_path / "in", [record]):
        assert rows(load(source)[0]) == [("A", "B", "en", "fr")]


@pytest.mark.parametrize(
    ("name", "header", "score"),
    [
        ("X.en-fr.tsv", "source\ttarget", ""),
        ("X.en-fr.tsv", "Text (English)\tText (French)", ""),
        ("X.en-fr.tsv", "score\teng_text\tfra_text", "1.1\t"),
        ("X.en-fr.tsv", "eng_Latn\tfr_CA", ""),
        ("en-fr.txt", "en fr", ""),
    ],
)
def test_a_first_line_of_names_is_no_pair(
    name: str, header: str, score: str, tmp_path: Path
) -> None:
    file = write_text(tmp_path / name, f"{header}\n{score}text\ttexte\n{score}source\ttarget\n")
    assert load(file)[0]["target"][:] == ["texte", "target"]
    if not score:
        assert read_dictionary(file).entries == [("text", "texte"), ("source", "target")]
    with pytest.raises(DataError, match="fr and en, and its first line lang_en and fr"):
        load(write_text(tmp_path / "in" / "X.fr-en.tsv", "lang_en\tfr\nx\ty\n"))


@pytest.mark.parametrize("header", ["target\tsource", "tgt_text\tsrc_text", "1.0\tTarget\tSource"])
def test_columns_that_stand_the_other_way_round_are_refused(header: str, tmp_path: Path) -> None:
    score = "1.1\t" if header.startswith("1.0") else ""
    file = write_text(tmp_path / "X.en-fr.tsv", f"{header}\n{score}bonjour\thello\n")
    with pytest.raises(DataError, match="X.en-fr.tsv.*other way round"):
        load(file)


def test_cells_may_be_quoted(tmp_path: Path) -> None:
    quoted = 'source\ttarget\n"He said ""A"""\tB\nC\t"D\n\nE"\n'
    table, _ = load(write_text(tmp_path / "X.en-fr.tsv", quoted))
    assert rows(table) == [('He said "A"', "B", "en", "fr"), ("C", "D E", "en", "fr")]
    plain = '"A", he said.\tB\n"C.\tD\n'
    table, _ = load(write_text(tmp_path / "Y.en-fr.tsv", plain))
    assert table["source"][:] == ['"A", he said.', '"C.']


def test_a_pair_is_of_two_languages() -> None:
    records = [
        pair("A", "0", "en-GB", "en-US"),
        pair("A", "1", "en", "fr"),
        pair("A", "2", "en", "pt-BR"),
        pair("A", "3", "en-GB", "de"),
        pair("A", "4", "pt", "pt-BR"),
        pair("A", "5", "zh", "zh-TW"),
    ]
    table, counts = load(records)
    assert table["target"][:] == ["1", "2", "3", "5"]
    assert counts["en-gb>en-us", "same_language"] == 1
    # Both sides must be in the filter.
    table, counts = load(records, languages=["EN", "por", "de", "zh"])
    assert rows(table) == [("A", "2", "en", "pt"), ("A", "3", "en", "de")]
    assert counts["en>fr", "other_languages"] == counts["zh>zh-tw", "other_languages"] == 1


def test_a_sample_is_a_prefix_of_a_larger_one() -> None:
    french = [pair(f"{i} apples", f"{i} fr", "en", "fr") for i in range(200)]
    german = [pair(f"{i} apples", f"{i} de", "en", "de") for i in range(30)]
    records = french + german

    def sample(limit: int, records: list[Any] = records) -> list[str]:
        table, _ = load(records, per_language=limit)
        return table["source"][:]

    small = sample(10)
    large = sample(50)
    assert (len(small), len(large), len(sample(1000))) == (20, 80, 230)
    assert small == large[:10] + large[30:40]  # de, then fr
    assert sample(10, records[::-1]) == small
    assert sample(-1) == []


def test_scores_below_the_limit_are_left_out(tmp_path: Path) -> None:
    lines = ["1.2\tYes.\tOui.", "1.05\tNo.\tNon.", "1.03\tCat.\tChien.", "nan\tOK\tBon", "1.1\t\tx"]
    file = write_text(tmp_path / "WikiMatrix.en-fr.tsv.gz", "\n".join(lines))
    table, counts = load(file)
    assert table["target"][:] == ["Oui.", "Non."]
    assert (counts["en>fr", "low_score"], counts["en>fr", "empty"]) == (2, 1)
    assert len(load(file, min_score=1.1)[0]) == 1 and len(load(file, min_score=0.0)[0]) == 3


@pytest.mark.parametrize("kind", ["list", "data set", "frame", "file"])
def test_the_field_score_is_a_score(kind: str, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    for number, score in enumerate((1.2, 1.05, 0.9, None)):
        records.append({**pair("A", str(number)), "Score": score})
    source: Any = records
    if kind == "data set":
        source = Dataset.from_list(records)
    elif kind == "frame":
        source = pytest.importorskip("pandas").DataFrame(records)
    elif kind == "file":
        source = write_jsonl(tmp_path / "a.jsonl", records)
    for limit, kept in ((None, ["0", "1"]), (1.1, ["0"]), (0.5, ["0", "1", "2"])):
        table, counts = load(source, min_score=limit)
        assert table["target"][:] == kept
        assert counts["en>fr", "low_score"] == 4 - len(kept)


def test_a_limit_of_scores_is_said_or_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    low = {**pair("A", "B"), "score": 0.7}
    assert load([low, pair("C", "D")])[0]["target"][:] == ["D"]
    assert "not 1.04 at least: 1 (min_score" in caplog.text
    caplog.clear()
    assert load([low, pair("C", "D")], min_score=0.8)[0]["target"][:] == ["D"]
    assert not caplog.records
    with pytest.raises(DataError, match="min_score=0.8, and no pair has a score"):
        load([pair("E", "F")], min_score=0.8)
    with pytest.raises(DataError, match="line 1: .*'high'"):
        load([{**pair("A", "B"), "score": "high"}])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"target": None}, "found NoneType"),
        ({"target": 3}, "found int 3"),
        ({"Source": "B"}, "'source' and 'Source'"),
        ({"score": 1.1, "Score": 1.2}, "'score' and 'Score'"),
        ({"source_language": "en", "Source_Language": "de"}, "'source_language' and"),
        ({"target_language": None}, "'target_language'"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(changed: dict[str, Any], named: str) -> None:
    records = [{**pair("A", "B"), **changed}]
    pandas = pytest.importorskip("pandas")
    for source in (records, Dataset.from_list(records), pandas.DataFrame(records)):
        with pytest.raises(DataError, match=f"<source 1>, line 1: .*{named}"):
            load(source)


def test_moses_files_are_read_side_by_side(tmp_path: Path) -> None:
    moses(
        tmp_path, {"en": "Yes.\n\nNo.\nBad\nOK\n", "fr": "Oui.\nVide\nNon.\n\udcff\nOK\n"}
    )  # a byte that is no UTF-8
    with pytest.raises(DataError, match="line 4"):
        load(tmp_path / "X.en-fr.fr")
    # Blank and bad lines keep their place.
    table, counts = load(tmp_path / "X.en-fr.en", skip_bad_lines=True)
    assert table["target"][:] == ["Oui.", "Non."]
    assert (counts["en>fr", "empty"], counts["en>fr", "identical"]) == (1, 1)
    # One side may be compressed.
    for end in (".gz", ".xz"):
        folder = tmp_path / end[1:]
        moses(folder, {"en": "a", f"zh_TW{end}": "b"}, "X.en-zh_TW")
        for name in ("X.en-zh_TW.en", f"X.en-zh_TW.zh_TW{end}"):
            assert rows(load(folder / name)[0]) == [("a", "b", "en", "zh-tw")]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("french", ["Oui.\n", "Oui.\nNon.\nSi.\n", None])
def test_moses_files_of_different_length_are_refused(
    french: Any, skip: bool, tmp_path: Path
) -> None:
    moses(
        tmp_path, {"en": "Yes.\nNo.\n"} if french is None else {"en": "Yes.\nNo.\n", "fr": french}
    )
    with pytest.raises(DataError, match=r"X\.en-fr\.en.*X\.en-fr\.fr"):
        load(tmp_path, skip_bad_lines=skip)


@pytest.mark.parametrize(
    "name",
    # The languages of the first two are in doubt.
    [
        "my-words.en-xx.tsv",
        "X.en-pt-br.tsv",
        "words.txt",
        "words.tsv",
        "X.en-fr.csv",
        "a.json",
        "passages.jsonl",
    ],
)
def test_files_that_are_none_are_refused_in_folders_too(name: str, tmp_path: Path) -> None:
    file = write_text(tmp_path / "in" / name, '{"_id": 1}\n')
    is_doubtful = "-" in name and not name.endswith(".csv")
    if is_doubtful:
        write_text(tmp_path / "in" / "words.en-fr.tsv", "dog\tchien\n")
    for source in (file, file.parent):
        with pytest.raises(ValueError, match=name if is_doubtful else source.name):
            load(source)


def test_lines_of_utf_16_are_no_pairs(tmp_path: Path) -> None:
    for code, text in (("en", "Hi\nyou\n"), ("fr", "Salut\ntoi\n")):
        (tmp_path / f"x.en-fr.{code}").write_bytes(text.encode("utf-16-le"))
    with pytest.raises(DataError, match="NUL"):
        load_pairs(str(tmp_path / "x.en-fr.en"))


def test_files_of_a_folder_without_pairs_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_text(tmp_path / "a.en-fr.tsv", "One.\tUn.\n")
    write_text(tmp_path / "b.EN-FR.TSV", "Two.\tDeux.\n")
    write_text(tmp_path / "c.jsonl", '{"en": "Three.", "fr": "Trois."}\n')
    table, _ = load(tmp_path)
    assert table["source"][:] == ["One."]
    assert "2 files hold no parallel sentences" in caplog.text
