"""Stored vectors in NumPy and Parquet files."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret.vectors import VectorCalibration, VectorSource, apply_calibration, base, open_vectors

VECTORS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float16)
LANGUAGES = ["en", "fr", "en", None, "de", "en", "fr", "en", "en", "de"]
TYPES = {
    "list": pa.list_(pa.float16()),
    "large list": pa.large_list(pa.float32()),
    "fixed size list": pa.list_(pa.float16(), 4),
}


def table(kind: pa.DataType, vectors: Any = VECTORS, **more: Any) -> pa.Table:
    # Only newer pyarrow makes half precision of Python's numbers.
    rows = [None if row is None else [None if x is None else np.float16(x) for x in row] for row in vectors]
    column = pa.array(rows, kind)
    return pa.table({"vector": column, "language": LANGUAGES[: len(column)], **more})


def numpy_source(folder: Path, vectors: Any = VECTORS) -> VectorSource:
    np.save(folder / "vectors.npy", vectors)
    (folder / "codes.txt").write_text("".join(f"{code or ''}\n" for code in LANGUAGES))
    return open_vectors(folder / "vectors.npy", languages_file=folder / "codes.txt")


def parquet_source(folder: Path, content: pa.Table, **fields: Any) -> VectorSource:
    pq.write_table(content, folder / "vectors.parquet")
    return open_vectors(str(folder / "vectors.parquet"), **fields)


@pytest.fixture(params=["npy", *TYPES])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> VectorSource:
    if request.param == "npy":
        return numpy_source(tmp_path)
    return parquet_source(tmp_path, table(TYPES[request.param]))


def everything(source: VectorSource, size: int = 3) -> tuple[np.ndarray, list[str | None], list[Any]]:
    batches = list(source.batches(size))
    assert all(len(rows.ids) == len(rows.vectors) == len(rows.languages) <= size for rows in batches)
    return (
        np.concatenate([rows.vectors for rows in batches]),
        [code for rows in batches for code in rows.languages],
        [name for rows in batches for name in rows.ids],
    )


def test_rows_come_in_batches(source: VectorSource) -> None:
    vectors, languages, ids = everything(source)
    assert (len(source), source.dimension) == (10, 4) and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS.astype(np.float32))
    assert languages == LANGUAGES and ids == list(range(10))


def test_a_sample_has_a_progress_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="without a language"):
        numpy_source(tmp_path).sample(2, show_progress_bar=True)
    assert "10/10" in capsys.readouterr().err


def test_a_sample_takes_each_language_and_names_what_it_leaves_out(source: VectorSource) -> None:
    with pytest.warns(UserWarning, match=r"left out: 1 row without a language \(3\)"):
        sample = source.sample(2)
    assert {code: found.shape for code, found in sample.items()} == {"de": (2, 4), "en": (2, 4), "fr": (2, 4)}
    english = {tuple(VECTORS[i].tolist()) for i, code in enumerate(LANGUAGES) if code == "en"}
    assert {tuple(vector) for vector in sample["en"].tolist()} < english
    with pytest.warns(UserWarning):
        assert list(source.sample(9, languages=["fr"])) == ["fr"]


def test_every_row_is_drawn_as_often(tmp_path: Path) -> None:
    source = parquet_source(tmp_path, pa.table({"vector": [[float(i), 1.0] for i in range(20)], "lang": ["en"] * 20}))
    drawn = np.concatenate([source.sample(5, seed=seed)["en"][:, 0] for seed in range(400)]).astype(int)
    counts = np.bincount(drawn, minlength=20)
    assert counts.sum() == 2000 and counts.min() > 60 and counts.max() < 140
    np.testing.assert_array_equal(source.sample(5, seed=1)["en"], source.sample(5, seed=1)["en"])


def test_mapped_vectors_go_into_a_new_file(source: VectorSource, tmp_path: Path) -> None:
    suffix = Path(source.name).suffix
    target = source.target(str(tmp_path / f"mapped{suffix}"), "the map")
    with target:
        for rows in source.batches(3, everything=target.everything):
            target.write(rows._replace(vectors=-rows.vectors))
    mapped = open_vectors(tmp_path / f"mapped{suffix}")
    np.testing.assert_array_equal(everything(mapped)[0], -VECTORS.astype(np.float32))
    if suffix == ".npy":
        assert np.load(tmp_path / "mapped.npy").dtype == np.float16
        return
    before, after = pq.read_table(source.name), pq.read_table(tmp_path / "mapped.parquet")
    assert after.schema.equals(before.schema, check_metadata=False)
    assert after["language"].to_pylist() == LANGUAGES
    assert json.loads(after.schema.metadata[b"st_xlret"])["map"] == "the map"


def test_nothing_is_left_of_a_file_that_was_interrupted(source: VectorSource, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    target = source.target(str(tmp_path / f"mapped{Path(source.name).suffix}"), "")
    with pytest.raises(KeyboardInterrupt), target:
        target.write(next(source.batches(3, everything=target.everything)))
        raise KeyboardInterrupt
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_leaves_nothing(source: VectorSource, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    with (
        pytest.raises(OSError, match=r"mapped.*Free some space"),
        source.target(str(tmp_path / f"mapped{Path(source.name).suffix}"), ""),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert sorted(tmp_path.iterdir()) == before


def test_nothing_is_overwritten(source: VectorSource) -> None:
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        source.target(source.name, "")
    with pytest.raises(ValueError, match="go into another"):
        source.target("mapped.txt", "")


def test_a_row_without_a_vector_stays_in_its_place(tmp_path: Path) -> None:
    vectors = [[1, 2], None, [float("nan"), 1], [0, 1e-25], [3, 4], [1e300, 1]]
    source = parquet_source(tmp_path, table(pa.list_(pa.float64()), vectors, text=list("abcdef")))
    rows = next(source.batches(everything=True))
    assert rows.usable().tolist() == [True, False, False, False, True, False] and rows.texts == list("abcdef")
    with pytest.warns(
        UserWarning, match=r"2 rows without a vector \(or with NaN\) \(1, 2\); 1 row whose vector is zero, or nearly"
    ):
        sample = source.sample(9)
    assert {code: len(found) for code, found in sample.items()} == {"de": 1, "en": 1}
    with source.target(str(tmp_path / "mapped.parquet"), "") as target:
        target.write(rows)
    written = pq.read_table(tmp_path / "mapped.parquet")["vector"].to_pylist()
    assert [vector is None for vector in written] == [False, True, True, False, False, False]


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_disk_that_fills_up(suffix: str, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    vectors = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float16)
    numpy_source(tmp_path, vectors)
    parquet_source(tmp_path, pa.table({"vector": list(vectors)}))
    before, limits = sorted(tmp_path.iterdir()), resource.getrlimit(resource.RLIMIT_FSIZE)
    calibration = VectorCalibration(np.eye(4, dtype=np.float32)[None], np.zeros((1, 4), np.float32))
    source = open_vectors(tmp_path / f"vectors{suffix}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match=rf"Could not write \S+mapped{suffix}: .*Free some space"):
            apply_calibration(calibration, source, str(tmp_path / f"mapped{suffix}"), show_progress_bar=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_written(source: VectorSource) -> None:
    with pytest.raises(OSError, match="Cannot write to /proc"):
        source.target(f"/proc/mapped{Path(source.name).suffix}", "")


def test_a_large_file_is_read_in_constant_memory(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(2**22, np.float32)), 128)
    pq.write_table(
        pa.table({"vector": vectors}), tmp_path / "vectors.parquet", 1024, compression="none", use_dictionary=False
    )
    source, before = open_vectors(tmp_path / "vectors.parquet"), pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in source.batches(1024)]
    assert len(held) == 32 and max(held) < 8 * 2**20 < (tmp_path / "vectors.parquet").stat().st_size


def test_a_folder_of_files_is_one_source(tmp_path: Path) -> None:
    for part in range(2):
        pq.write_table(table(TYPES["list"]).slice(5 * part, 5), tmp_path / f"part-{part}.parquet")
    vectors, languages, ids = everything(open_vectors(tmp_path), size=4)
    np.testing.assert_array_equal(vectors, VECTORS.astype(np.float32))
    assert languages == LANGUAGES and ids == list(range(10))


def test_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    pq.write_table(table(TYPES["list"]), tmp_path / "a.parquet")
    pq.write_table(table(TYPES["fixed size list"]).rename_columns(["vector", "lang"]), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b.parquet and \S+a.parquet differ in the columns lang, language, vector"):
        open_vectors(tmp_path)


def test_a_folder_does_not_get_its_own_mapped_vectors(tmp_path: Path) -> None:
    pq.write_table(table(TYPES["list"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="would be read as a part of it: give another folder"):
        open_vectors(tmp_path).target(str(tmp_path / "new" / "mapped.parquet"), "")


@pytest.mark.parametrize("kind", TYPES)
def test_null_among_the_numbers_of_a_vector(kind: str, tmp_path: Path) -> None:
    # Older pyarrow cannot read missing rows of a fixed size.
    missing = [] if "fixed" in kind else [None]
    source = parquet_source(tmp_path, table(TYPES[kind], [[1, 2, 3, 4], [1, None, 3, 4], *missing]))
    assert next(source.batches()).usable().tolist() == [True, False, *[False for _ in missing]]


def test_other_columns_and_the_model(tmp_path: Path) -> None:
    content = (
        table(TYPES["list"]).rename_columns(["dense", "spoken"]).append_column("body", pa.array(list("abcdefghij")))
    )
    about = json.dumps({"model": "encoder", "metric": "cosine"})
    content = content.replace_schema_metadata({"st_xlret": about})
    source = parquet_source(tmp_path, content, vector_field="dense", language_field="spoken", text_field="body")
    rows = next(source.batches(everything=True))
    assert (source.model, source.metric, rows.languages, rows.texts[0]) == ("encoder", "cosine", LANGUAGES, "a")
    with pytest.raises(ValueError, match="no field 'vektor'; it has 'dense'"):
        open_vectors(source.name, vector_field="vektor")
    with pytest.raises(ValueError, match="no column 'vector'.*dense"):
        open_vectors(source.name)
    with pytest.raises(ValueError, match="not of lists"):
        open_vectors(source.name, vector_field="body")
    with pytest.raises(ValueError, match="no field 'tongue'"):
        open_vectors(source.name, vector_field="dense", language_field="tongue")
    wide = parquet_source(tmp_path, table(TYPES["list"], **{f"column {i}": LANGUAGES for i in range(99)})).name
    with pytest.raises(ValueError, match=r"no field 'tongue'; it has 'vector', .*'column 17', \.\.\. \(101\)"):
        open_vectors(wide, language_field="tongue")


def test_languages_are_found_in_texts(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    texts = ["The cat sleeps on the roof of the house.", "Le chat dort sur le toit de la maison.", None]
    content = pa.table({"vector": [[1.0, 2.0]] * 3, "text": texts})
    with pytest.warns(UserWarning, match=r"1 row without a language \(2\)"):
        assert list(parquet_source(tmp_path, content, text_field="text").sample(5)) == ["en", "fr"]
    with pytest.raises(ValueError, match="of 3 rows none has a vector and a language.*--text_field"):
        parquet_source(tmp_path, content).sample(5)


def test_of_many_rows_some_are_identified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_IDENTIFIED", 100)
    codes = ["sw" if i % 500 == 0 else None for i in range(2000)]
    content = pa.table({"vector": [[1.0, 2.0]] * 2000, "language": codes, "text": ["a"] * 2000})
    source, texts = parquet_source(tmp_path, content, text_field="text"), []
    source._identifier = SimpleNamespace(identify=lambda text: texts.append(text) or "en")
    sample = source.sample(1000)
    assert len(sample["sw"]) == 4 and len(sample["en"]) == len(texts) and 60 < len(texts) < 150
    for wanted in (["xx"], ["en", "xx"]):
        with pytest.raises(
            ValueError, match=r"in xx; there are en, sw\. Some may be among the 1[89]\d\d of 2000 rows that"
        ):
            source.sample(1000, languages=wanted)
    monkeypatch.setattr(base, "_IDENTIFIED", 2000)
    with pytest.raises(ValueError, match=r"no vector is in xx; there are en, sw$"):
        source.sample(1000, languages=["en", "xx"])


def test_vectors_of_several_lengths(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the vector of row 3 has 3 numbers, those before it 2"):
        parquet_source(tmp_path, table(TYPES["list"], [[1, 2], [3, 4], [5, 6], [1, 2, 3]]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.parquet", b"", "empty.parquet"),
        ("broken.npy", b"no array", "no NumPy file"),
        ("flat.npy", np.ones(3), "an array \\(rows, dimension\\)"),
        ("whole.npy", np.ones((3, 2), np.int64), "the type int64"),
        ("objects.npy", np.array([["a"]], object), "no NumPy file"),
        ("nothing.parquet", pa.table({"vector": pa.array([], pa.list_(pa.float32()))}), "is empty"),
        ("vectors.txt", b"", "names no stored vectors"),
    ],
)
def test_files_without_vectors(name: str, content: Any, message: str, tmp_path: Path) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif isinstance(content, pa.Table):
        pq.write_table(content, tmp_path / name)
    else:
        np.save(tmp_path / name, content, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        open_vectors(tmp_path / name)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match="missing.npy"):
        open_vectors("missing.npy")


@pytest.mark.parametrize(("lines", "message"), [(9, "fewer lines"), (11, "more lines")])
def test_a_file_of_languages_of_another_length(lines: int, message: str, tmp_path: Path) -> None:
    source = numpy_source(tmp_path)
    (tmp_path / "codes.txt").write_text("en\n" * lines)
    with pytest.raises(ValueError, match=f"codes.txt has {message} than .*vectors.npy has vectors, 10"):
        list(source.batches(4))


def test_a_file_of_languages_that_is_no_text(tmp_path: Path) -> None:
    source = numpy_source(tmp_path)
    (tmp_path / "codes.txt").write_bytes(b"\xff\xfe" * 10)
    with pytest.raises(ValueError, match="codes.txt is no text in UTF-8"):
        list(source.batches(4))


def test_languages_of_a_table_are_in_its_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in a field"):
        parquet_source(tmp_path, table(TYPES["list"]), languages_file="codes.txt")


@pytest.mark.parametrize(
    "address",
    [
        "mysql://me:secret@host/db",
        "postgresql://me:secret@host/db?table=docs",
        "postgresql://me:pass/secret@host/db?table=docs&column=dense",
        "postgresql://me:pass?secret@host/db?table=docs&column=dense",
        "qdrant:http://host:6333?collection=docs&apikey=secret",
        "qdrant:grpc://me:secret@host:6334?collection=docs",
        "qdrant:secret@nowhere?collection=docs",
        "qdrant:me:sec/secret@host?collection=docs",
        "qdrant:http:/me:secret@host?collection=docs",
        "https:/me:secret@host/vectors.npy",
        "s3:me:secret@bucket/vectors.parquet",
        "lance:s3://me:secret@bucket?table=docs",
        "s3://me:secret@bucket/vectors.parquet",
        "https://me:secret@host/vectors.npy",
    ],
)
def test_passwords_are_not_shown(address: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        open_vectors(address)
    assert "secret" not in str(error.value) and "me:" not in str(error.value)


def test_no_vectors_and_languages_that_are_not_there_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.empty((0, 4), np.float32))
    np.save(tmp_path / "flat.npy", np.empty((5, 0), np.float32))
    np.save(tmp_path / "some.npy", np.ones((2, 4), np.float32))
    (tmp_path / "codes.txt").write_text("en\nfr\n")
    with pytest.raises(ValueError, match=r"none.npy has no vectors"):
        open_vectors(tmp_path / "none.npy").sample(10)
    with pytest.raises(ValueError, match=r"none.npy has no vectors: there is nothing to map"):
        calibration = VectorCalibration(np.eye(4, dtype=np.float32)[None], np.zeros((1, 4), np.float32))
        apply_calibration(calibration, open_vectors(tmp_path / "none.npy"), str(tmp_path / "mapped.npy"))
    assert not (tmp_path / "mapped.npy").exists()
    with pytest.raises(ValueError, match=r"flat.npy has the shape \(5, 0\)"):
        open_vectors(tmp_path / "flat.npy")
    with pytest.raises(ValueError, match=r"no vector is in xx; there are en, fr"):
        open_vectors(tmp_path / "some.npy", languages_file=tmp_path / "codes.txt").sample(10, languages=["en", "xx"])
