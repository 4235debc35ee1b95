"""`st-xlret apply`: stored vectors are mapped into something new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret.commands import main
from st_xlret.vectors import VectorCalibration, apply_calibration, applying, open_vectors, translations
from st_xlret.vectors.translations import share_translations
from tests.vectors import stores
from tests.vectors.stores import LANGUAGES, VECTORS

GENERATOR = np.random.default_rng(1)
SHARED = VectorCalibration(GENERATOR.normal(size=(1, 4, 4)).astype(np.float32), np.full((1, 4), 0.1, np.float32))
PER_LANGUAGE = VectorCalibration(
    np.stack([SHARED.weight[0], -SHARED.weight[0]]), np.zeros((2, 4), np.float32), languages=("en", "de")
)
MAPPED = SHARED.transform(VECTORS, "document")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    SHARED.save(tmp_path / "map")
    return str(tmp_path / "map")


def parquet(path: Path, vectors: Any = VECTORS, **about: str) -> str:
    column = pa.array(
        [None if vector is None else list(np.asarray(vector, np.float16)) for vector in vectors],
        pa.list_(pa.float16()),  # of a fixed size, older pyarrow cannot read empty ones
    )
    table = pa.table({"vector": column, "language": LANGUAGES[: len(column)]})
    pq.write_table(table.replace_schema_metadata({"st_xlret": json.dumps(about)}), path)
    return str(path)


def test_what_is_written_is_the_map_of_what_is_stored(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, into = parquet(tmp_path / "vectors.parquet"), str(tmp_path / "mapped.parquet")
    main(["apply", folder, "--vectors", source, "--into", into])
    written = np.stack(pq.read_table(into)["vector"].to_numpy())
    assert written.dtype == np.float16
    np.testing.assert_allclose(written, MAPPED, atol=2e-3)
    printed = capsys.readouterr().out
    assert f"10 rows written to {into}" in printed and "calibration.transform(query)" in printed
    assert printed.index(f'read_table("{into}")') < printed.index("The way back") < printed.index(f'"{source}"')
    with pytest.raises(SystemExit, match="nothing is overwritten"):
        main(["apply", folder, "--vectors", source, "--into", into])


def test_a_dry_run_writes_nothing(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = parquet(tmp_path / "vectors.parquet", [*VECTORS[:9], None])
    before = sorted(tmp_path.rglob("*"))
    main(["apply", folder, "--vectors", source, "--into", str(tmp_path / "mapped.parquet"), "--dry_run"])
    assert sorted(tmp_path.rglob("*")) == before
    printed = capsys.readouterr().out
    assert "10 rows of 4 dimensions would go into" in printed and "Nothing was written" in printed
    assert "not to be mapped: 1 row without a vector (or with NaN) (9)" in printed


def test_rows_that_cannot_be_mapped_are_counted_and_named(tmp_path: Path) -> None:
    vectors = [*VECTORS[:5], None, [0, 0, 0, 0], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1], VECTORS[9]]
    source, into = parquet(tmp_path / "vectors.parquet", vectors), str(tmp_path / "mapped.parquet")
    done = apply_calibration(PER_LANGUAGE, open_vectors(source), into, show_progress_bar=False)
    assert str(done.left_out) == (
        "2 rows without a vector (or with NaN) (5, 7); 1 row whose vector is zero, or nearly (6); 1 row with "
        "numbers that are infinite or too large (8); 1 row in fr, for which there is no map (1); 1 row "
        "without a language (3)"
    )
    assert done.written == 4
    written = pq.read_table(into)["vector"].to_pylist()
    assert [i for i, vector in enumerate(written) if vector is not None] == [0, 2, 4, 9]
    np.testing.assert_allclose(written[4], PER_LANGUAGE.transform(VECTORS[4], "document", "de"), atol=2e-3)


@pytest.mark.parametrize(
    ("calibration", "about", "message"),
    [
        (VectorCalibration(np.eye(3, dtype=np.float32)[None], np.zeros((1, 3), np.float32)), {}, "dimensions 4"),
        (SHARED, {"metric": "euclidean"}, "metric euclidean, but the calibration was fitted for metric cosine"),
        (
            VectorCalibration(SHARED.weight, SHARED.bias, model="one"),
            {"model": "other"},
            "model other, but the calibration was fitted for model one",
        ),
        (VectorCalibration(SHARED.weight, SHARED.bias, queries_only=True), {}, "maps queries alone"),
    ],
)
def test_a_map_of_other_vectors_is_refused(
    calibration: VectorCalibration, about: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        apply_calibration(calibration, open_vectors(parquet(tmp_path / "a.parquet", **about)), "mapped.parquet")


def test_options_that_are_missing(folder: str) -> None:
    with pytest.raises(SystemExit, match="--into is missing"):
        main(["apply", folder, "--vectors", "a.parquet"])
    with pytest.raises(SystemExit, match="--vectors is missing"):
        main(["apply", folder, "--into", "b.parquet"])


DATABASES = {"named_qdrant": "the named vector mapped of docs", "qdrant": "the collection mapped"} | {
    "lance": "the table mapped",
    "chroma": "the collection mapped",
}


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The name of a kind of store, and the address of one."""
    return request.param, stores.BUILDERS[request.param](tmp_path)


def vectors_of(address: str) -> np.ndarray:
    """The mapped vectors beside those of the address, in its order."""
    before = "vector=dense" if "vector=dense" in address else "=docs"
    with open_vectors(address.replace(before, f"{before.partition('=')[0]}=mapped")) as written:
        return np.concatenate([rows.vectors for rows in written.batches()])


@pytest.mark.parametrize(
    ("error", "message"),
    [(ConnectionError("the server has gone away"), "the server has gone away."), (KeyboardInterrupt(), "stopped.")],
)
def test_an_interrupted_run_continues_and_takes_rows_that_were_added(
    error: BaseException,
    message: str,
    database: tuple[str, str],
    folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(applying, "_ROWS", 3)
    store, address = database
    given = ["apply", folder, "--vectors", address, "--into", "mapped"]
    as_it_is = VectorCalibration.transform
    calls = []

    def dies_in_the_third_batch(self: VectorCalibration, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise error
        return as_it_is(self, *arguments)

    monkeypatch.setattr(VectorCalibration, "transform", dies_in_the_third_batch)
    with pytest.raises(SystemExit) as stopped:
        main(given)
    assert f"{message} 6 rows are in {DATABASES[store]}; the same command continues" in str(stopped.value)
    monkeypatch.setattr(VectorCalibration, "transform", as_it_is)
    stores.add_a_row(store, tmp_path)
    main([*given, "--dry_run"])
    assert f"11 rows of 4 dimensions would go into {DATABASES[store]}, 6 of which are there" in capsys.readouterr().out
    main(given)
    printed = capsys.readouterr().out
    assert f"5 rows written to {DATABASES[store]} in" in printed and "; 6 were there already\n" in printed
    expected = np.concatenate([MAPPED, SHARED.transform([[1.0, 0, 0, 0]], "document")])
    np.testing.assert_allclose(vectors_of(address), expected, atol=1e-6)


@pytest.mark.parametrize(("store", "missed"), [("lance", 1), ("chroma", 0)])  # Chroma reads it in the same run
def test_rows_that_are_added_meanwhile_are_counted_and_written_by_the_same_command(
    store: str,
    missed: int,
    folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = stores.BUILDERS[store](tmp_path)
    given = ["apply", folder, "--vectors", address, "--into", "mapped"]
    as_it_is = VectorCalibration.transform

    def while_a_row_is_added(self: VectorCalibration, *arguments: Any) -> Any:
        stores.add_a_row(store, tmp_path)
        return as_it_is(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(VectorCalibration, "transform", while_a_row_is_added)
        main(given)
    printed = capsys.readouterr().out
    assert f"{11 - missed} rows written" in printed
    assert ("1 rows were added" in printed and "run the same command again" in printed) == (missed == 1)
    main(given)
    assert f"{missed} rows written" in capsys.readouterr().out
    np.testing.assert_allclose(vectors_of(address)[:10], MAPPED, atol=1e-6)
    assert len(vectors_of(address)) == 11


def test_the_same_query_finds_the_same_before_and_after_and_back(folder: str, tmp_path: Path) -> None:
    address = stores.named_qdrant(tmp_path)
    client, _ = stores.open_qdrant(tmp_path)
    before = client.query_points("docs", query=VECTORS[0].tolist(), using="dense").points
    client.close()
    main(["apply", folder, "--vectors", address, "--into", "mapped"])
    client, _ = stores.open_qdrant(tmp_path)
    assert client.query_points("docs", query=VECTORS[0].tolist(), using="dense").points == before
    found = client.query_points("docs", query=SHARED.transform(VECTORS[0]).tolist(), using="mapped").points
    client.close()
    expected = np.argsort(-(MAPPED @ MAPPED[0]), kind="stable")
    assert [point.id for point in found] == expected.tolist()


@pytest.mark.parametrize("build", [stores.lance, stores.named_qdrant, stores.chroma])
def test_what_is_whole_is_not_written_again(
    build: Any, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["apply", folder, "--vectors", build(tmp_path), "--into", "mapped"]
    main(given)
    main(given)
    assert "0 rows written" in capsys.readouterr().out


def test_a_lance_table_is_continued_as_often_as_rows_are_added(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = stores.lance(tmp_path)
    given = ["apply", folder, "--vectors", address, "--into", "mapped"]
    main(given)
    for rows in (1, 2):
        for _ in range(rows):
            stores.add_a_row("lance", tmp_path)
        capsys.readouterr()
        main(given)
        assert f"{rows} rows written" in capsys.readouterr().out
    assert len(vectors_of(address)) == 13


@pytest.mark.parametrize("change", ["delete", "update", "optimize", "made anew"])
def test_a_lance_table_that_has_changed_is_not_continued_by_number(change: str, folder: str, tmp_path: Path) -> None:
    given = ["apply", folder, "--vectors", stores.lance(tmp_path), "--into", "mapped"]
    main(given)
    stores.add_a_row("lance", tmp_path)
    database = pytest.importorskip("lancedb").connect(str(tmp_path / "lance"))
    table = database.open_table("docs")
    if change == "delete":
        table.delete("language = 'de'")
    elif change == "update":
        table.update(where="text = 'text 3'", values={"vector": [1.0, 0.0, 0.0, 0.0]})
    elif change == "optimize":
        table.optimize()
    else:
        database.drop_table("docs")
        stores.lance(tmp_path)
    with pytest.raises(SystemExit, match="rows were changed, deleted or moved since the table mapped was begun"):
        main(given)


def test_200_languages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A map for each, and rows in a language more."""
    codes = [f"l{i:03d}" for i in range(201)]
    weight = np.stack([np.diag(GENERATOR.uniform(0.5, 2, 4)).astype(np.float32) for _ in codes[:200]])
    calibration = VectorCalibration(weight, np.zeros((200, 4), np.float32), languages=codes[:200])
    calibration.save(tmp_path / "map")
    vectors = GENERATOR.normal(size=(402, 4)).astype(np.float32)
    table = pa.table({"vector": vectors.tolist(), "language": codes * 2})
    pq.write_table(table, tmp_path / "vectors.parquet")
    into = str(tmp_path / "mapped.parquet")
    main(["apply", str(tmp_path / "map"), "--vectors", str(tmp_path / "vectors.parquet"), "--into", into])
    printed = capsys.readouterr().out
    assert (
        "not mapped: 2 rows in l200, for which there is no map (200, 401)" in printed and "400 rows written" in printed
    )
    written = pq.read_table(into)["vector"].to_pylist()
    assert [i for i, vector in enumerate(written) if vector is None] == [200, 401]
    mapped = [i for i in range(402) if i % 201 != 200]
    expected = calibration.transform(vectors[mapped], "document", [(codes * 2)[i] for i in mapped])
    np.testing.assert_allclose([written[i] for i in mapped], expected, atol=1e-5)


def of_topics(path: Path, *, languages: Any = None) -> tuple[str, np.ndarray, list[str]]:
    """Twenty topics in two languages."""
    meaning = GENERATOR.normal(size=(20, 4)).astype(np.float32)
    vectors = np.concatenate([meaning, meaning + 0.05 * GENERATOR.normal(size=meaning.shape)]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codes = ["en"] * 20 + ["fr"] * 20 if languages is None else languages
    table = pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4), "language": codes})
    pq.write_table(table, path)
    return str(path), vectors, codes


def test_translations_share_their_vectors(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[str | None] = ["en"] * 20 + ["fr"] * 19 + [None]
    source, vectors, _ = of_topics(tmp_path / "vectors.parquet", languages=codes)
    into = str(tmp_path / "shared.parquet")
    main(["apply", folder, "--vectors", source, "--into", into, "--share_translations"])
    mapped = SHARED.transform(vectors, "document")
    expected = share_translations(mapped[:39], [code for code in codes if code])
    assert not np.allclose(expected, mapped[:39], atol=1e-3)
    written = np.stack(pq.read_table(into)["vector"].to_numpy())
    np.testing.assert_allclose(written, np.concatenate([expected, mapped[39:]]), atol=1e-6)
    printed = capsys.readouterr().out
    assert "rows share their vectors with translations, 1.0 each" in printed and "40 rows written" in printed
    with open_vectors(into) as made, pytest.raises(ValueError, match="take those that they were made from, "):
        made.refuse_mapped()


def test_chunks_of_one_document_are_no_decoys(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 80 documents of two chunks that hardly differ, in two languages."""
    meaning = np.repeat(GENERATOR.normal(size=(80, 4)), 2, axis=0)
    noise = 0.02 * GENERATOR.normal(size=(2, 160, 4))
    vectors = np.concatenate([meaning + noise[0], meaning + 3 * noise[1]]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codes, names = ["en"] * 160 + ["fr"] * 160, [f"{number // 2}" for number in range(320)]
    numbers = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
    source, into = str(tmp_path / "chunks.parquet"), str(tmp_path / "shared.parquet")
    pq.write_table(pa.table({"vector": numbers, "language": codes, "source": pa.array(map(int, names))}), source)
    given = ["apply", folder, "--vectors", source, "--into", into]
    main([*given, "--share_translations", "--document_field", "source"])
    mapped = SHARED.transform(vectors, "document")
    expected, without = (share_translations(mapped, codes, documents) for documents in (names, None))
    assert not np.allclose(expected, without, atol=1e-3)
    assert "rows are chunks of 160 documents" in capsys.readouterr().out
    np.testing.assert_allclose(np.stack(pq.read_table(into)["vector"].to_numpy()), expected, atol=1e-6)
    with pytest.raises(SystemExit, match="--document_field source is for --share_translations"):
        main([*given, "--document_field", "source"])
    np.save(tmp_path / "chunks.npy", vectors)
    (tmp_path / "codes.txt").write_text("\n".join(codes))
    given = ["apply", folder, "--vectors", str(tmp_path / "chunks.npy"), "--into", str(tmp_path / "shared.npy")]
    given += ["--languages_file", str(tmp_path / "codes.txt"), "--share_translations", "--document_field", "source"]
    with pytest.raises(SystemExit, match=r"chunks.npy has no fields, so no --document_field source"):
        main(given)


def test_a_document_field_without_values_is_named(folder: str, tmp_path: Path) -> None:
    given = ["apply", folder, "--vectors", stores.named_qdrant(tmp_path), "--into", "mapped", "--share_translations"]
    with pytest.raises(SystemExit, match="has a value in the document field 'source'; there are the fields.*text"):
        main([*given, "--document_field", "source"])


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (pa.nulls(40, pa.string()), "no row has a vector and a language, and translations.*--language_field"),
        (["en"] * 40, "all rows are in en, and translations are found between languages"),
    ],
)
def test_translations_need_two_languages(languages: Any, message: str, folder: str, tmp_path: Path) -> None:
    source, _, _ = of_topics(tmp_path / "vectors.parquet", languages=languages)
    with pytest.raises(SystemExit, match=message):
        main(["apply", folder, "--vectors", source, "--into", str(tmp_path / "new.parquet"), "--share_translations"])
    assert not (tmp_path / "new.parquet").exists()


def test_with_a_map_per_language_the_mapped_vectors_are_shared(tmp_path: Path) -> None:
    codes: list[str | None] = ["en"] * 20 + ["de"] * 18 + ["fr", None]
    source, vectors, _ = of_topics(tmp_path / "vectors.parquet", languages=codes)
    vectors[20:] *= -1  # as the map of German expects it
    table = pq.read_table(source)
    numbers = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
    pq.write_table(table.set_column(0, "vector", numbers), source)
    into = str(tmp_path / "shared.parquet")
    done = apply_calibration(PER_LANGUAGE, open_vectors(source), into, share_translations=True, show_progress_bar=False)
    known = [str(code) for code in codes[:38]]
    mapped = PER_LANGUAGE.transform(vectors[:38], "document", known)
    written = pq.read_table(into)["vector"].to_pylist()
    np.testing.assert_allclose(written[:38], share_translations(mapped, known), atol=1e-6)
    assert written[38:] == [None, None] and done.written == 38 and done.pairs > 9


def test_rows_added_between_the_passes_are_left_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = stores.named_qdrant(tmp_path)
    how: Any = {"share_translations": True, "show_progress_bar": False}
    find = translations.find_translations
    with open_vectors(address) as source:
        qdrant: Any = source

        def while_a_row_is_added(*args: Any, **options: Any) -> Any:
            point = qdrant.models.PointStruct(id=10, vector={"dense": [1.0, 0.0, 0.0, 0.0]})
            qdrant.client.upsert("docs", [point])
            return find(*args, **options)

        with monkeypatch.context() as patched:
            patched.setattr(translations, "find_translations", while_a_row_is_added)
            done = apply_calibration(SHARED, source, "mapped", **how)
    assert (done.written, done.added) == (10, 1)
    chosen = [i for i, code in enumerate(LANGUAGES) if code]
    expected = np.concatenate([MAPPED, np.full((1, 4), np.nan)])
    expected[chosen] = share_translations(MAPPED[chosen], [code for code in LANGUAGES if code])
    np.testing.assert_allclose(vectors_of(address), expected, atol=1e-6)
    with open_vectors(address) as source:
        done = apply_calibration(SHARED, source, "mapped", **how)
    assert (done.written, done.added) == (1, 0) and np.isfinite(vectors_of(address)).all()
    with open_vectors(address) as source, pytest.raises(FileExistsError, match="not made by this map"):
        apply_calibration(SHARED, source, "mapped", show_progress_bar=False)  # without sharing, it is another map
