"""The same ten rows through every kind of store: files, and databases in their real engines."""

import ast
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import DEFAULT, Mock
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from st_xlret import VectorCalibration
from st_xlret.stores import Store, apply_calibration, postgres
from st_xlret.stores.batches import batch_vectors
from st_xlret.stores.numbered import NumberedStore
from st_xlret.stores.registry import STORES, StoreKind, find_kind, store_class
from st_xlret.stores.tables import TableStore
from tests.stores import stores
from tests.stores.stores import LANGUAGES, TEXTS, VECTORS, Made

Build = Callable[[str], str]
Opened = Callable[..., Store]
Sql = Callable[..., Any]
GENERATOR = np.random.default_rng(1)
CLOUDS = {code: GENERATOR.normal(size=(60, 4)) + i for i, code in enumerate(["en", "de"])}


def fitted(store: Store, **how: Any) -> VectorCalibration:
    """A calibration for vectors that are compared as those of the store are."""
    return replace(VectorCalibration.fit(CLOUDS, **how), metric=store.metric or "cosine")


class Content(NamedTuple):
    """The rows of a store, in the order of their ids."""

    vectors: np.ndarray
    languages: list[str | None]
    texts: list[str | None]
    ids: list[str]


def read(store: Store) -> Content:
    batches = list(store.batches(texts=True))
    assert max(batch.num_rows for batch in batches) <= 3
    table = pa.Table.from_batches(batches)
    ids = table["id"].to_pylist()
    order = sorted(range(len(ids)), key=lambda row: (len(ids[row]), ids[row]))
    vectors = np.concatenate([batch_vectors(batch) for batch in batches])
    sorted_table = table.take(order)
    languages = [code or None for code in sorted_table["language"].to_pylist()]
    texts = sorted_table["text"].to_pylist()
    return Content(vectors[order], languages, texts, sorted_table["id"].to_pylist())


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.name)
def test_a_kind_of_store_is_declared_as_a_whole(kind: StoreKind, repository: Path) -> None:
    """It is made in tests, and its client is an extra of the package, with a pin."""
    assert kind.name in {maker.kind for maker in stores.MAKERS.values()}
    assert issubclass(store_class(kind), Store)
    named = find_kind(kind.example)
    assert named is kind
    if kind.extra is not None:
        project = (repository / "pyproject.toml").read_text("utf-8")
        pins = (repository / "constraints.txt").read_text("utf-8")
        (clients,) = re.findall(rf"\n{kind.extra} = \[(.+)\]\n", project)
        for client in re.findall(r'"([\w-]+)', clients):
            assert f"\n{client}==" in pins


CLASSES = [Store, NumberedStore, TableStore, *map(store_class, STORES)]


@pytest.mark.parametrize("store", CLASSES)
def test_init_alone_sets_the_attributes_of_a_store(store: type[Store]) -> None:
    (declared,) = ast.parse(inspect.getsource(store)).body
    assert isinstance(declared, ast.ClassDef)
    for method in declared.body:
        set_there = set()
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                set_there.add(ast.unparse(node))
        is_init = getattr(method, "name", "") == "__init__"
        of_store = {name for name in set_there if name.startswith("self.")}
        assert is_init or not of_store, f"{method} sets {of_store}"


def ids_in_order(store: Store, *, texts: bool) -> list[str]:
    """The ids as a pass gives them."""
    table = pa.Table.from_batches(store.batches(texts=texts))
    ids: list[str] = table["id"].to_pylist()
    return ids


def test_rows_and_a_sample(made: Made, opened: Opened) -> None:
    store = opened(made.address)
    content = read(store)
    assert (len(store), store.dimension) == (10, 4)
    assert len(set(content.ids)) == 10
    assert ids_in_order(store, texts=False) == ids_in_order(store, texts=True)
    np.testing.assert_allclose(content.vectors, VECTORS, atol=1e-3)
    assert content.languages == LANGUAGES
    assert content.texts == (TEXTS if made.kind.has_fields else [None] * 10)
    assert store.metric == made.maker.metric
    with pytest.warns(UserWarning, match="1 row without a language"):
        sample = store.sample(3).vectors
    assert {code: len(rows) for code, rows in sample.items()} == {"de": 2, "en": 3, "fr": 2}
    english = VECTORS[[code == "en" for code in LANGUAGES]]
    for row in sample["en"]:
        assert np.abs(english - row).max(axis=1).min() < 1e-3
    with pytest.raises(ValueError, match="sw.*de, en, fr"):
        store.sample(3, languages=["en", "sw"])


def apply_and_stop(calibration: VectorCalibration, store: Store, into: str) -> None:
    """Apply a calibration, and stop at the third batch."""
    transform = partial(VectorCalibration.transform, calibration)
    stopping = Mock(side_effect=[DEFAULT, DEFAULT, KeyboardInterrupt], wraps=transform)
    with pytest.MonkeyPatch.context() as patched, pytest.raises((KeyboardInterrupt, OSError)):
        patched.setattr(VectorCalibration, "transform", stopping)
        apply_calibration(calibration, store, into)
    store.close()


def test_mapped_vectors_go_beside_the_stored_ones_once(made: Made, opened: Opened) -> None:
    into, mapped = made.beside("mapped")
    store = opened(made.address)
    original = store.name_in_store
    calibration = fitted(store)
    apply_and_stop(calibration, store, into)
    if made.maker.part is None:
        assert not Path(into).exists()
    for written in (4, 0) if made.kind.is_continued else (10,):
        store = opened(made.address)
        assert apply_calibration(calibration, store, into) == (written, {}, 0)
        np.testing.assert_allclose(read(store).vectors, VECTORS, atol=1e-3)
        store.close()
    store = opened(mapped)
    content = read(store)
    expected = calibration.transform(VECTORS, "document")
    np.testing.assert_allclose(content.vectors, expected, atol=2e-3)
    assert content.languages == LANGUAGES
    if made.kind.name == ".npy":
        assert np.load(mapped).dtype == np.float64, "the type of its source"
    with pytest.raises(ValueError, match=re.escape(f"made from, {original}")):
        apply_calibration(calibration, store, "again.parquet")
    store.close()
    store = opened(made.address)
    with pytest.raises(FileExistsError, match="mapped"):
        apply_calibration(fitted(store, strength=0.5), store, into)
    with pytest.raises((FileExistsError, ValueError)):  # a folder is no file
        apply_calibration(calibration, store, made.own_name)


def test_a_row_that_cannot_be_mapped_stays_without_a_vector(made: Made, opened: Opened) -> None:
    into, mapped = made.beside("mapped")
    store = opened(made.address)
    calibration = fitted(store, steps=["shift"])  # of en and de
    left_out = {"without a language": 1, "in fr, for which there is no map": 2}
    assert apply_calibration(calibration, store, into) == (7, left_out, 0)
    store.close()
    vectors = np.concatenate([batch_vectors(batch) for batch in opened(mapped).batches()])
    is_there = np.nan_to_num(vectors).any(axis=1)  # others are left out, null, NaN or zero
    vectors = vectors[is_there]
    rows = [i for i, code in enumerate(LANGUAGES) if code in ("en", "de")]
    codes = [LANGUAGES[i] or "" for i in rows]
    expected = calibration.transform(VECTORS[rows], "document", codes)
    in_order = np.lexsort(vectors.T)
    expected_order = np.lexsort(expected.T)
    np.testing.assert_allclose(vectors[in_order], expected[expected_order], atol=2e-3)


@pytest.mark.parametrize("name", ["a/b", "../b", 'a"b'])
@pytest.mark.parametrize("kind", ["qdrant", "named_qdrant", "chroma", "lance"])
def test_names_that_a_store_does_not_take(
    kind: str, name: str, tmp_path: Path, build: Build, opened: Opened
) -> None:
    store = opened(build(kind))
    folders = {path for path in tmp_path.parent.rglob("*") if path.is_dir()}
    with pytest.raises((ValueError, OSError), match=re.escape(store.name)):
        apply_calibration(fitted(store), store, name)
    assert {path for path in tmp_path.parent.rglob("*") if path.is_dir()} == folders


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        ("qdrant", ("=docs", "=other"), "other"),
        ("qdrant", ("?collection=docs", ""), "collection"),
        ("qdrant", ("=docs", "=docs&vektor=a"), "vektor"),
        ("named_qdrant", ("=dense", "=other"), "dense"),
        ("chroma", ("=docs", "=other"), "other"),
        ("chroma", ("/chroma?", "/nothing?"), "nothing"),
        ("lance", ("=docs", "=other"), "other"),
        ("lance", ("=docs", "=docs&column=text"), "'text'"),
        ("postgresql", ("table=docs", "table=other"), "other"),
        ("postgresql", ("column=dense", "column=other"), "'other'.*'dense'"),
        ("postgresql", ("column=dense", "column=text"), "'text'.*'dense'"),
        ("postgresql", ("/postgres?", "/nowhere?"), "nowhere"),
        ("postgresql", ("postgres:@", "stranger:hunter2@"), "stranger"),
    ],
)
def test_what_is_not_there(
    kind: str, change: tuple, named: str, tmp_path: Path, build: Build, opened: Opened
) -> None:
    with pytest.raises((ValueError, OSError), match=named) as error:
        opened(build(kind).replace(*change))
    assert not (tmp_path / "nothing").exists() and "hunter2" not in str(error.value)


@pytest.mark.parametrize("name", ["a\"b'c; DROP TABLE docs; --", "100%s %(a)s", "{a} {}", "Upper"])
def test_any_name_is_quoted_in_postgresql(
    name: str, build: Build, sql: Sql, opened: Opened
) -> None:
    address = build("postgresql")
    quoted = '"' + name.replace('"', '""') + '"'
    sql(f"DROP TABLE IF EXISTS {quoted}")
    sql(f"ALTER TABLE docs RENAME TO {quoted}")
    for column in ("key", "dense", "lang"):
        sql(f'ALTER TABLE {quoted} RENAME {column} TO "{column} {quoted[1:]}')
    column = quote(f"dense {name}")
    address = address.replace("table=docs&column=dense", f"table={quote(name)}&column={column}")
    store = opened(address, language_field=f"lang {name}")
    assert read(store).languages == LANGUAGES
    assert apply_calibration(fitted(store), store, f"mapped {name}").written == 10
    assert len(read(opened(address.replace(column, quote(f"mapped {name}"))))[0]) == 10


def test_indexes_and_vectors_of_another_length_in_postgresql(
    build: Build, sql: Sql, opened: Opened
) -> None:
    address = build("untyped")
    sql("CREATE INDEX ON docs (dense)")
    sql("CREATE INDEX casts ON docs USING hnsw ((dense::halfvec(4)) halfvec_l2_ops)")
    assert opened(address).metric == "euclidean"
    sql("DROP INDEX casts; CREATE INDEX ON docs USING hnsw ((dense::vector(4)) vector_l1_ops)")
    with pytest.raises(ValueError, match="by l1"):
        opened(address)
    address = build("untyped")
    sql("UPDATE docs SET dense = '[1,2,3]' WHERE key = '49'")
    store = opened(address)
    with pytest.raises(ValueError, match="postgresql:.* of 49 has 3 numbers.* 4"):
        read(store)
    with pytest.raises(ValueError, match="postgresql:.* of 49 has 3 numbers.* 4"):
        apply_calibration(fitted(store), store, "mapped")
    assert "mapped" not in str(sql("SELECT * FROM docs").description), "nothing is written before"


def test_languages_inside_a_payload_and_the_layout_of_langchain(
    tmp_path: Path, build: Build, opened: Opened
) -> None:
    store: Any = opened(build("postgresql"), language_field="about.lang")
    assert read(store).languages == [code or "None" for code in LANGUAGES]
    address = build("qdrant")
    store = opened(address, language_field="metadata.language")
    assert read(store).languages == LANGUAGES
    payload = {
        "page_content": "Il pleut.",
        "metadata": {"language": "fr", "source": "a.pdf", "page": 3.0},
    }
    store.client.overwrite_payload("docs", payload, points=[0])
    store.client.set_payload(
        "docs", {"metadata": {"language": float("nan")}}, points=[1]
    )  # of pandas
    assert read(store).languages[:3] == ["fr", None, "en"]
    store.close()
    batch = next(opened(address, group_field="metadata.page").batches(texts=True))
    row = {"id": "0", "language": "fr", "text": "Il pleut.", "source": "a.pdf", "group": "3"}
    assert {name: batch.column(name)[0].as_py() for name in row} == row


@pytest.mark.parametrize(
    "address",
    [
        "mysql://me:secret@host/db",
        "postgresql://me:secret@host/db?table=docs",
        "postgresql:host=nowhere.invalid user=me password=secret?table=docs&column=dense",
        "postgresql:host=nowhere.invalid user=me password='secret thing'?table=docs&column=dense",
        "postgresql://me:secret@nowhere.invalid/db?table=docs&column=dense",
        "postgresql://me:pass/secret@host/db?table=docs&column=dense",
        "postgresql://me:pass?secret@host/db?table=docs&column=dense",
        "qdrant:http://host:6333?collection=docs&apikey=secret",
        "qdrant:secret@nowhere?collection=docs",
        "qdrant:me:sec/secret@host?collection=docs",
        "qdrant:http://127.0.0.1:9?collection=docs&api_key=secret",
        "https:/me:secret@host/vectors.npy",
        "lance:s3://me:secret@bucket?table=docs",
        "s3://me:secret@bucket/vectors.parquet",
    ],
)
def test_passwords_are_not_shown(address: str, opened: Opened) -> None:
    with pytest.raises((ValueError, OSError)) as error:
        opened(address)
    assert "secret" not in str(error.value) and "me:" not in str(error.value)


def test_a_map_for_another_model_is_refused_and_no_program_embeds_without_it(
    tmp_path: Path, opened: Opened
) -> None:
    function = {
        "name": "unknown",
        "model": {"name": "me/model"},
        "vector_column": "vector",
        "source_column": "text",
    }
    content = stores.table().replace_schema_metadata(
        {"embedding_functions": json.dumps([function])}
    )
    pytest.importorskip("lancedb").connect(str(tmp_path / "lance")).create_table("docs", content)
    store: Any = opened(f"lance:{tmp_path / 'lance'}?table=docs")
    with pytest.raises(ValueError, match="me/model"):
        apply_calibration(fitted(store, model="other"), store, "mapped")
    apply_calibration(fitted(store, model="me/model"), store, "mapped")
    assert b"embedding_functions" not in store.database.open_table("mapped").schema.metadata


def test_a_new_collection_of_qdrant_is_like_the_old_one(tmp_path: Path, opened: Opened) -> None:
    client, models = stores.open_qdrant(tmp_path)
    params = models.VectorParams(
        size=4, distance="Cosine", on_disk=True, hnsw_config=models.HnswConfigDiff(m=7)
    )
    sparse = {"words": models.SparseVectorParams(modifier="idf")}
    client.create_collection(
        "docs", params, sparse, metadata={"model": "me/model", "name": "documents"}
    )
    words = models.SparseVector(indices=[3, 8], values=[0.5, 2.0])
    points: Any = [{"": VECTORS[0].tolist(), "words": words}, {"": VECTORS[1].tolist()}]
    client.upsert(
        "docs",
        [
            models.PointStruct(id=i, vector=point, payload={"a": i})
            for i, point in enumerate(points)
        ],
    )
    client.close()
    store: Any = opened(f"qdrant:{tmp_path / 'qdrant'}?collection=docs")
    store.info.config.params.shard_number = 3
    store.client.create_collection = create = Mock(wraps=store.client.create_collection)
    assert apply_calibration(fitted(store), store, "mapped").written == 2
    config = store.client.get_collection("mapped").config
    assert (config.params.vectors, config.params.sparse_vectors) == (params, sparse)
    about = (store.model, create.call_args.kwargs["shard_number"], config.metadata["name"])
    assert about == ("me/model", 3, "documents")
    first, second = store.client.retrieve("mapped", [0, 1], with_vectors=True)
    assert first.vector["words"] == words and second.payload == {"a": 1}
    expected = fitted(store).transform(VECTORS[:2], "document")
    np.testing.assert_allclose([first.vector[""], second.vector], expected, atol=1e-6)


def test_a_new_named_vector_of_qdrant_is_stored_like_the_old_one(
    tmp_path: Path, opened: Opened
) -> None:
    store: Any = opened(stores.named_qdrant(tmp_path))
    store.parameters.on_disk = True
    store.client.update_collection = update = Mock(wraps=store.client.update_collection)
    apply_calibration(fitted(store), store, "mapped")
    assert update.call_args.kwargs["vectors_config"]["mapped"].on_disk
    assert "metadata" in update.call_args_list[0].kwargs, "the origin is there before the vector is"
    apply_calibration(fitted(store), store, "second")
    assert store.client.get_collection("docs").config.metadata["st_xlret"].keys() == {
        "mapped",
        "second",
    }
    store.parameters.datatype = store.models.Datatype.UINT8
    with pytest.raises(ValueError, match="0 to 255"):
        apply_calibration(fitted(store), store, "again")
    assert "again" not in store.client.get_collection("docs").config.params.vectors


def test_points_that_are_deleted_while_a_named_vector_is_written(
    tmp_path: Path, opened: Opened
) -> None:
    store: Any = opened(stores.named_qdrant(tmp_path))
    update = store.client.update_vectors
    store.client.update_vectors = lambda *batch: (
        store.client.delete("docs", [1, 8]),
        update(*batch),
    )
    assert apply_calibration(fitted(store), store, "mapped") == (8, {"deleted meanwhile": 1}, 0)
    store.client.update_vectors = Mock(side_effect=RuntimeError("the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        apply_calibration(fitted(store), store, "second")


@pytest.mark.parametrize("name", ["postgresql", "named_qdrant"])
def test_rows_that_are_deleted_during_a_rerun_are_no_rows_that_it_wrote(
    name: str, request: pytest.FixtureRequest, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = stores.MAKERS[name]
    address = maker.make(request.getfixturevalue)
    store: Any = opened(address)
    calibration = fitted(store)
    apply_calibration(calibration, store, "mapped")
    store.close()
    assert maker.change is not None
    maker.change(request.getfixturevalue)  # one row has another vector now, and one has none
    store = opened(address)
    transform = VectorCalibration.transform

    def others_delete(*given: Any) -> Any:
        if name == "postgresql":
            request.getfixturevalue("sql")("DELETE FROM docs WHERE key IN (0, 7)")
        else:
            store.client.delete("docs", [0])
        return transform(*given)

    monkeypatch.setattr(VectorCalibration, "transform", others_delete)
    left_out = {"without a vector that can be mapped": 1, "deleted meanwhile": 1}
    assert apply_calibration(calibration, store, "mapped") == (0, left_out, 0)


def test_row_policies_of_postgresql(build: Build, sql: Sql, opened: Opened) -> None:
    address = build("postgresql")
    sql("DROP ROLE IF EXISTS tenant; CREATE ROLE tenant LOGIN; ALTER TABLE docs OWNER TO tenant")
    sql("ALTER TABLE docs FORCE ROW LEVEL SECURITY, ENABLE ROW LEVEL SECURITY")
    sql("CREATE POLICY hides ON docs FOR SELECT USING (key <= 42)")
    sql("CREATE POLICY skips ON docs FOR UPDATE USING (key <= 30)")
    with pytest.warns(UserWarning, match="row policies"):
        store = opened(address.replace("postgres:@", "tenant:@"))
    with pytest.raises(OSError, match="has taken 2 of 3"):
        apply_calibration(fitted(store), store, "mapped")
    # A batch is there as a whole or not at all.
    assert sql("SELECT count(mapped) FROM docs").fetchone() == (3,)
    sql("ALTER TABLE docs DISABLE ROW LEVEL SECURITY")


def test_rows_that_come_and_go_in_postgresql(build: Build, sql: Sql, opened: Opened) -> None:
    address = build("postgresql")
    store: Any = opened(address)
    calibration = fitted(store)
    update = store._update_column

    def others_write(*batch: Any) -> set[str]:
        # A row of this batch, and one of a later batch.
        sql("DELETE FROM docs WHERE key IN (7, 56)")
        rows = "(1, '[1,2,3,4]'), (100, '[4,3,2,1]')"
        sql(f"INSERT INTO docs (key, dense) VALUES {rows} ON CONFLICT DO NOTHING")
        return update(*batch)

    store._update_column = others_write
    assert apply_calibration(calibration, store, "mapped") == (9, {"deleted meanwhile": 1}, 0)
    # The row that came behind.
    assert apply_calibration(calibration, opened(address), "mapped") == (1, {}, 0)
    rows = sql("SELECT dense::text, mapped::text FROM docs").fetchall()
    dense = np.array([json.loads(row[0]) for row in rows])
    mapped = np.array([json.loads(row[1]) for row in rows])
    np.testing.assert_allclose(mapped, calibration.transform(dense, "document"), atol=1e-5)


def test_a_busy_table_is_left_to_others(
    build: Build, sql: Sql, opened: Opened, monkeypatch
) -> None:
    monkeypatch.setattr(postgres, "_TRIES", 1)
    monkeypatch.setattr(postgres, "_SECONDS", 0.1)
    store = opened(address := build("postgresql"))
    sql("BEGIN; SELECT count(*) FROM docs")
    with pytest.raises(OSError, match="another session holds the table"):
        apply_calibration(fitted(store), store, "mapped")
    assert "mapped" not in str(sql("SELECT * FROM docs").description)
    sql("COMMIT")
    assert apply_calibration(calibration := fitted(store), store, "mapped").written == 10
    sql("UPDATE docs SET mapped = NULL")
    sql("BEGIN; UPDATE docs SET text = '' WHERE key = 21")  # a row is held
    with pytest.raises(OSError, match="another session holds"):
        apply_calibration(calibration, opened(address), "mapped")
    sql("ROLLBACK")


def test_types_names_heirs_and_keys_of_postgresql(build: Build, sql: Sql, opened: Opened) -> None:
    address = build("postgresql")
    sql("DROP TYPE IF EXISTS spoken CASCADE; CREATE TYPE spoken AS ENUM ('en', 'fr', 'de')")
    sql("ALTER TABLE docs ALTER lang TYPE spoken USING lang::spoken")
    assert read(opened(address)).languages == LANGUAGES
    sql("""UPDATE docs SET about = '{"n": 3, "t": "3.0"}' WHERE key % 2 = 0""")
    sql("""UPDATE docs SET about = '{"n": 3.0}' WHERE key % 2 = 1""")
    for field, groups in (("about.n", {"3"}), ("about.t", {"3.0", None})):
        batches = opened(address, group_field=field).batches(texts=True)
        assert set(pa.Table.from_batches(batches)["group"].to_pylist()) == groups
    for written in (10, 0):  # a name is cut as PostgreSQL does
        store = opened(address)
        assert store.metric == "cosine"  # that of its index
        assert apply_calibration(fitted(store), store, "ü" * 40).written == written
    sql("CREATE TABLE heir () INHERITS (docs)")
    with pytest.raises(ValueError, match="inherit"):
        opened(address)
    with pytest.raises(ValueError, match="primary key"):
        opened(address.replace("table=docs", "table=heir"))


@pytest.mark.parametrize("words", ["query_points_groups", "DISTINCT ON"])
def test_databases_group_as_the_guide_says(
    words: str, tmp_path: Path, repository: Path, build: Build, request
) -> None:
    """Row 4 alone is on page 2; page 0 has the rows 0 (en) and 1 (fr), page 1 2 (en) and 6 (fr)."""
    pages = [0, 0, 1, None, 2, None, 1, None, None, None]
    guide = (repository / "docs/guides/vectors-code.md").read_text("utf-8")
    (code,) = (
        block
        for block in re.findall(r"```(?:py|sql)\n(.*?)```", guide, re.DOTALL)
        if words in block
    )
    asked = 3 * VECTORS[0] + 2 * VECTORS[4] + VECTORS[2]  # best first, the rows are 0, 4, 1, 2, 6
    if words == "DISTINCT ON":
        build("postgresql")
        sql = request.getfixturevalue("sql")
        sql("ALTER TABLE docs RENAME lang TO language; ALTER TABLE docs ADD page int")
        sql("UPDATE docs SET page = (%s::int[])[key / 7 + 1]", (pages,))
        rows = sql(code, {"query": str(asked.tolist()), "language": "fr"})
        results = [int(text.split()[1]) for *_, text in rows]
    else:
        build("qdrant")
        client, _ = stores.open_qdrant(tmp_path)
        for row, page in enumerate(pages):
            client.set_payload("docs", {"page": page}, points=[row])
        names: dict[str, Any] = {
            "client": client,
            "query": asked,
            "calibration": Mock(transform=lambda query: query),
        }
        exec(code.replace('"de"', '"fr"'), names)
        results = [point.id for point in names["results"]]
        client.close()
    assert results == [1, 4, 6]
