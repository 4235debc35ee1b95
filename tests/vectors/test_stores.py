"""Stored vectors in databases: each runs in its real engine."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
import pytest

from st_xlret.vectors import VectorCalibration, VectorSource, VectorTarget, apply_calibration
from tests.vectors import stores
from tests.vectors.stores import LANGUAGES, TEXTS, VECTORS

Opened = Callable[..., VectorSource]


def read(source: VectorSource, **how: Any) -> tuple[np.ndarray, list[str | None], list[str | None], list[str]]:
    """The rows in the order of their ids."""
    batches = list(source.batches(3, **how))
    ids = [str(name) for rows in batches for name in rows.ids]
    order = np.argsort(ids)
    vectors = np.concatenate([rows.vectors for rows in batches])
    columns = [[value for rows in batches for value in getattr(rows, name)] for name in ("languages", "texts")]
    return (vectors[order], *([column[i] for i in order] for column in columns), [ids[i] for i in order])  # type: ignore[return-value]


def write(source: VectorSource, target: VectorTarget, batches: int | None = None) -> int:
    """Write the negative vectors of what is not there yet; returns how many rows that were."""
    written = 0
    with target:
        for number, rows in enumerate(source.batches(3, everything=target.everything)):
            if number == batches:
                raise KeyboardInterrupt
            missing = target.missing(rows)
            written += int(missing.sum())
            if missing.any():
                target.write(rows.of(missing)._replace(vectors=-rows.vectors[missing]))
    return written


def new_name(address: str) -> str:
    return address.replace("docs.faiss", "mapped.faiss") if address.endswith(".faiss") else "mapped"


def mapped(address: str) -> str:
    """The address of what was written."""
    for before, after in (
        ("collection=docs&vector=dense", "collection=docs&vector=mapped"),
        ("docs.faiss", "mapped.faiss"),
        ("column=dense", "column=mapped"),
        ("table=docs", "table=mapped"),
    ):
        if before in address:
            return address.replace(before, after)
    return address.replace("=docs", "=mapped")


def test_rows(address: str, opened: Opened) -> None:
    source = opened(address)
    vectors, languages, texts, ids = read(source, everything=True)
    assert (len(source), source.dimension) == (10, 4) and len(set(ids)) == 10
    assert source.metric == {"faiss": "dot", "colum": None}.get(address[-5:], source.metric)
    np.testing.assert_allclose(vectors, VECTORS, atol=1e-3)
    assert languages == LANGUAGES and (texts == TEXTS or address.endswith(".faiss"))
    with pytest.warns(UserWarning, match="1 row without a language"):
        assert {code: len(found) for code, found in source.sample(3).items()} == {"de": 2, "en": 3, "fr": 2}


def test_rows_name_the_document_that_they_are_from(address: str, opened: Opened) -> None:
    if address.endswith(".faiss"):
        with pytest.raises(ValueError, match="docs.faiss has no fields, so no --document_field language"):
            opened(address, document_field="language")
        return
    source = opened(address, document_field="lang" if "postgresql" in address else "language")
    rows = next(source.batches(10))
    assert rows.documents == rows.languages and set(rows.documents) == {"de", "en", "fr", None}
    assert rows.of(np.arange(10) < 3).documents == rows.documents[:3]


def test_vectors_go_beside_the_stored_ones_and_continue(address: str, opened: Opened) -> None:
    source = opened(address)
    target = source.target(new_name(address), "this map")
    assert target.switch != target.back and "mapped" in target.switch and "mapped" not in target.back
    with pytest.raises(KeyboardInterrupt):
        write(source, target, batches=2)
    source.close()

    source = opened(address)
    target = source.target(new_name(address), "this map")
    assert target.already == (0 if address.endswith(".faiss") else 6)
    assert write(source, target) == 10 - target.already
    source.close()

    with opened(mapped(address)) as written:
        np.testing.assert_allclose(read(written)[0], -VECTORS, atol=1e-3)
    source = opened(address)
    np.testing.assert_allclose(read(source)[0], VECTORS, atol=1e-3)
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        source.target(new_name(address), "another map")


def test_a_row_without_a_vector_stays_without(address: str, opened: Opened) -> None:
    source = opened(address)
    target = source.target(new_name(address), "")
    with target:
        for rows in source.batches(20, everything=target.everything):
            vectors = rows.vectors.copy()
            vectors[[2, 5]] = np.nan
            target.write(rows._replace(vectors=vectors))
    source.close()
    after = opened(mapped(address))
    vectors = np.concatenate([rows.vectors[rows.usable()] for rows in after.batches()])
    np.testing.assert_allclose(np.sort(vectors, axis=0), np.sort(np.delete(VECTORS, [2, 5], axis=0), axis=0), atol=1e-3)


def test_nothing_goes_into_the_source_itself(address: str, opened: Opened) -> None:
    own = address if address.endswith(".faiss") else "dense" if "=dense" in address else "docs"
    with pytest.raises(FileExistsError, match="nothing is overwritten"):
        opened(address).target(own, "this map")


@pytest.mark.parametrize("name", ["a/b", "../b", 'a"b'])
@pytest.mark.parametrize("build", ["qdrant", "named_qdrant", "chroma", "lance"])
def test_names_that_a_store_does_not_take(build: str, name: str, tmp_path: Path, opened: Opened) -> None:
    source = opened(stores.BUILDERS[build](tmp_path))
    files = {path for path in tmp_path.parent.rglob("*") if path.is_dir()}
    with pytest.raises((ValueError, OSError), match=re.escape(source.name)), source.target(name, ""):
        pass
    assert {path for path in tmp_path.parent.rglob("*") if path.is_dir()} == files


@pytest.mark.parametrize(
    ("build", "change", "message"),
    [
        ("qdrant", ("=docs", "=other"), r"qdrant:\S+\?collection=other: Collection other not found"),
        ("qdrant", ("?collection=docs", ""), "collection is missing; write qdrant:PLACE"),
        ("qdrant", ("=docs", "=docs&vektor=a"), "unknown vektor; known are collection, vector"),
        ("named_qdrant", ("=dense", "=other"), "name one of the collection's vectors.*: dense"),
        ("qdrant", ("/qdrant?", "/nothing?"), "no such folder"),
        ("chroma", ("=docs", "=other"), r"chroma:\S+ Collection \[other\] does not exist"),
        ("chroma", ("/chroma?", "/nothing?"), "no such folder"),
        ("lance", ("=docs", "=other"), r"lance:\S+ Table 'other' was not found"),
        ("lance", ("=docs", "=docs&column=text"), "not of lists of floating-point numbers"),
        ("lance", ("/lance?", "/nothing?"), "no such folder"),
    ],
)
def test_what_is_not_there(build: str, change: tuple[str, str], message: str, tmp_path: Path, opened: Opened) -> None:
    address = stores.BUILDERS[build](tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        opened(address.replace(*change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("table=docs", "table=other"), "there is no table other"),
        (("column=dense", "column=other"), "no field 'other'; it has 'dense'"),
        (("column=dense", "column=text"), "no field 'text'; it has 'dense'"),
        (("/postgres?", "/nowhere?"), 'database "nowhere" does not exist'),
        (("postgres:@", "stranger:hunter2@"), 'role "stranger" does not exist'),
    ],
)
def test_what_is_not_in_postgresql(
    change: tuple[str, str], message: str, postgresql_server: str, opened: Opened
) -> None:
    address = stores.postgres(postgresql_server, "vector(4)")
    with pytest.raises((ValueError, OSError), match=message) as error:
        opened(address.replace(*change))
    assert "hunter2" not in str(error.value) and str(error.value).startswith("postgresql:///")


def test_a_table_without_a_key(postgresql_server: str, opened: Opened) -> None:
    address = stores.postgres(postgresql_server, "vector(4)")
    with stores.connected(postgresql_server) as connection:
        connection.execute("ALTER TABLE docs DROP CONSTRAINT docs_pkey")
    with pytest.raises(ValueError, match="needs a primary key of one column"):
        opened(address)


@pytest.mark.parametrize("name", ["a\"b'c; DROP TABLE docs; --", "100%s %(a)s", "{a} {}", "Upper"])
def test_any_name_is_quoted_in_postgresql(name: str, postgresql_server: str, opened: Opened) -> None:
    stores.postgres(postgresql_server, "vector(4)")
    with stores.connected(postgresql_server) as connection:
        quoted = '"' + name.replace('"', '""') + '"'
        connection.execute(f"DROP TABLE IF EXISTS {quoted}")
        connection.execute(f"ALTER TABLE docs RENAME TO {quoted}")
        for column in ("key", "dense", "lang"):
            connection.execute(f'ALTER TABLE {quoted} RENAME {column} TO "{column} {quoted[1:]}')
    table, column = quote(name), quote(f"dense {name}")
    address = postgresql_server.replace("?", f"?table={table}&column={column}&", 1)
    source = opened(address, language_field=f"lang {name}")
    assert read(source)[1] == LANGUAGES
    with pytest.raises(KeyboardInterrupt):
        write(source, source.target(f"mapped {name}", ""), batches=1)
    source = opened(address)
    assert write(source, source.target(f"mapped {name}", "")) == 7
    with opened(address.replace(column, quote(f"mapped {name}"))) as written:
        np.testing.assert_allclose(read(written)[0], -VECTORS, atol=1e-3)


def test_what_postgresql_would_not_keep_is_refused(postgresql_server: str, opened: Opened) -> None:
    with pytest.raises(ValueError, match="63 bytes"):
        opened(stores.postgres(postgresql_server, "vector(4)")).target("m" * 64, "")
    with pytest.raises(ValueError, match=r"the key key is of character, not of smallint, .*text"):
        opened(stores.postgres(postgresql_server, "vector(4)", "character(2)")).target("mapped", "")


def test_null_instead_of_a_vector_in_postgresql(postgresql_server: str, opened: Opened) -> None:
    address = stores.postgres(postgresql_server, "halfvec(4)")
    with stores.connected(postgresql_server) as connection:
        connection.execute("UPDATE docs SET dense = NULL WHERE key IN (0, 7)")
    assert [i for rows in opened(address).batches(4) for i in rows.of(~rows.usable()).ids] == [0, 7]


def test_vectors_of_several_lengths_in_postgresql(postgresql_server: str, opened: Opened) -> None:
    address = stores.postgres(postgresql_server, "vector")
    with stores.connected(postgresql_server) as connection:
        connection.execute("UPDATE docs SET dense = '[1,2,3]' WHERE key = 7")
    with pytest.raises(ValueError, match="the vector of row 7 has 3 numbers, not 4"):
        list(opened(address).batches(4))


def test_languages_inside_a_payload(tmp_path: Path, postgresql_server: str, opened: Opened) -> None:
    assert read(opened(stores.qdrant(tmp_path), language_field="metadata.language"))[1] == LANGUAGES
    source = opened(stores.postgres(postgresql_server, "vector(4)"), language_field="about.lang")
    assert read(source)[1] == [code or "None" for code in LANGUAGES]


def test_a_read_only_table(postgresql_server: str, opened: Opened) -> None:
    address = stores.postgres(postgresql_server, "vector(4)")
    with stores.connected(postgresql_server) as connection:
        connection.execute(
            "DROP OWNED BY reader; DROP ROLE reader"
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'reader'").fetchone()
            else "SELECT 1"
        )
        connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT ON docs TO reader")
    source = opened(address.replace("postgres:@", "reader:@"))
    with pytest.raises(OSError, match="docs: must be owner of table docs|must be owner"), source.target("mapped", ""):
        pass


def test_a_server_that_dies(postgresql_server: str, opened: Opened) -> None:
    source = opened(stores.postgres(postgresql_server, "vector(4)"))
    batches = source.batches(3)
    next(batches)
    with stores.connected(postgresql_server) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(OSError, match=r"postgresql:///.*table=docs.*: .*(terminat|clos|lost)"):
        next(batches)


def test_a_server_that_does_not_answer(opened: Opened) -> None:
    pytest.importorskip("qdrant_client")
    with pytest.raises(OSError) as error:
        opened("qdrant:http://127.0.0.1:9?collection=docs&api_key=hunter2")
    assert re.match(r"qdrant:http://127.0.0.1:9\?collection=docs: .*refused", str(error.value))
    assert "hunter2" not in str(error.value)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("client", "address"),
    [
        ("qdrant", "qdrant:http://127.0.0.1:{}?collection=docs"),
        ("chroma", "chroma:http://127.0.0.1:{}?collection=docs"),
        ("postgresql", "postgresql://me@127.0.0.1:{}/postgres?table=docs&column=dense&connect_timeout=2"),
    ],
)
def test_a_server_that_is_silent(
    client: str, address: str, silent: int, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"qdrant": "qdrant_client", "chroma": "chromadb", "postgresql": "psycopg"}[client])
    module = import_module(f"st_xlret.vectors.{client}")
    if client != "postgresql":
        monkeypatch.setattr(module, "_SECONDS", 1)
    started = time.monotonic()
    with pytest.raises(OSError, match=rf"^{client}:.*127.0.0.1:{silent}.*: .*(timed out|timeout)"):
        opened(address.format(silent))
    assert time.monotonic() - started < 10


def test_a_chroma_server_is_read_and_written(tmp_path: Path, opened: Opened) -> None:
    pytest.importorskip("chromadb")
    stores.chroma(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = "from chromadb.cli.cli import app; app()"
    given = ["run", "--path", str(tmp_path / "chroma"), "--port", f"{port}"]
    with subprocess.Popen([sys.executable, "-c", run, *given], stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            source = opened(f"chroma:http://127.0.0.1:{port}?collection=docs")
            assert write(source, source.target("mapped", "this map")) == 10
            np.testing.assert_allclose(next(source.batches(3)).vectors, VECTORS[:3], atol=1e-6)
        finally:
            server.kill()


def test_a_postgresql_server_that_is_gone_is_noticed(postgresql_server: str, opened: Opened) -> None:
    """What the system is asked to watch, by which it notices that nothing comes back."""
    folder = parse_qs(urlsplit(postgresql_server).query)["host"][0]
    address = stores.postgres(postgresql_server, "vector(4)").replace(f"host={folder}", "host=127.0.0.1&port={}")

    def forward(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(2**16):
                other.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as inner:
        inner.connect(f"{folder}/.s.PGSQL.5432")

        def serve() -> None:
            outer, _ = server.accept()
            threading.Thread(target=forward, args=(inner, outer), daemon=True).start()
            forward(outer, inner)

        threading.Thread(target=serve, daemon=True).start()
        source: Any = opened(address.format(server.getsockname()[1]) + "&keepalives_count=7")
        with socket.socket(fileno=os.dup(source.connection.fileno())) as watched:
            found = [
                watched.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_USER_TIMEOUT,
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                )
            ]
        source.close()
    assert found == [60_000, 30, 10, 7]


def lance_of_a_model(folder: Path) -> str:
    """A table whose own embedding function is unknown to the program that reads it."""
    address = stores.lance(folder)
    embeddings = pytest.importorskip("lancedb").embeddings

    @embeddings.register("own")
    class Own(embeddings.TextEmbeddingFunction):  # type: ignore[name-defined, misc]
        name: str = "me/default"

        def ndims(self) -> int:
            return 4

        def generate_embeddings(self, texts: Any) -> Any:
            raise AssertionError("nothing is embedded")

    function = embeddings.get_registry().get("own").create(name="me/model")
    own = embeddings.EmbeddingFunctionConfig(vector_column="vector", source_column="text", function=function)
    database = pytest.importorskip("lancedb").connect(str(folder / "lance"))
    rows = database.open_table("docs").to_arrow()
    database.create_table("docs", rows, mode="overwrite", embedding_functions=[own])
    del embeddings.get_registry()._functions["own"]
    return address


def chroma_of_a_model(folder: Path) -> str:
    """A collection whose own embedding function is unknown to the program that reads it."""
    chromadb = pytest.importorskip("chromadb")
    functions = pytest.importorskip("chromadb.utils.embedding_functions")

    class Own(chromadb.EmbeddingFunction):  # type: ignore[name-defined, misc]
        def __init__(self) -> None: ...

        def __call__(self, input: Any) -> Any:
            raise AssertionError("nothing is embedded")

        @staticmethod
        def name() -> str:
            return "own"

        def get_config(self) -> dict[str, Any]:
            return {"model_name": "me/model"}

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> Any:
            return Own()

    functions.register_embedding_function(Own)
    client = chromadb.PersistentClient(str(folder / "chroma"))
    client.create_collection("docs", embedding_function=Own()).add(ids=["0"], embeddings=VECTORS[:1])
    del functions.known_embedding_functions["own"]
    return f"chroma:{folder / 'chroma'}?collection=docs"


def qdrant_of_a_model(folder: Path) -> str:
    address = stores.qdrant(folder)
    client, _ = stores.open_qdrant(folder)
    client.update_collection("docs", metadata={"model": "me/model", "name": "documents"})
    client.close()
    return address


@pytest.mark.parametrize("build", [lance_of_a_model, chroma_of_a_model, qdrant_of_a_model])
def test_a_map_for_another_model_is_refused(build: Callable[[Path], str], tmp_path: Path, opened: Opened) -> None:
    source = opened(build(tmp_path))
    assert source.model == "me/model"
    calibration = VectorCalibration(np.eye(4, dtype=np.float32)[None], np.zeros((1, 4), np.float32), model="other")
    calibration = replace(calibration, metric=source.metric or "cosine")
    with pytest.raises(ValueError, match="model me/model, but the calibration was fitted for model other"):
        apply_calibration(calibration, source, "mapped")
    apply_calibration(replace(calibration, model="me/model"), source, "mapped", show_progress_bar=False)
    if build is lance_of_a_model:  # which would embed new rows and queries without the map
        database: Any = source
        assert not database.database.open_table("mapped").schema.metadata


@pytest.mark.parametrize("build", [stores.lance, stores.chroma, stores.qdrant, stores.named_qdrant])
def test_a_store_that_names_no_model(build: Callable[[Path], str], tmp_path: Path, opened: Opened) -> None:
    assert opened(build(tmp_path)).model is None


def test_a_collection_that_disappears(tmp_path: Path, opened: Opened) -> None:
    source: Any = opened(stores.qdrant(tmp_path))
    batches = source.batches(3)
    next(batches)
    source.client.delete_collection("docs")
    with pytest.raises(ValueError, match=r"qdrant:.*Collection docs not found"):
        next(batches)


@pytest.mark.parametrize("build", ["qdrant", "named_qdrant"])
def test_points_that_come_and_go_while_vectors_are_written(build: str, tmp_path: Path, opened: Opened) -> None:
    address = stores.BUILDERS[build](tmp_path)
    source: Any = opened(address)
    with source.target("mapped", "") as target:
        rows = next(source.batches(3, everything=True))
        source.client.delete("docs", [1])
        target.write(rows)
    vector: Any = [1.0, 0, 0, 0] if build == "qdrant" else {"dense": [1.0, 0, 0, 0]}
    source.client.upsert("docs", [source.models.PointStruct(id=77, vector=vector)])
    source.close()
    source = opened(address)
    assert write(source, source.target("mapped", "")) == 8


def test_a_new_collection_of_qdrant_is_like_the_old_one(tmp_path: Path, opened: Opened) -> None:
    client, models = stores.open_qdrant(tmp_path)
    params = models.VectorParams(size=4, distance="Cosine", on_disk=True, hnsw_config=models.HnswConfigDiff(m=7))
    sparse = {"words": models.SparseVectorParams(modifier="idf")}
    client.create_collection("docs", params, sparse, metadata={"owner": "me"})
    words = models.SparseVector(indices=[3, 8], values=[0.5, 2.0])
    points: Any = [{"": VECTORS[0].tolist(), "words": words}, {"": VECTORS[1].tolist()}]
    client.upsert("docs", [models.PointStruct(id=i, vector=point, payload={"a": i}) for i, point in enumerate(points)])
    client.close()
    source: Any = opened(f"qdrant:{tmp_path / 'qdrant'}?collection=docs")
    source.info.config.params.shard_number = 3
    source.info.config.hnsw_config.m = 5
    source.info.config.quantization_config = models.BinaryQuantization(binary=models.BinaryQuantizationConfig())
    given: dict[str, Any] = {}
    create = source.client.create_collection
    source.client.create_collection = lambda *args, **how: (given.update(how), create(*args, **how))
    assert write(source, source.target("mapped", "this map of docs")) == 2
    assert given["shard_number"] == 3 and given["hnsw_config"].m == 5 and "binary" in str(given["quantization_config"])
    config = source.client.get_collection("mapped").config
    assert (config.params.vectors, config.params.sparse_vectors) == (params, sparse)
    assert config.metadata["owner"] == "me"
    found = source.client.retrieve("mapped", [0, 1], with_vectors=True)
    assert found[0].vector["words"] == words and found[1].payload == {"a": 1}
    assert found[0].vector.keys() == {"", "words"}
    np.testing.assert_allclose([found[0].vector[""], found[1].vector], -VECTORS[:2], atol=1e-6)
    source.info.config.params.sharding_method = models.ShardingMethod.CUSTOM
    with pytest.raises(ValueError, match="lose the keys of this one's shards"):
        source.target("other", "this map of docs")


def test_a_new_named_vector_of_qdrant_is_stored_like_the_old_one(tmp_path: Path, opened: Opened) -> None:
    source: Any = opened(stores.named_qdrant(tmp_path))
    source.parameters.on_disk = True
    source.parameters.hnsw_config = source.models.HnswConfigDiff(m=7)
    given: list[Any] = []
    update = source.client.update_collection
    source.client.update_collection = lambda *args, **how: (given.append(how), update(*args, **how))
    with source.target("mapped", "this map of dense"):
        pass
    found = given[-1]["vectors_config"]["mapped"]
    assert found.on_disk and found.hnsw_config.m == 7


def test_vectors_that_are_mapped_are_not_mapped_again(address: str, opened: Opened) -> None:
    source = opened(address)
    original = source.called
    source.refuse_mapped()
    write(source, source.target(new_name(address), f"this map of {original}"))
    source.close()
    if address.endswith(".faiss"):
        return  # the file has no place for a mark
    with pytest.raises(ValueError, match=rf"mapped these vectors already.*made from, {original}"):
        opened(mapped(address)).refuse_mapped()


@pytest.mark.parametrize("build", ["qdrant", "chroma"])
def test_fields_of_a_payload_are_named(build: str, tmp_path: Path, opened: Opened) -> None:
    with pytest.raises(ValueError, match=r"--language_field; there are language(, metadata, text)?\)"):
        opened(stores.BUILDERS[build](tmp_path), language_field="tongue").sample(3)


@pytest.mark.parametrize("kind", ["IndexPQ", "IndexHNSWFlat"])
def test_indexes_of_codes(kind: str, tmp_path: Path, opened: Opened) -> None:
    import faiss

    index = faiss.index_factory(4, {"IndexPQ": "PQ2x2", "IndexHNSWFlat": "HNSW8"}[kind])
    index.train(VECTORS)
    index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "docs.faiss"))
    with pytest.raises(ValueError, match=f"docs.faiss is a {kind}.*map the queries alone"):
        opened(str(tmp_path / "docs.faiss"))
