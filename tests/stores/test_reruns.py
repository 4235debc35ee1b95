"""A rerun of `apply` writes what is missing or has changed; nothing of the user's is touched."""

import socket
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from st_xlret import VectorCalibration
from st_xlret.stores import Store, apply_calibration, chroma, open_store
from st_xlret.stores.batches import batch_vectors
from st_xlret.stores.registry import STORES
from tests.stores import stores
from tests.stores.stores import LANGUAGES, NEW, VECTORS, Made

Opened = Callable[..., Store]
Sql = Callable[..., Any]
CALIBRATION = VectorCalibration.fit(
    {code: np.random.default_rng(2).normal(size=(60, 4)) + i for i, code in enumerate(["en", "de"])}
)
CONTINUED = [
    name
    for name, maker in stores.MAKERS.items()
    if maker.kind in {kind.name for kind in STORES if kind.is_continued}
]


def mapped_vectors(address: str) -> list[np.ndarray]:
    """The vectors that there are, in any order."""
    with open_store(address) as store:
        rows = np.concatenate([batch_vectors(batch) for batch in store.batches()])
    return [row for row in rows if np.nan_to_num(row).any()]


@pytest.mark.parametrize("name", CONTINUED)
def test_a_rerun_maps_again_what_has_changed(name: str, request: pytest.FixtureRequest) -> None:
    maker = stores.MAKERS[name]
    made = Made(maker, maker.make(request.getfixturevalue))
    into, mapped = made.beside("mapped")
    with open_store(made.address) as store:
        calibration = replace(CALIBRATION, metric=store.metric or "cosine")
        assert apply_calibration(calibration, store, into) == (10, {}, 0)
    assert maker.change is not None, "a store that is continued needs one"
    maker.change(request.getfixturevalue)
    with open_store(made.address) as store, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = apply_calibration(calibration, store, into)
    assert again == (1, {"without a vector that can be mapped": 1}, 1)
    with open_store(made.address) as store:
        assert apply_calibration(calibration, store, into).written == 0
    there = mapped_vectors(mapped)
    is_copy = maker.part == "collection"
    assert len(there) == (10 if is_copy else 9), "a copy loses no row; a column or vector does"
    assert is_copy == any("without a vector now, stay there: 1" in str(w.message) for w in caught)
    expected = calibration.transform(NEW, "document")
    assert min(np.abs(row - expected).max() for row in there) < 2e-3


def test_what_others_have_put_into_a_copy_stays(tmp_path: Path) -> None:
    address = stores.chroma(tmp_path)
    client = pytest.importorskip("chromadb").PersistentClient(str(tmp_path / "chroma"))
    collection = client.get_collection("docs", embedding_function=None)
    collection.update(ids=["3", "4"], uris=["a.png", "b.png"])
    calibration = replace(CALIBRATION, metric="cosine")
    with open_store(address) as store:
        assert apply_calibration(calibration, store, "mapped").written == 10
        copies = client.get_collection("mapped", embedding_function=None)
        copies.update(ids=["3"], metadatas=[{"mine": 1}])
        copies.add(ids=["own"], embeddings=[NEW])
        collection.update(ids=["3"], documents=["another text"], embeddings=[NEW])
        collection.delete(ids=["5"])
        with pytest.warns(UserWarning, match="rows of mapped that it does not have.*: 2"):
            assert apply_calibration(calibration, store, "mapped") == (1, {}, 1)
    copy = copies.get(ids=["3", "5", "own"], include=["documents", "metadatas", "uris"])
    assert sorted(copy["ids"]) == ["3", "5", "own"]
    place = copy["ids"].index("3")
    assert LANGUAGES[3] is None, "an entry without metadata is copied"
    assert copy["metadatas"][place] == {"mine": 1}
    assert (copy["documents"][place], copy["uris"][place]) == ("another text", "a.png")


@pytest.mark.parametrize(
    "change",
    [
        {"documents": ["another text"]},
        {"metadatas": [{"price": 777}]},
        {"uris": ["c.png"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_beside_a_vector_is_changed_in_the_copy(change: Any, tmp_path: Path) -> None:
    address = stores.chroma(tmp_path)
    client = pytest.importorskip("chromadb").PersistentClient(str(tmp_path / "chroma"))
    calibration = replace(CALIBRATION, metric="cosine")
    with open_store(address) as store:
        apply_calibration(calibration, store, "mapped")
        client.get_collection("mapped").update(ids=["3"], metadatas=[{"mine": 1, "price": 1}])
        source = client.get_collection("docs", embedding_function=None)
        vector = source.get(ids=["3"], include=["embeddings"])["embeddings"]
        source.update(ids=["3"], embeddings=vector, **change)
        assert apply_calibration(calibration, store, "mapped") == (1, {}, 1)
        assert apply_calibration(calibration, store, "mapped").written == 0
    copy = client.get_collection("mapped").get(ids=["3"], include=list(change))
    for name, (value,) in change.items():
        expected = {"mine": 1, **value} if name == "metadatas" else value
        assert copy[name] == [expected]


def test_a_payload_that_others_have_added_to_stays_in_qdrant(tmp_path: Path) -> None:
    address = stores.qdrant(tmp_path)
    calibration = replace(CALIBRATION, metric="cosine")
    with open_store(address) as store:
        apply_calibration(calibration, store, "mapped")
    client, models = stores.open_qdrant(tmp_path)
    client.set_payload("mapped", {"mine": 1}, points=[0])
    client.update_vectors("docs", [models.PointVectors(id=0, vector=NEW.tolist())])
    client.set_payload("docs", {"text": "another text"}, points=[1])
    client.close()
    with open_store(address) as store:
        assert apply_calibration(calibration, store, "mapped") == (2, {}, 2)
        assert apply_calibration(calibration, store, "mapped").written == 0
    client, _ = stores.open_qdrant(tmp_path)
    copy, other = client.retrieve("mapped", [0, 1])
    client.close()
    assert (copy.payload["mine"], copy.payload["text"]) == (1, "text 0")
    assert other.payload["text"] == "another text"


def test_the_index_of_a_copy_in_chroma_is_that_of_its_source(tmp_path: Path) -> None:
    client = pytest.importorskip("chromadb").PersistentClient(str(tmp_path))
    index = {"space": "ip", "ef_search": 55, "max_neighbors": 9}
    docs = client.create_collection("docs", configuration={"hnsw": index}, embedding_function=None)
    docs.add(ids=["a", "b"], embeddings=VECTORS[:2], metadatas=[{"language": "en"}, None])
    with open_store(f"chroma:{tmp_path}?collection=docs") as store:
        apply_calibration(replace(CALIBRATION, metric="dot"), store, "mapped")
    copied = client.get_collection("mapped", embedding_function=None).configuration_json["hnsw"]
    assert {name: copied[name] for name in index} == index


@pytest.fixture
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_server_that_never_answers(silent_server: int, monkeypatch: Any) -> None:
    pytest.importorskip("chromadb")
    monkeypatch.setattr(chroma, "_ANSWER", 0.5)
    with pytest.raises(OSError, match="chroma:http:.* has not answered for 0.5 s"):
        open_store(f"chroma:http://127.0.0.1:{silent_server}?collection=docs")


def test_a_server_behind_a_path_of_another_server() -> None:
    pytest.importorskip("chromadb")
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ValueError, match="404"):
            open_store(f"chroma:http://127.0.0.1:{server.server_port}/vectors?collection=docs")
        server.shutdown()
    assert asked[0].startswith("/vectors/api/")


FUNCTION = "CREATE OR REPLACE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS "
NOTE = "BEGIN INSERT INTO queue VALUES (1); RETURN NEW; END"


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("CREATE TRIGGER t AFTER UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION noted()", True),
        (
            "CREATE TRIGGER t BEFORE UPDATE ON docs FOR EACH STATEMENT EXECUTE FUNCTION noted()",
            True,
        ),
        (
            "CREATE TRIGGER t AFTER UPDATE OF text ON docs FOR EACH ROW EXECUTE FUNCTION noted()",
            False,
        ),
        ("CREATE TRIGGER t AFTER INSERT ON docs FOR EACH ROW EXECUTE FUNCTION noted()", False),
        ("CREATE RULE t AS ON UPDATE TO docs DO ALSO INSERT INTO queue VALUES (1)", True),
    ],
)
def test_no_trigger_of_the_user_is_fired(
    command: str, is_refused: bool, request: pytest.FixtureRequest, sql: Sql
) -> None:
    address = stores.MAKERS["postgresql"].make(request.getfixturevalue)
    sql("DROP TABLE IF EXISTS queue; CREATE TABLE queue (row int)")
    sql(f"{FUNCTION} $${NOTE}$$")
    sql(command)
    kind = command.split()[1]
    with open_store(address) as store:
        if is_refused:
            with pytest.raises(ValueError, match=f'ALTER TABLE docs DISABLE {kind} "t"'):
                apply_calibration(CALIBRATION, store, "mapped")
            assert "mapped" not in str(sql("SELECT * FROM docs").description)
            sql(f"ALTER TABLE docs DISABLE {kind} t")
        assert apply_calibration(CALIBRATION, store, "mapped").written == 10
    assert sql("SELECT count(*) FROM queue").fetchone() == (0,)
    sql("DROP TABLE docs; DROP TABLE queue")
