"""Stored vectors in files: types, rows without a vector, languages, and what is written."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret import VectorCalibration
from st_xlret.calibration.steps import Maps
from st_xlret.stores import Store, apply_calibration, base, open_store
from st_xlret.stores.parquet import ParquetStore
from tests.stores.stores import LANGUAGES, VECTORS, table

TYPES = [
    pa.list_(pa.float16()),
    pa.large_list(pa.float32()),
    pa.list_(pa.float64()),
    pa.list_(pa.float16(), 4),
]
CALIBRATION = VectorCalibration.fit(
    np.random.default_rng(1).normal(size=(120, 4)), ["en", "de"] * 60
)


def parquet(folder: Path, content: Any, **fields: Any) -> Store:
    pq.write_table(pa.table(content), folder / "docs.parquet")
    return open_store(folder / "docs.parquet", **fields)


def numpy(folder: Path, vectors: Any = VECTORS, codes: bytes = b"") -> Store:
    np.save(folder / "docs.npy", vectors)
    (folder / "codes.txt").write_bytes(codes or b"en\n" * len(vectors))
    return open_store(folder / "docs.npy", languages_file=folder / "codes.txt")


def test_every_row_is_drawn_as_often(tmp_path: Path) -> None:
    store = parquet(tmp_path, {"vector": [[float(i), 1.0] for i in range(20)], "lang": ["en"] * 20})
    store.size = 7
    samples = [store.sample(5, seed=seed).vectors["en"] for seed in range(400)]
    drawn = np.concatenate(samples)[:, 0].astype(int)
    counts = np.bincount(drawn, minlength=20)
    assert counts.sum() == 2000 and counts.min() > 60 and counts.max() < 140
    np.testing.assert_array_equal(store.sample(5, seed=1).vectors["en"], samples[1])


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize(
    ("column", "ids", "expected"),
    [
        ("id", [7, 8], ["7", "8"]),
        ("_id", ["b", None], ["b", None]),
        ("ID", ["1", "0"], ["1", "0"]),
        ("key", [7, 8], ["0", "1"]),
    ],
)
def test_rows_have_the_ids_of_their_table_or_else_numbers(
    column: str, ids: list, expected: list, texts: bool, tmp_path: Path
) -> None:
    store = parquet(tmp_path, {"vector": [[0.5, 1.5]] * 2, column: ids})
    assert next(store.batches(texts=texts)).column("id").to_pylist() == expected


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_mapped_file_has_the_types_and_the_other_columns_of_its_source(
    kind: pa.DataType, tmp_path: Path
) -> None:
    content = table(kind).rename_columns(["dense", "spoken", "body"])
    for name, values in {
        "vector": [[0.5, 1.5]] * 10,
        "language": ["xx"] * 10,
        "id": range(10),
    }.items():
        content = content.append_column(name, pa.array(values))  # which are not asked for
    content = content.replace_schema_metadata(
        {"st_xlret": json.dumps({"model": "me/model", "metric": "cosine"})}
    )
    store = parquet(
        tmp_path, content, vector_field="dense", language_field="spoken", text_field="body"
    )
    assert (store.model, store.metric) == ("me/model", "cosine")
    assert apply_calibration(CALIBRATION, store, str(tmp_path / "mapped.parquet")).written == 10
    mapped = pq.read_table(tmp_path / "mapped.parquet")
    assert mapped.schema.equals(content.schema, check_metadata=False) and mapped.drop(
        "dense"
    ) == content.drop("dense")
    assert json.loads(mapped.schema.metadata[b"st_xlret"])["model"] == "me/model"
    expected = CALIBRATION.transform(VECTORS, "document")
    np.testing.assert_allclose(np.stack(mapped["dense"].to_numpy()), expected, atol=2e-3)
    with pytest.raises(ValueError, match=r"mapped\.txt"):
        apply_calibration(CALIBRATION, store, str(tmp_path / "mapped.txt"))


def test_rows_without_a_vector_or_of_which_the_map_leaves_nothing_are_left_out(
    tmp_path: Path,
) -> None:
    vectors = [
        [1, 2],
        None,
        [float("nan"), 1],
        [0, 1e-25],
        [3, 4],
        [1e300, 1],
        [None, 1],
        [7, 0],
        [8, 0],
    ]
    codes = [
        *((code or "").encode() for code in LANGUAGES[:8]),
        b"\xff",
    ]  # a label that cannot be read
    store = parquet(
        tmp_path, {"vector": pa.array(vectors, pa.list_(pa.float64())), "language": codes}
    )
    with pytest.warns(
        UserWarning, match="5 rows without a vector.*1 row with a language that is no code"
    ):
        sample = {code: sorted(rows.tolist()) for code, rows in store.sample(9).vectors.items()}
    assert sample == {"de": [[3, 4]], "en": [[1, 2], [7, 0]]}
    without_first = VectorCalibration(np.eye(2), Maps(-np.diag([1.0, 0.0])[None], np.zeros((1, 2))))
    left_out = {
        "without a vector that can be mapped": 5,
        "of which the map leaves nothing to store": 2,
    }
    applied = apply_calibration(without_first, store, str(tmp_path / "mapped.parquet"))
    assert applied == (2, left_out, 0)
    mapped = pq.read_table(tmp_path / "mapped.parquet")["vector"].to_pylist()
    assert mapped == [[0, 1], None, None, None, [0, 1], None, None, None, None]
    twice = VectorCalibration(np.eye(2), Maps(np.eye(2)[None], np.zeros((1, 2))), normalize=False)
    assert (
        apply_calibration(
            twice, numpy(tmp_path, np.float16([[4e4, 1], [1, 1]])), f"{tmp_path}/a.npy"
        ).written
        == 1
    )


@pytest.mark.parametrize("name", ["new.npy", "linked.npy"])
def test_a_mapped_array_is_told_by_what_it_holds(name: str, tmp_path: Path) -> None:
    """Through a link, too; other vectors that are saved under its name are not mapped."""
    (tmp_path / "linked.npy").symlink_to(tmp_path / "new.npy")
    apply_calibration(CALIBRATION, numpy(tmp_path), str(tmp_path / "new.npy"))
    assert str(open_store(tmp_path / name).origin).startswith(CALIBRATION.fingerprint)
    np.save(tmp_path / name, VECTORS)
    assert open_store(tmp_path / name).origin is None


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    store = numpy(tmp_path, np.zeros((20_000, 4)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = sorted(tmp_path.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="mapped.npy"):
            apply_calibration(CALIBRATION, store, str(tmp_path / "mapped.npy"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(tmp_path.iterdir()) == before


def test_a_large_file_is_read_in_constant_memory(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(2**22, np.float32)), 128)
    how: Any = {"row_group_size": 1024, "compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"vector": vectors}), tmp_path / "docs.parquet", **how)
    store = open_store(tmp_path / "docs.parquet")
    before = pa.total_allocated_bytes()
    store.size = 1024
    held = [pa.total_allocated_bytes() - before for _ in store.batches()]
    assert len(held) == 32 and max(held) < 8 * 2**20 < (tmp_path / "docs.parquet").stat().st_size


def test_languages_are_found_in_texts_but_of_many_rows_in_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("py3langid")
    monkeypatch.setattr(base, "_IDENTIFIED", 150)
    texts = [
        "The cat sleeps on the roof of the house.",
        "Le chat dort sur le toit de la maison.",
        None,
    ] * 600
    content = {"vector": [[1.0, 2.0]] * 1800, "language": ["sw", *[None] * 599] * 3, "text": texts}
    store: Any = parquet(tmp_path, content, text_field="text")
    store._identify_language = identify = Mock(wraps=store._identify_language)
    with pytest.warns(UserWarning, match="rows without a language"):
        counts = {code: len(rows) for code, rows in store.sample(1000).vectors.items()}
    assert counts.pop("sw") == 3 and sum(counts.values()) == identify.call_count
    assert 25 < counts["en"] < 75 and 25 < counts["fr"] < 75


def test_the_order_of_a_table_s_columns_in_a_batch_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = parquet(tmp_path, table())
    apply_calibration(CALIBRATION, store, str(tmp_path / "expected.parquet"))
    batches = ParquetStore._table_batches

    def reversed_batches(self: ParquetStore, columns: list[str]) -> Any:
        for batch in batches(self, columns):
            yield batch.select(batch.schema.names[::-1])

    monkeypatch.setattr(ParquetStore, "_table_batches", reversed_batches)
    apply_calibration(CALIBRATION, store, str(tmp_path / "mapped.parquet"))
    mapped = pq.read_table(tmp_path / "mapped.parquet")
    assert mapped.equals(pq.read_table(tmp_path / "expected.parquet"))


def test_what_does_not_belong_to_a_folder_is_left_out_and_named(tmp_path: Path) -> None:
    for place in (
        "language=fr",
        "language=__HIVE_DEFAULT_PARTITION__",
        "_temporary/0",
        ".git",
        ".b.1.st-xlret-tmp",
    ):
        (tmp_path / place).mkdir(parents=True)
        pq.write_table(
            pa.table({"vector": [[1.0, 2.0, 3.0, 4.0]] * 2}), tmp_path / place / "a.parquet"
        )
    for name in ("language=fr/b.parquet.gz", "_SUCCESS"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "linked").symlink_to(tmp_path / "language=fr")
    (tmp_path / "gone.parquet").symlink_to(tmp_path / "nowhere")
    with pytest.warns(UserWarning, match="6 files are left out, such as .b.1"):
        store = open_store(tmp_path)
    assert len(store) == 4 and next(store.batches()).column("language").to_pylist() == [None] * 2
    assert {code: len(part) for code, part in store.sample(9).vectors.items()} == {"fr": 2}
    with pytest.raises(FileExistsError, match="what is read"):
        apply_calibration(CALIBRATION, store, str(tmp_path / "new" / "mapped.parquet"))
    pq.write_table(table(), tmp_path / "b.parquet")
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match=r"b\.parquet.*text"),
    ):
        open_store(tmp_path)
    (tmp_path / "new" / "_delta_log").mkdir(parents=True)
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="_delta_log"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    "other", [{"map": "1 of a.parquet"}, {"fingerprint": "2"}, {"metric": "dot"}], ids=str
)
def test_the_files_of_a_folder_are_of_one_model_and_one_map(
    other: dict[str, str], tmp_path: Path
) -> None:
    for name, about in {"a": {}, "b": other}.items():
        pq.write_table(
            table().replace_schema_metadata({"st_xlret": json.dumps(about)}),
            tmp_path / f"{name}.parquet",
        )
    with pytest.raises(ValueError, match=f"differ in {next(iter(other))}"):
        open_store(tmp_path)


DENSE = table().rename_columns(["dense", "language", "text"])
NO_CODES = {
    "vector": VECTORS.tolist(),
    "language": ["health/a_8"] * 9 + ["en"],
    "spoken_lang": ["en"] * 10,
}


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        (DENSE, {"vector_field": "text"}, "'text'.*'dense'"),
        (
            DENSE.rename_columns(["vector", "language", "language"]),
            {},
            "docs.parquet has 2 fields 'language'",
        ),
        (DENSE, {}, "'vector'.*'dense'"),
        (
            {"vector": pa.array([[1, 2]], pa.list_(pa.int8()))},
            {},
            r"vector \(.*int8.*floating-point",
        ),
        (DENSE, {"vector_field": "dense", "language_field": "tongue"}, "'tongue'.*'language'"),
        (DENSE, {"vector_field": "dense", "languages_file": "codes.txt"}, "codes.txt"),
        (NO_CODES, {}, r"'health/a_8'.*spoken_lang"),
        (
            {"vector": [[1.0, 2.0]] * 3, "text": ["no text field is named"] * 3},
            {},
            "docs.parquet: of 3 rows none",
        ),
        ({"vector": [[1.0, 2.0], [1.0, 2.0, 3.0]]}, {}, "docs.parquet"),
        ({"vector": pa.array([], pa.list_(pa.float32()))}, {}, "docs.parquet"),
        (np.ones(3), {}, "docs.npy"),
        (np.ones((3, 2), np.int64), {}, "docs.npy"),
        (VECTORS, {"codes": b"en\n" * 11}, "docs.npy"),
        (VECTORS, {"codes": b"\xff\xfe" * 10}, "docs.npy"),
    ],
)
def test_what_cannot_be_sampled_is_named(
    content: Any, fields: dict, message: str, tmp_path: Path
) -> None:
    make: Any = numpy if isinstance(content, np.ndarray) else parquet
    with pytest.raises(ValueError, match=message):
        make(tmp_path, content, **fields).sample(4)


@pytest.mark.parametrize("count", [0, -1])
def test_a_sample_of_nothing_is_named(count: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"per_language={count} is below 1"):
        parquet(tmp_path, DENSE, vector_field="dense").sample(count)


def test_what_holds_no_vectors_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.faiss").write_bytes(b"no index")
    for name in ("broken.faiss", "vectors.txt", "missing.parquet"):
        with pytest.raises((ValueError, OSError), match=name):
            open_store(tmp_path / name)
    with pytest.raises(ValueError, match="names no stored vectors"):
        open_store("")


@pytest.mark.parametrize(
    ("kind", "named"),
    [("PQ2x2", "IndexPQ"), ("HNSW8", "IndexHNSW"), ("Flat", "metric"), ("IVF1,Flat", "each once")],
)
@pytest.mark.parametrize("ids", [[3, 1, 1, 0], [7, 1, 2, 3]])
def test_indexes_that_are_not_read(kind: str, named: str, ids: list[int], tmp_path: Path) -> None:
    index: Any = faiss.index_factory(
        4, kind, faiss.METRIC_L1 if kind == "Flat" else faiss.METRIC_L2
    )
    index.train(VECTORS)
    index.add_with_ids(VECTORS[:4], np.array(ids)) if kind == "IVF1,Flat" else index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "a.faiss"))
    with pytest.raises(ValueError, match=rf"a\.faiss.*{named}"):
        open_store(tmp_path / "a.faiss")
