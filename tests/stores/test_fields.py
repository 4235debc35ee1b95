"""Where stores have labels, texts and groups: names are known in any case."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from st_xlret.stores import Store, open_store
from st_xlret.stores.fields import find_field, payload_value
from tests.stores import stores
from tests.stores.stores import LANGUAGES, TEXTS, VECTORS


@pytest.mark.parametrize(
    ("present", "field", "found"),
    [
        (["Language"], None, "Language"),
        (["LANG", "language"], None, "language"),
        (["Lang", "Language"], None, "Language"),
        (["Spoken"], "spoken", "Spoken"),
        (["a"], None, None),
    ],
)
def test_a_field_is_found_in_any_case(
    present: list[str], field: str | None, found: str | None
) -> None:
    assert find_field(present, field, ("language", "lang"), "a file") == found


def test_fields_that_differ_in_case_alone_are_named() -> None:
    with pytest.raises(ValueError, match="a file has 2 fields 'language'.*'Language', 'LANGUAGE'"):
        find_field(["Language", "LANGUAGE"], None, ("language",), "a file")


@pytest.mark.parametrize(
    ("name", "field"), [("named_qdrant", "Language"), ("postgresql", "About.lang")]
)
def test_vectors_are_named_in_any_case(
    name: str, field: str, request: pytest.FixtureRequest
) -> None:
    address = stores.MAKERS[name].make(request.getfixturevalue)
    with open_store(address.replace("dense", "Dense"), language_field=field) as store:
        assert store.name_in_store == "dense"
        assert store.dimension == 4
        assert rows(store, "language")[:3] == LANGUAGES[:3]


def test_a_payload_is_read_in_any_case() -> None:
    payload = {"Metadata": {"Lang": "fr"}, "page": 3.0, "Page": 4}
    assert payload_value(payload, ["language", "metadata.lang"]) == "fr"
    assert payload_value(payload, ["page"]) == "3"


def rows(store: Store, name: str) -> list[Any]:
    batches = store.batches(texts=True)
    return pa.Table.from_batches(batches)[name].to_pylist()


def test_labels_of_a_payload_are_read_in_any_case(tmp_path: Path) -> None:
    address = stores.qdrant(tmp_path)
    client, _ = stores.open_qdrant(tmp_path)
    for row, (code, text) in enumerate(zip(LANGUAGES, TEXTS, strict=True)):
        client.overwrite_payload("docs", {"Language": code, "Text": text}, points=[row])
    client.close()
    with open_store(address) as store:
        (batch,) = store.batches()  # without texts
        assert batch.column("language").to_pylist() == LANGUAGES
        assert rows(store, "text") == TEXTS


def test_documents_of_a_sample_are_read_from_a_payload(tmp_path: Path) -> None:
    address = stores.qdrant(tmp_path)
    client, _ = stores.open_qdrant(tmp_path)
    for row in range(9):
        payload = {"language": "en", "metadata": {"document": row // 3}}
        client.overwrite_payload("docs", payload, points=[row])
    client.overwrite_payload("docs", {"language": "en"}, points=[9])
    client.close()
    with open_store(address) as store:
        sample = store.sample(10)
    assert sorted(sample.documents["en"]) == [*"000111222", "9"]
    for vector, document in zip(sample.vectors["en"], sample.documents["en"], strict=True):
        row = int(np.abs(VECTORS - vector).sum(axis=1).argmin())
        assert document == (str(row // 3) if row < 9 else "9")


FRENCH = ["Le chat dort sur le toit de la maison.", "Il pleut depuis ce matin."] * 5


def unlabelled(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """A store whose labels stand in the field `sprache`."""
    payloads = [{"sprache": "fr", "text": text} for text in FRENCH]
    if kind == "parquet":
        columns = {"vector": VECTORS.tolist(), "sprache": ["fr"] * 10, "text": FRENCH}
        pq.write_table(pa.table(columns), folder / "docs.parquet")
        return str(folder / "docs.parquet")
    if kind == "qdrant":
        address = stores.qdrant(folder)
        client, _ = stores.open_qdrant(folder)
        for row, payload in enumerate(payloads):
            client.overwrite_payload("docs", payload, points=[row])
        client.close()
        return address
    if kind == "chroma":
        client = pytest.importorskip("chromadb").PersistentClient(str(folder / "chroma"))
        docs = client.create_collection("docs", embedding_function=None)
        docs.add(ids=[f"{i}" for i in range(10)], embeddings=VECTORS, metadatas=payloads)
        return f"chroma:{folder / 'chroma'}?collection=docs"
    address = stores.MAKERS["postgresql"].make(request.getfixturevalue)
    sql = request.getfixturevalue("sql")
    sql("ALTER TABLE docs RENAME lang TO sprache")
    sql("UPDATE docs SET sprache = 'fr', text = %s, about = NULL", (FRENCH[0],))
    return address


@pytest.mark.parametrize("kind", ["parquet", "qdrant", "chroma", "postgresql"])
def test_labels_that_are_not_read_are_named(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("py3langid")
    address = unlabelled(kind, tmp_path, request)
    warning = "'sprache' looks like.*--language_field sprache"
    with open_store(address, text_field="text") as store, pytest.warns(UserWarning, match=warning):
        store.sample(5)
    with open_store(address, language_field="sprache") as store:
        assert {code: len(found) for code, found in store.sample(20).vectors.items()} == {"fr": 10}


def test_a_row_of_another_length_is_named_in_a_table(tmp_path: Path) -> None:
    vectors = [[1.0, 2.0]] * 5 + [[1.0, 2.0, 3.0]]
    pq.write_table(pa.table({"vector": vectors}), tmp_path / "docs.parquet")
    store = open_store(tmp_path / "docs.parquet")
    store.size = 4
    with pytest.raises(ValueError, match=r"docs\.parquet: the vector of row 5 has 3 numbers"):
        list(store.batches())
