"""`st-xlret search`: stored vectors with texts, queries mapped as they were, a result a group."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.commands import main
from tests.training_scripts.scripts import WORDS

Search = Callable[..., list[list[dict[str, Any]]]]
# Answers to "soleil lune".
OWN = {"soleil lune", "lune soleil soleil"}
BOTH = {"soleil lune", "sun moon"}


@pytest.fixture
def index(tmp_path: Path, model: Path, documents: Path) -> str:
    main(
        [
            "index",
            str(documents),
            "--model",
            str(model),
            "--output",
            str(tmp_path / "index.parquet"),
        ]
    )
    return str(tmp_path / "index.parquet")


@pytest.fixture
def search(capsys) -> Search:
    """The results for each query and pool."""

    def run(*options: str) -> list[list[dict[str, Any]]]:
        capsys.readouterr()
        main(["search", *options, "--json"])
        return [
            json.loads(line)["results"]
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("{")
        ]

    return run


def texts(results: list[dict[str, Any]]) -> set[str]:
    return {result["text"] for result in results}


def vectors_of(model: Path, words: Any) -> list[Any]:
    return SentenceTransformer(str(model), device="cpu").encode(list(words)).tolist()


def test_queries_find_the_nearest_texts(
    index: str, search: Search, documents: Path, capsys, monkeypatch
) -> None:
    english, french = search(index, "--query", "sun moon", "vent neige", "--top-k", "3")
    assert len(english) == len(french) == 3
    about = {"language": "en", "text": "sun moon", "id": "0", "source": str(documents)}
    assert english[0] == {"score": pytest.approx(1, abs=1e-3), **about}
    assert french[0]["language"] == "fr"
    with pytest.raises(SystemExit, match=r"error: .*\\udcff"):
        main(["search", index, "--query", "bird \udcff"])
    with pytest.raises(SystemExit, match="blank"):
        main(["search", index, "--query", " "])
    with pytest.raises(SystemExit, match="'english'"):
        main(["search", index, "--query", "bird", "--language", "english"])
    # From a pipe, whose blank lines are passed over.
    monkeypatch.setattr("sys.stdin", io.StringIO("bird wolf\n\nfish bird\n"))
    main(["search", index])
    assert "1.000  en   fish bird" in capsys.readouterr().out
    monkeypatch.setattr(
        "socketserver.BaseServer.serve_forever", lambda page: sys.exit(f"serves {page.server_port}")
    )
    with pytest.raises(SystemExit, match="serves [1-9]"):
        main(["search", index, "--serve", "--port", "0"])
    assert "open http://127.0.0.1:" in capsys.readouterr().out


def test_any_vectors_with_texts_are_searched(
    tmp_path: Path, model: Path, search: Search, capsys
) -> None:
    vectors = vectors_of(model, WORDS["en"])
    said = [*WORDS["en"], None, "zero", "evil \x1b[2J\u202e می\u200cخواهم"]
    columns = {
        "said": said,
        "lang": ["e\x1bn"] * 14 + [None],
        "vector": [*vectors, [1.0] * 16, [0.0] * 16, vectors[3]],
    }
    pq.write_table(pa.table(columns), tmp_path / "own.parquet")
    options = [
        str(tmp_path / "own.parquet"),
        "--query",
        "rain",
        "--top_k",
        "99",
        "--model",
        str(model),
    ]
    for words, lacking in ((options[:-2], "--model"), (options, "--text_field")):
        with pytest.raises(SystemExit, match=lacking):
            main(["search", *words])
    main(["search", *options, "--text_field", "said"])
    printed = capsys.readouterr().out
    # Without terminal escapes, and with the joiners of Persian letters.
    assert printed.splitlines()[2:4] == [
        "  1.000  e n  rain  [3]",
        "  1.000  ?    evil  [2J  می\u200cخواهم  [14]",
    ]
    assert printed.count("\n") == 15
    table = pa.table(columns).rename_columns(["text", "lang", "vector"])
    pq.write_table(
        table.replace_schema_metadata({"st_xlret": '{"metric": "dot"}'}), tmp_path / "own.parquet"
    )
    ((rain, *_),) = search(*options)
    assert rain["score"] == pytest.approx(1.64, abs=1e-3), (
        "the dot product of vectors that are longer than 1"
    )


def test_a_store_by_distance_is_searched_by_distance(
    tmp_path: Path, model: Path, search: Search
) -> None:
    (rain,) = vectors_of(model, ["rain"])
    others = vectors_of(model, WORDS["en"])
    vectors = [[3 * number for number in rain], *others]
    table = pa.table({"text": ["long rain", *WORDS["en"]], "vector": vectors})
    about = {"st_xlret": '{"metric": "l2"}'}
    pq.write_table(table.replace_schema_metadata(about), tmp_path / "own.parquet")
    (results,) = search(str(tmp_path / "own.parquet"), "--query", "rain", "--model", str(model))
    squares = ((np.array(vectors) - rain) ** 2).sum(axis=1)
    expected = [table["text"][row].as_py() for row in np.argsort(squares, kind="stable")[:10]]
    assert [result["text"] for result in results] == expected
    assert [result["score"] for result in results] == pytest.approx(
        (1 - np.sort(squares)[:10] / 2).tolist(), abs=1e-4
    )


def test_queries_are_mapped_as_the_vectors_were(
    tmp_path: Path, index: str, search: Search, capsys
) -> None:
    mapped, only, both = (str(tmp_path / name) for name in ("m.parquet", "only", "both"))
    calibrate = [
        "calibrate",
        "--vectors",
        index,
        "--min_texts",
        "10",
        "--strength",
        "1",
        "--output",
    ]
    main([*calibrate, only, "--queries_only"])
    main([*calibrate, both])
    main(["apply", both, "--vectors", index, "--into", mapped])
    query = ["--query", "soleil lune", "--top_k", "2"]
    assert texts(search(mapped, "--map", both, *query)[0]) == BOTH
    compared = [index, "--map", only, "--compare", index, *query]
    assert [texts(results) for results in search(*compared)] == [BOTH, OWN]
    main(["search", *compared])
    assert "(index.parquet, mapped by only)]" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="does not say that its vectors are mapped"):
        search(index, "--map", both, *query)
    for options in ((mapped,), (mapped, "--map", only)):
        with pytest.raises(SystemExit, match=rf"m\.parquet.* of {index}.*--map"):
            search(*options, *query)


def test_a_group_is_one_result_in_the_querys_language(
    tmp_path: Path, model: Path, search: Search, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("st_xlret.stores.base.Store.size", 5)
    rows = [
        ("sun", "en", "1"),
        ("moon", "en", "2"),
        ("soleil", "fr", "1"),
        ("soleil astre", "fr-ca", "1"),
    ]
    rows += [
        ("soleil", "fr", None),
        ("vent", "fr", "3"),
        ("sun sun star", "en-gb", "2"),
        ("rain", None, "4"),
    ]
    said, codes, pages = zip(*rows, strict=True)
    table = pa.table(
        {"text": said, "language": codes, "page": pages, "vector": vectors_of(model, said)}
    )
    pq.write_table(table, tmp_path / "pages.parquet")
    options = [
        str(tmp_path / "pages.parquet"),
        "--model",
        str(model),
        "--query",
        "sun",
        "--group_field",
        "page",
    ]
    for code, best in {"en": "0", "fr": "2", "fr-ca": "2"}.items():
        (results,) = search(*options, "--language", code)
        shown = [result["id"] for result in results]
        scores = [result["score"] for result in results]
        assert shown[0] == best
        assert sorted(shown) == sorted([best, "6", "4", "7", "5"])
        # Versions in French are farther than others of their page, and keep the place of the best.
        assert scores == sorted(scores, reverse=True)
        assert scores[0] == pytest.approx(1, abs=1e-3)
    groups = {result["id"]: result["group"] for result in results}
    assert groups == {"2": "1", "6": "2", "4": None, "7": "4", "5": "3"}
    capsys.readouterr()
    main(["search", *options, "--language", "fr", "--top_k", "1"])
    assert "soleil  [2, 1]" in capsys.readouterr().out, "the page beside the key"
    with pytest.raises(SystemExit, match="'pagina'.*'page'"):
        search(*options[:-1], "pagina")


@pytest.mark.parametrize(
    ("page", "none"), [(0, None), (1.0, float("nan")), ("a", " "), ("a", "NaN"), ("a", "None")]
)
def test_a_row_without_a_group_is_a_result(
    tmp_path: Path, model: Path, search: Search, page: Any, none: Any
) -> None:
    said = ["sun", "soleil", "moon", "wind"]
    table = pa.table(
        {"text": said, "page": [page, page, none, none], "vector": vectors_of(model, said)}
    )
    pq.write_table(table, file := str(tmp_path / "pages.parquet"))
    options = [file, "--model", str(model), "--query", "sun", "--group_field", "page"]
    assert [result["id"] for result in search(*options)[0]] == ["0", "2", "3"], "in no language"
    pq.write_table(table.append_column("language", [["en", "fr-*", None, "en"]]), file)
    with pytest.warns(UserWarning, match=r"in fr: .*fr-\*"):  # which is no code
        assert [result["id"] for result in search(*options, "--language", "fr")[0]] == [
            "0",
            "2",
            "3",
        ]


def test_an_index_is_searched_by_its_model(
    tmp_path, model, documents, index, monkeypatch, search
) -> None:
    encoder = SentenceTransformer(str(model), device="cpu")
    encoder[0].embedding.weight.data[:, 12:] = 0  # without languages
    encoder.save(str(tmp_path / "encoder"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    main(["index", str(documents), "--model", "encoder", "--output", "i.parquet"])
    monkeypatch.chdir(tmp_path / "elsewhere")
    options = ["--query", "soleil lune", "--top_k", "2"]
    assert [texts(results) for results in search(index, "--compare", "../i.parquet", *options)] == [
        OWN,
        BOTH,
    ]
    encoder[0].embedding.weight.data *= 2
    encoder.save(str(tmp_path / "encoder"))  # retrained in place: the same name and dimensions
    with pytest.raises(SystemExit, match="another model"):
        search("../i.parquet", *options)


def test_a_map_per_language_is_told_the_languages(
    tmp_path, per_language, documents, search, monkeypatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "py3langid.langid", None
    )  # the extra that would identify languages
    file = str(tmp_path / "index.parquet")
    main(["index", str(documents), "--model", str(per_language), "--output", file])
    (results,) = search(file, "--query", "soleil lune", "--language", "fra", "--top_k", "2")
    # Without the map of its language, the French text would come before its English translation.
    assert (
        texts(results) == BOTH
        and [result["score"] for result in results] == [pytest.approx(1, abs=1e-3)] * 2
    )
    with pytest.warns(UserWarning, match="no language"):
        search(file, "--query", "soleil lune")


def test_languages_of_texts_and_queries_are_identified(
    tmp_path: Path, per_language: Path, search: Search
) -> None:
    pytest.importorskip("py3langid")
    queries = {"en": "The cat and the dog are in the house because of the sun"}
    queries["fr"] = "Le chat et le chien sont dans la maison à cause du soleil"
    (tmp_path / "texts.txt").write_text("\n".join(queries.values()))
    file = str(tmp_path / "index.parquet")
    main(["index", str(tmp_path / "texts.txt"), "--model", str(per_language), "--output", file])
    assert {*pq.read_table(file)["language"].to_pylist()} == {*queries}
    for code, text in queries.items():
        assert search(file, "--query", text) == search(file, "--query", text, "--language", code)
